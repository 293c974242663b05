import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opentinker.envs.codec import TextCodec
from opentinker.envs.text import TextSpace
from opentinker.errors import ConfigError, EnvError, InvalidAction
from opentinker.types import ActionText

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=40)
MASK = np.array([1, 0, 1], np.int8)


def codec(actions, **options):
    return TextCodec(TextSpace(), actions, **options)


def test_is_what_a_seat_expects():
    assert isinstance(codec(Discrete(2)), ActionText)


class TestDiscrete:
    def test_numbers_from_the_space_s_start(self):
        space = codec(Discrete(3, start=5))
        assert space.legal() == (5, 6, 7)
        assert [space.parse(text) for text in ("5", " 6\n", "7")] == [5, 6, 7]
        assert space.render_action(np.int64(6)) == "6"
        assert space.describe() == "Answer with one of: 5, 6, 7."

    @pytest.mark.parametrize("reply", ["", "  ", "3", "-1", "one", "1.0", "0 1", "\u0661", "0x1", "1_0", "\ud800"])
    def test_anything_else_is_invalid(self, reply):
        with pytest.raises(InvalidAction) as error:
            codec(Discrete(3)).parse(reply)
        assert error.value.reply == reply and error.value.legal == ("0", "1", "2")

    def test_names(self):
        space = codec(Discrete(3), action_names=["left", "Right", "N"])
        assert [space.parse(text) for text in ("left", "LEFT", "right", "N")] == [0, 0, 1, 2]
        assert [space.render_action(action) for action in (0, 1, 2)] == ["left", "Right", "N"]
        with pytest.raises(InvalidAction, match="no such action"):
            space.parse("n")  # a single character may mean something in each case
        with pytest.raises(InvalidAction, match="no such action"):
            space.parse("0")

    def test_names_that_differ_in_case_only_are_told_apart(self):
        space = codec(Discrete(2), action_names=["go", "GO"])
        assert (space.parse("go"), space.parse("GO")) == (0, 1)
        with pytest.raises(InvalidAction):
            space.parse("Go")

    def test_a_mask_limits_what_is_legal(self):
        space = codec(Discrete(3), action_names=["a", "b", "c"])
        assert space.legal(MASK) == (0, 2) and space.parse("c", MASK) == 2
        assert space.describe(MASK) == "Answer with one of: a, c."
        with pytest.raises(InvalidAction, match="not legal now; legal: a, c") as error:
            space.parse("b", MASK)
        assert error.value.legal == ("a", "c")
        assert {space.sample(seed, MASK) for seed in range(40)} == {0, 2}

    def test_a_mask_that_does_not_fit_is_the_environment_s_fault(self):
        for call in (lambda s, m: s.parse("0", m), lambda s, m: s.legal(m), lambda s, m: s.sample(1, m)):
            with pytest.raises(EnvError, match="2 entries.*3 actions"):
                call(codec(Discrete(3)), [1, 1])
        with pytest.raises(EnvError, match="no legal action"):
            codec(Discrete(3)).sample(1, [0, 0, 0])

    @pytest.mark.parametrize("size", [2, 5000])
    @pytest.mark.parametrize(
        "wrong",
        [
            "no", 5, [float("nan"), 1], [[1], [0]], [2.5, -1], {"x": 1}, [None, "x"], [2, 0], [-1, 1], [1, 256], 1.0,
            np.array([[1, 0]]), np.array(1), np.array([1, 3]), np.array([2, 1], np.int8), np.array([-1, 1], np.int8),
            np.array(["1", "0"]), np.array([1, None]), np.array([0.5, 1]), {0, 1}, ..., [1j, 0], b"\0\1",
        ],
        ids=repr,
    )  # fmt: skip
    def test_a_mask_that_is_none_is_refused(self, size, wrong):
        for call in (lambda s, m: s.parse("0", m), lambda s, m: s.legal(m), lambda s, m: s.sample(1, m)):
            with pytest.raises(EnvError, match=r"mask is no list or array of one dimension.*Discrete.*given: "):
                call(codec(Discrete(size)), wrong)

    @pytest.mark.parametrize("size", [3, 5000])
    def test_a_mask_may_have_any_type_of_numbers(self, size):
        kinds = [np.int8, np.uint8, np.bool_, np.int64, np.float32]
        flags = [0, 1, 1, *[0] * (size - 3)]
        masks = [np.array(flags, kind) for kind in kinds]
        masks += [flags, tuple(flags), list(map(bool, flags)), list(map(float, flags)), list(masks[2]), list(masks[4])]
        masks += [np.repeat(masks[0], 2)[::2], masks[0].view(type("Own", (np.ndarray,), {}))]
        space = codec(Discrete(size))
        for mask in masks:
            assert space.legal(mask) == (1, 2) and space.parse("1", mask) == 1
            with pytest.raises(InvalidAction):
                space.parse("0", mask)

    def test_a_mask_that_allows_nothing_is_the_environment_s_fault(self):
        for space in (codec(Discrete(3)), codec(Discrete(5000))):
            mask = np.zeros(space.action_space.n, np.int8)
            for call in (lambda s, m: s.parse("0", m), lambda s, m: s.legal(m), lambda s, m: s.sample(1, m)):
                with pytest.raises(EnvError, match="no legal action"):
                    call(space, mask)

    def test_large_spaces_are_not_listed(self):
        space = codec(Discrete(10**9, start=-5))
        assert space.legal() is None and space.parse("-5") == -5 and space.parse("999999994") == 10**9 - 6
        assert space.describe() == "Answer with a whole number from -5 to 999999994."
        assert codec(Discrete(100)).describe() == "Answer with a whole number from 0 to 99."
        with pytest.raises(InvalidAction, match="whole number from -5"):
            space.parse("999999995")

    def test_large_spaces_with_a_mask(self):
        mask = np.zeros(5000, np.int8)
        mask[[7, 4999]] = 1
        space = codec(Discrete(5000))
        assert space.legal(mask) == (7, 4999) and space.parse("7", mask) == 7
        with pytest.raises(InvalidAction, match="legal: 7, 4999"):
            space.parse("8", mask)

    @pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", " "], ["a", 1]])
    def test_names_that_do_not_fit_are_refused(self, names):
        with pytest.raises(ConfigError, match="2 different names"):
            codec(Discrete(2), action_names=names)
        with pytest.raises(ConfigError, match="Discrete"):
            codec(TextSpace(), action_names=names)

    @given(n=st.integers(1, 50), start=st.integers(-1000, 1000), data=st.data())
    def test_round_trip(self, n, start, data):
        space = codec(Discrete(n, start=start))
        action = data.draw(st.integers(start, start + n - 1))
        assert space.parse(space.render_action(action)) == action

    @given(st.integers(0, 2**63 - 1))
    def test_sampling_follows_its_seed(self, seed):
        space = codec(Discrete(1000))
        assert space.sample(seed) == space.sample(seed) and space.sample(seed) in range(1000)


class TestTexts:
    def test_choices(self):
        space = codec(TextSpace(choices=["p", "b"]))
        assert space.legal() == ("p", "b") and space.parse(" p\n") == "p" and space.describe() == ""
        assert space.parse("b", [0, 1]) == "b"
        with pytest.raises(InvalidAction, match="not legal now; legal: b"):
            space.parse("p", [0, 1])

    @given(st.lists(st.text(max_size=5), min_size=1, max_size=8, unique=True), st.data())
    def test_choices_round_trip_whatever_they_look_like(self, choices, data):
        space = codec(TextSpace(choices=choices))
        choice = data.draw(st.sampled_from(choices))
        assert space.parse(space.render_action(choice)) == choice

    @given(st.text(max_size=30))
    def test_free_text_round_trip(self, text):
        space = codec(TextSpace(max_length=30))
        assert space.parse(space.render_action(text)) == text
        assert space.legal() is None

    def test_free_text_out_of_bounds(self):
        with pytest.raises(InvalidAction, match="31 characters, at most 30"):
            codec(TextSpace(max_length=30)).parse("x" * 31)
        with pytest.raises(InvalidAction, match="surrogates"):
            codec(TextSpace()).parse("a\udfff")
        with pytest.raises(EnvError, match="mask"):
            codec(TextSpace()).parse("a", [1])

    def test_gymnasium_s_text(self):
        space = codec(Text(3, min_length=2, charset="abc "))
        assert space.parse("ab") == "ab" and space.parse(" ab") == " ab" and space.parse("\nab\n") == "ab"
        for reply, reason in (("a", "at least 2"), ("abca", "at most 3"), ("xyz", "allowed are the characters")):
            with pytest.raises(InvalidAction, match=reason):
                space.parse(reply)
        assert space.sample(4) == space.sample(4) and space.sample(4) in space.action_space


class TestBox:
    def test_numbers_in_any_brackets(self):
        space = codec(Box(-1, 1, (3,), np.float32))
        for reply in ("0.5, -1, 0", "[0.5 -1. 0]", "(.5;-1;0e3)", "[[0.5],[-1],[+0]]"):
            assert space.parse(reply).tolist() == [0.5, -1.0, 0.0]
            assert space.parse(reply).dtype == np.float32
        assert space.describe() == "Answer with 3 numbers from -1 to 1, separated by commas."

    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            ("0.5, 0", "expected 3 numbers, found 2"),
            ("a, b, c", "'a' is not a decimal number"),
            ("0, 0, nan", "'nan' is not"),
            ("0, 0, inf", "'inf' is not"),
            ("0, 0, 1e999", "too large"),
            ("0, 0, 1.5", "out of bounds"),
            ("\u0661, 0, 0", "is not a decimal number"),
            ("9" * 1000 + ", 0, 0", "is not a decimal number"),
        ],
    )
    def test_anything_else_is_invalid(self, reply, reason):
        with pytest.raises(InvalidAction, match=reason):
            codec(Box(-1, 1, (3,))).parse(reply)

    def test_whole_numbers(self):
        space = codec(Box(0, 5, (2, 2), np.int8))
        assert space.parse("[[0, 1], [2, 3]]").tolist() == [[0, 1], [2, 3]]
        assert space.render_action(np.array([[0, 1], [2, 3]], np.int8)) == "[[0, 1], [2, 3]]"
        for reply, reason in (
            ("0 1 2 3.5", "whole number"),
            ("0 1 2 300", "between -128 and 127"),
            ("0 1 2 6", "out of bounds"),
        ):
            with pytest.raises(InvalidAction, match=reason):
                space.parse(reply)

    def test_a_scalar_and_bounds_of_its_own_for_each_entry(self):
        assert codec(Box(0, 1, (), np.float64)).describe() == "Answer with 1 number from 0 to 1."
        space = codec(Box(np.array([0, -2.0]), np.array([1, 2.0]), dtype=np.float64))
        assert space.describe() == "Answer with 2 numbers, at least [0, -2] and at most [1, 2], separated by commas."

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def test_round_trip_is_exact(self, data):
        dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64]))
        shape = data.draw(st.sampled_from([(), (1,), (4,), (2, 3), (2, 1, 2)]))
        if np.issubdtype(dtype, np.floating):
            space = Box(-np.inf, np.inf, shape, dtype)
            entries = {"allow_nan": False, "allow_infinity": False}
        else:
            info = np.iinfo(dtype)
            space, entries = Box(info.min, info.max, shape, dtype), {}
        array = data.draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(np.dtype(dtype), **entries)))
        text = codec(space).render_action(array)
        read = codec(space).parse(text)
        assert read.dtype == array.dtype and read.shape == array.shape
        assert read.tobytes() == array.tobytes()

    def test_sampling_leaves_the_environment_s_space_alone(self):
        box = Box(-1, 1, (2,), seed=3)
        expected = Box(-1, 1, (2,), seed=3).sample()
        assert codec(box).sample(2**62).tolist() == codec(box).sample(2**62).tolist()
        assert box.sample().tolist() == expected.tolist()


class TestObservations:
    @pytest.mark.parametrize(
        ("space", "observation", "text"),
        [
            (TextSpace(), "as it is", "as it is"),
            (Text(9), "same", "same"),
            (Discrete(16), np.int64(7), "7"),
            (Discrete(16), 7, "7"),
            (Box(0, 1, (2, 2)), np.array([[0, 0.5], [0.1, 1]], np.float32), "[[0, 0.5], [0.1, 1]]"),
            (Box(0, 1, (2,), np.int8), np.array([0, 1], np.int8), "[0, 1]"),
            (Box(0, 1, (2,), bool), np.array([False, True]), "[0, 1]"),
            (Box(-10, 10, ()), np.float32(-2.5), "-2.5"),
            (MultiDiscrete([3, 9]), np.array([2, 7]), "[2, 7]"),
            (MultiDiscrete([[3, 9], [2, 2]]), np.array([[2, 7], [0, 1]]), "[[2, 7], [0, 1]]"),
            (MultiBinary(3), np.array([1, 0, 1], np.int8), "[1, 0, 1]"),
            (Tuple([Discrete(32), Discrete(11), Discrete(2)]), (14, np.int64(10), 0), "(14, 10, 0)"),
            (Tuple([Box(0, 1, (1,)), MultiBinary(2)]), (np.array([0.5], np.float32), np.array([0, 1])), "([0.5], [0, 1])"),
            (Tuple([]), (), "()"),
            (Dict({"at": MultiDiscrete([4, 4]), "hp": Discrete(9)}), {"hp": 5, "at": [1, 3]}, "{at: [1, 3], hp: 5}"),
            (Dict({"a": Dict({"b": Tuple([Discrete(3)])})}), {"a": {"b": (2,)}}, "{a: {b: (2)}}"),
            (Dict({"n": Discrete(3), "said": TextSpace()}), {"said": 'no, "2"', "n": 1}, '{n: 1, said: "no, \\"2\\""}'),
            (Tuple([Text(9), Discrete(2)]), ("\u00fc\n", 1), '("\u00fc\\n", 1)'),
        ],
    )
    def test_as_text(self, space, observation, text):
        assert TextCodec(space, Discrete(2)).render(observation) == text

    def test_a_mask_in_the_observation(self):
        space = Dict({"observation": Box(0, 1, (2,), np.int8), "action_mask": Box(0, 1, (3,), np.int8)})
        text = TextCodec(space, Discrete(3))
        whole = {"observation": np.array([1, 0], np.int8), "action_mask": MASK}
        observation, mask = text.split(whole, {"action_mask": "the observation's own goes first"})
        assert mask is MASK and text.render(observation) == "[1, 0]"
        assert text.render(whole) == "[1, 0]"

    def test_a_mask_beside_other_parts(self):
        parts = {"board": Box(0, 1, (2,), np.int8), "clock": Discrete(9), "action_mask": MultiBinary(3)}
        text = TextCodec(Dict(parts), Discrete(3))
        whole = {"board": np.array([1, 0], np.int8), "clock": 4, "action_mask": MASK}
        seen, mask = text.split(whole, {})
        assert mask is MASK and text.render(seen) == text.render(whole) == "{board: [1, 0], clock: 4}"

    def test_parts_that_do_not_fit_their_space_are_no_text(self):
        with pytest.raises(ValueError, match="zip"):
            TextCodec(Tuple([Discrete(2), Discrete(2)]), Discrete(2)).render((1, 1, 1))
        with pytest.raises(EnvError, match="gave int: 3"):
            TextCodec(Tuple([TextSpace()]), Discrete(2)).render((3,))

    def test_a_mask_in_the_info(self):
        assert codec(Discrete(3)).split("text", {"action_mask": MASK, "more": 1}) == ("text", MASK)
        assert codec(Discrete(3)).split("text", {}) == ("text", None)

    def test_a_mask_beside_several_entries(self):
        text = TextCodec(None, Discrete(3), render=lambda seen: f"{seen['board']}/{seen['clock']}")
        assert text.split({"board": 1, "clock": 2, "action_mask": MASK}, {}) == ({"board": 1, "clock": 2}, MASK)
        assert text.render({"board": 1, "clock": 2, "action_mask": MASK}) == "1/2"

    def test_a_text_observation_that_is_none(self):
        with pytest.raises(EnvError, match="gave int: 3"):
            codec(Discrete(2)).render(3)


def test_observations_that_differ_differ_as_text():
    space = Tuple([Text(5), Dict({"b": MultiBinary(2), "c": Discrete(40)})], seed=4)
    seen = {}
    for _ in range(300):
        observation = space.sample()
        key = repr((observation[0], observation[1]["b"].tolist(), int(observation[1]["c"])))
        assert seen.setdefault(TextCodec(space, Discrete(2)).render(observation), key) == key


class TestFunctionsOfTheAuthor:
    @pytest.mark.parametrize("raised", [KeyError("boom"), SystemExit("boom"), GeneratorExit("boom"), StopIteration("boom")])
    def test_whatever_render_raises_is_named_and_is_the_cause(self, raised):
        def render(observation):
            raise raised

        codec = TextCodec(Discrete(3), Discrete(2), render=render)
        with pytest.raises(EnvError, match=f"`render` raised {type(raised).__name__}: .*boom") as error:
            codec.render(1)
        assert error.value.__cause__ is raised

    def test_a_refusal_without_a_text_is_an_invalid_action_all_the_same(self):
        class Speechless(ValueError):
            def __str__(self):
                raise TypeError

        def parse(text):
            raise Speechless

        with pytest.raises(InvalidAction, match=r"its __str__ raised TypeError"):
            TextCodec(None, Discrete(2), render=str, parse=parse).parse("1")

    def test_parse(self):
        moves = {"up": 0, "down": 1}
        space = codec(Discrete(3), parse=lambda text: moves[text])
        assert space.parse("up") == 0
        for reply in ("left", ""):
            with pytest.raises(InvalidAction):
                space.parse(reply)
        with pytest.raises(InvalidAction, match="not legal now"):
            space.parse("down", MASK)
        assert space.legal(MASK) == (0, 2)

    def test_parse_of_other_types(self):
        space = codec(Discrete(3), parse=np.int64)
        assert space.parse("2", MASK) == 2
        with pytest.raises(InvalidAction, match="not legal now"):
            space.parse("1", MASK)
        with pytest.raises(InvalidAction, match="1.5 is not in Discrete"):
            codec(Discrete(3), parse=float).parse("1.5")
        with pytest.raises(InvalidAction, match="1.0 is not in Discrete"):
            codec(Discrete(3), parse=float).parse("1")

    def test_parse_that_leaves_the_space(self):
        with pytest.raises(InvalidAction, match="7 is not in Discrete"):
            codec(Discrete(3), parse=int).parse("7")

    def test_parse_with_reasons_of_its_own(self):
        def parse(text):
            raise InvalidAction(text, "too rude", ("please",))

        with pytest.raises(InvalidAction, match="too rude; legal: please"):
            codec(MultiBinary(3), parse=parse).parse("now!")

    def test_a_fault_in_parse_is_no_invalid_action(self):
        with pytest.raises(AttributeError):
            codec(Discrete(3), parse=lambda text: text.no_such_method()).parse("1")

    def test_a_space_that_cannot_be_listed(self):
        space = codec(MultiBinary(3), parse=lambda text: np.array([int(bit) for bit in text], np.int8))
        assert space.parse("101").tolist() == [1, 0, 1]
        assert space.legal() is None and space.sample(2**60).tolist() == space.sample(2**60).tolist()
        with pytest.raises(InvalidAction, match="invalid literal"):
            space.parse("no")


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3),
        Discrete(10**9),
        TextSpace(choices=["a", "bb"]),
        TextSpace(5),
        Text(3),
        Box(-1, 1, (2,)),
        Box(0, 9, (), np.int8),
        Box(0, 1, (2, 2), bool),
    ],
    ids=str,
)
@settings(max_examples=60, deadline=None)
@given(reply=ANY_TEXT)
def test_no_text_crashes_parse(space, reply):
    text = codec(space)
    try:
        action = text.parse(reply)
    except InvalidAction as error:
        str(error).encode()  # can be logged
        assert error.reply == reply
    else:
        assert action in space
        assert np.array_equal(text.parse(text.render_action(action)), action)


@pytest.mark.parametrize(
    "space", [Discrete(3), Discrete(10**9), TextSpace(choices=["a"]), TextSpace(1), Box(0, 1, (2,))], ids=str
)
def test_rendering_what_is_no_action_is_an_error(space):
    with pytest.raises(ValueError, match="is n|not from"):
        codec(space).render_action(
            np.array([2.0, 2.0], np.float32) if isinstance(space, Box) else -3 if "Disc" in str(space) else "zz"
        )
