"""Texts of which other ones are legal every turn."""

import pytest

from opentinker.envs import TextCodec, TextSpace
from opentinker.envs.menu import EXAMPLES, SHOWN, MenuSpace
from opentinker.errors import EnvError, InvalidAction

MENU = ("Nf3", "e4", "n", "N", "O-O")


@pytest.fixture
def codec():
    return TextCodec(TextSpace(64), MenuSpace(8))


def test_the_legal_texts_are_named_and_read_back(codec):
    assert codec.describe(MENU) == "Answer with one of: Nf3, e4, n, N, O-O"
    assert codec.legal(MENU) == MENU
    assert [codec.parse(codec.render_action(word), MENU) for word in MENU] == list(MENU)


def test_a_text_is_found_without_white_space_and_in_any_case_unless_it_is_one_character_long(codec):
    assert codec.parse(" nf3\n", MENU) == "Nf3" and codec.parse("o-o", MENU) == "O-O"
    assert codec.parse("N", MENU) == "N" and codec.parse("n", MENU) == "n"
    with pytest.raises(InvalidAction, match="not legal now"):
        codec.parse("E", ("e", "f"))


def test_where_case_is_all_the_difference_it_counts(codec):
    assert codec.parse("ab", ("Ab", "ab")) == "ab"
    with pytest.raises(InvalidAction, match="not legal now; legal: Ab, ab"):
        codec.parse("AB", ("Ab", "ab"))


@pytest.mark.parametrize(("reply", "reason"), [("Qh5", "not legal now; legal: Nf3, e4"), ("  ", "the reply is empty")])
def test_what_is_not_on_the_menu_is_no_action(codec, reply, reason):
    with pytest.raises(InvalidAction, match=reason) as caught:
        codec.parse(reply, MENU)
    assert caught.value.legal == MENU


def test_a_comma_in_a_text_does_not_look_like_the_next_one(codec):
    assert codec.describe(("1,2", "3")) == "Answer with one of: 1,2; 3"
    assert codec.describe(("1,2", "3;")) == "Answer with one of: 1,2 | 3;"
    assert codec.describe(("1,2", "3;", "|")) == "Answer with one of: 1,2\n3;\n|"


def test_a_long_menu_is_shown_by_examples(codec):
    menu = [str(number) for number in range(SHOWN + 1)]
    assert codec.describe(menu[:-1]).endswith(", 198, 199")
    said = codec.describe(menu)
    assert said.startswith("Answer with one of the 201 legal actions, some of which are: 0, 10, 20, ")
    assert said.count(",") == EXAMPLES  # one between each two, and one in the sentence


def test_drawing_is_even_and_keyed_by_the_seed(codec):
    drawn = [codec.sample(seed, MENU) for seed in range(500)]
    assert drawn == [codec.sample(seed, MENU) for seed in range(500)]
    assert all(60 < drawn.count(word) < 140 for word in MENU)  # 100 expected, standard deviation 9


def test_without_a_menu_any_text_of_the_space_will_do(codec):
    assert codec.legal() is None and codec.describe() == ""
    for seed in range(20):
        text = codec.sample(seed)
        assert codec.parse(codec.render_action(text)) == text
    assert codec.parse("whatever ") == "whatever" and codec.parse(" as is ") == " as is "
    with pytest.raises(InvalidAction, match="no text of at most 8 characters"):
        codec.parse("123456789")
    with pytest.raises(ValueError, match="'123456789' is not in MenuSpace"):
        codec.render_action("123456789")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ((), "leaves no legal action"),
        ([1, 0], "holds something that is no text of the space"),
        (["123456789"], "holds something that is no text of the space"),
        (["a", "b", "a"], "names an action twice"),
        ("ab", "is no list or tuple of the texts"),
        ({"a": 1}, "is no list or tuple of the texts"),
    ],
)
def test_a_mask_that_is_no_menu_is_the_environments_fault(codec, mask, message):
    for ask in (codec.legal, codec.describe, lambda mask: codec.parse("a", mask), lambda mask: codec.sample(0, mask)):
        with pytest.raises(EnvError, match=message):
            ask(mask)


def test_the_space_samples_from_a_menu_as_pettingzoos_tests_do():
    space = MenuSpace(4, seed=3)
    assert {space.sample(("a", "b")) for _ in range(30)} == {"a", "b"}
    assert space.sample() in space
    with pytest.raises(ValueError, match="the menu is empty"):
        space.sample(())
    with pytest.raises(ValueError, match="takes a mask, no probability"):
        space.sample(probability=[1.0])
    assert space == MenuSpace(4) != MenuSpace(5) and space != TextSpace(4)
