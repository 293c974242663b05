import pytest

from opentinker.sampling.text import Reader


@pytest.fixture
def reader(tiny):
    return Reader(tiny[1], frozenset([2]))


@pytest.fixture
def ids(tiny):
    return lambda text: tuple(tiny[1].encode(text))


def test_text_leaves_out_a_final_end_of_text(reader, ids):
    assert reader.text((*ids("yes"), 2), ()) == "yes"
    assert reader.text((2,), ()) == ""
    assert reader.text((), ()) == ""


def test_other_special_tokens_stay_visible(reader, ids):
    assert reader.text((*ids("a"), 1, *ids("b")), ()) == "a<|im_start|>b"


def test_text_ends_before_the_first_of_the_stop_strings(reader, ids):
    assert reader.text(ids("one; two. three"), (".", "; ")) == "one"


def test_half_a_character_is_shown_as_such(reader, ids):
    assert reader.text(ids("é")[:1], ()) == "\ufffd"


@pytest.mark.parametrize("stop", ["!", "grün", "漢字\n", "x" * 40])
def test_stops_on_the_id_that_completes_the_string_and_not_before(reader, ids, stop):
    # the tail that is decoded starts in the middle of a character of the filler
    filler = ids("漢" * 40)
    before, whole = filler + ids(stop)[:-1], filler + ids(stop)
    assert not reader.stops(before, (stop,))
    assert reader.stops(whole, (stop,))
    assert reader.stops(whole, ("never", stop))


def test_short_replies_are_decoded_once(tiny):
    class Counting:
        calls = 0

        def decode(self, ids, **settings):
            self.calls += 1
            return tiny[1].decode(ids, **settings)

    counting = Counting()
    reader = Reader(counting, frozenset([2]))
    assert [reader.decode((40, 41)) for _ in range(5)] == [tiny[1].decode([40, 41])] * 5
    assert counting.calls == 1
