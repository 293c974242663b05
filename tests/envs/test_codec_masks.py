"""Action masks of each kind of space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple

from opentinker.envs.codec import TextCodec
from opentinker.envs.text import TextSpace
from opentinker.errors import EnvError, InvalidAction


def nested(space: Space[Any]) -> TextCodec:
    return TextCodec(space, space)


class TestMasks:
    """Their structure is that of Gymnasium's `Space.sample(mask)`."""

    def legal(self, space: Space[Any], mask: Any, texts: list[str], wrong: list[str]) -> None:
        codec = nested(space)
        for text in texts:
            assert codec.render_action(codec.parse(text, mask)) == codec.render_action(codec.parse(text))
        for text in wrong:
            codec.parse(text)  # an action, but not now
            with pytest.raises(InvalidAction, match="now|not legal|are needed"):
                codec.parse(text, mask)
        drawn = {codec.render_action(codec.sample(seed, mask)) for seed in range(40)}
        for text in drawn:
            assert codec.render_action(codec.parse(text, mask)) == text
        assert drawn >= set(texts[:2])
        assert codec.describe(mask) != codec.describe() and codec.legal(mask) is None

    def test_multi_discrete(self):
        space = MultiDiscrete([2, 3], start=[5, 0])
        mask = (np.array([0, 1], np.int8), np.array([1, 0, 1], np.int8))
        self.legal(space, mask, ["6, 0", "6, 2"], ["5, 0", "6, 1"])
        assert space.sample(mask=mask)[0] == 6  # Gymnasium's own reading
        assert "number by number: 6; 0 2" in nested(space).describe(mask)
        with pytest.raises(InvalidAction, match="number 2 may not be 1 now"):
            nested(space).parse("6, 1", mask)

    def test_multi_discrete_of_more_axes(self):
        mask = ((np.array([0, 1], np.int8), [1, 1, 0]),)
        self.legal(MultiDiscrete([[2, 3]]), mask, ["[[1, 0]]", "[[1, 1]]"], ["[[0, 0]]", "[[1, 2]]"])

    def test_multi_binary(self):
        space, mask = MultiBinary(3), np.array([0, 2, 1], np.int8)
        self.legal(space, mask, ["0, 0, 1", "0, 1, 1"], ["1, 0, 1", "0, 1, 0"])
        assert space.sample(mask=mask)[[0, 2]].tolist() == [0, 1]
        assert "of this form: 0 ? 1" in nested(space).describe(mask)

    def test_text(self):
        space = Text(3, min_length=0, charset="abc")
        assert nested(space).parse("ca", (2, np.array([1, 0, 1], np.int8))) == "ca"
        assert nested(space).parse("abc", (None, None)) == "abc"
        assert {nested(space).sample(seed, (2, [0, 1, 0])) for seed in range(9)} == {"bb"}
        assert nested(space).sample(1, (None, np.zeros(3, np.int8))) == ""
        for mask, reason in (((1, None), "1 are needed now"), ((None, [1, 0, 0]), "allowed now are the characters a")):
            with pytest.raises(InvalidAction, match=reason):
                nested(space).parse("ab", mask)

    def test_tuple(self):
        space = Tuple([Discrete(3), Discrete(2)])
        self.legal(space, (np.array([1, 0, 1], np.int8), None), ["(0, 0)", "(2, 1)"], ["(1, 0)"])

    def test_dict(self):
        space = Dict({"go": Discrete(3), "say": Text(2)})
        self.legal(space, {"go": [0, 1, 0], "say": None}, [], ['{go: 0, say: "a"}'])
        assert "go: <1>" in nested(space).describe({"go": [0, 1, 0], "say": None})

    def test_sequence(self):
        space = Sequence(Discrete(3))
        self.legal(space, (np.array([1, 2]), np.array([0, 1, 1], np.int8)), ["[1]", "[2]"], ["[0]", "[]", "[1, 1, 1]"])
        self.legal(space, (2, None), [], ["[1]"])
        assert nested(space).parse("[0, 1, 2]", (None, None)) == (0, 1, 2)

    def test_a_sequence_of_what_is_not_legal_is_empty(self):
        space, nothing = nested(Sequence(Discrete(3))), np.zeros(3, np.int8)
        assert space.sample(5, (None, nothing)) == space.parse("[]", (None, nothing)) == ()
        with pytest.raises(InvalidAction, match="no items are legal now"):
            space.parse("[1]", (None, nothing))
        with pytest.raises(EnvError, match="leaves no legal action"):
            space.legal((2, nothing))

    def test_one_of(self):
        space = OneOf([Discrete(2), Discrete(3), Discrete(2)])
        self.legal(space, (None, [0, 0, 0], [1, 0]), ["0: 1", "2: 0"], ["1: 0", "2: 1"])
        with pytest.raises(InvalidAction, match="there is no part 1 now; legal: 0, 2"):
            nested(space).parse("1: 0", (None, [0, 0, 0], [1, 0]))

    def test_deep_inside(self):
        space = Dict({"all": Tuple([OneOf([MultiBinary(2), Sequence(Discrete(3))]), Discrete(2)])})
        mask = {"all": ((np.array([1, 2], np.int8), (2, [0, 0, 1])), [1, 0])}
        wrong = ["{all: (0: [0, 0], 0)}", "{all: (1: [2, 1], 0)}", "{all: (1: [2], 0)}", "{all: (1: [2, 2], 1)}"]
        self.legal(space, mask, ["{all: (0: [1, 0], 0)}", "{all: (1: [2, 2], 0)}"], wrong)

    @pytest.mark.parametrize(
        ("space", "wrong"),
        [
            (MultiDiscrete([2, 3]), [1, 1, 1, 1, 1]),
            (MultiDiscrete([2, 3]), ([1, 1], [0, 0, 0])),
            (MultiDiscrete([2, 3]), ([1, 1], [1, 1])),
            (MultiDiscrete([2, 3]), np.ones(2)),
            (MultiBinary(2), [1, 3]),
            (MultiBinary(2), [[1], [1, 2]]),
            (MultiBinary(2), [1]),
            (MultiBinary(2), "no"),
            (Box(0, 1, (2,)), np.ones(2)),
            (TextSpace(9), [1]),
            (Text(9), [1]),
            (Text(9), (10, None)),
            (Text(9), (True, None)),
            (Text(9, charset="ab"), (None, [1])),
            (Text(9, charset="ab"), (3, [0, 0])),
            (Tuple([Discrete(2)]), {"a": 1}),
            (Tuple([Discrete(2)]), ([1],)),
            (Dict({"a": Discrete(2)}), {"b": None}),
            (Dict({"a": Box(0, 1, ())}), {"a": [1]}),
            (Sequence(Discrete(2)), 3),
            (Sequence(Discrete(2)), (-1, None)),
            (Sequence(Discrete(2)), ("no", None)),
            (Sequence(Discrete(2)), (np.array([]), None)),
            (Sequence(Discrete(2)), (np.array(3), [1])),
            (OneOf([Discrete(2)]), ([1, 1], [1, 1])),
            (OneOf([Discrete(2), Discrete(2)]), ([0, 0], [0, 0])),
        ],
        ids=repr,
    )
    def test_a_mask_that_fits_nothing_is_the_environment_s_fault(self, space, wrong):
        codec = nested(space)
        with pytest.raises(EnvError, match="the action mask .*given: "):
            codec.legal(wrong)
        with pytest.raises(EnvError, match="the action mask .*given: "):
            codec.sample(1, wrong)

    def test_they_hold_for_an_author_s_own_words_too(self):
        codec = TextCodec(None, MultiBinary(2), render=str, parse=lambda text: np.array([int(bit) for bit in text], np.int8))
        mask = np.array([1, 2], np.int8)
        assert codec.parse("10", mask).tolist() == [1, 0] and codec.sample(3, mask)[0] == 1
        with pytest.raises(InvalidAction, match="not legal now"):
            codec.parse("01", mask)
        with pytest.raises(EnvError, match="mask"):
            codec.legal([1])


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (MultiDiscrete([2, 2]), ([0, 0], [0, 0])),
        (MultiDiscrete([2, 2]), ([1, 0], None)),
        (MultiBinary(3), [1, 0, 3]),
        (OneOf([Discrete(2), Discrete(2)]), [1, 0]),
        (OneOf([Discrete(2), Discrete(2)]), ([0, 0], [0, 0])),
    ],
    ids=repr,
)
@pytest.mark.parametrize("reply", ["0", "no", ""])
def test_a_faulty_mask_is_never_blamed_on_the_reply(space, mask, reply):
    with pytest.raises(EnvError, match="the action mask"):
        TextCodec(space, space).parse(reply, mask)
