"""Units that an author gives to numbers."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, OneOf, Sequence, Text, Tuple

from opentinker.envs.codec import TextCodec
from opentinker.envs.text import TextSpace
from opentinker.errors import ConfigError, InvalidAction


class TestUnits:
    def test_a_box_has_one_for_all_or_one_for_each(self):
        space = Box(-1, 1, (2, 2))
        seen = np.array([[0.5, 0], [1, -1]], np.float32)
        assert TextCodec(space, Discrete(2), observation_units="m").render(seen) == "[[0.5 m, 0 m], [1 m, -1 m]]"
        units = ["m", None, "", "m/s"]
        assert TextCodec(space, Discrete(2), observation_units=units).render(seen) == "[[0.5 m, 0], [1, -1 m/s]]"

    def test_they_follow_the_shape_of_the_space(self):
        by = Tuple([Discrete(9), Text(3), Sequence(Discrete(9))])
        space = Dict({"at": Box(0, 9, (2,), np.int8), "by": by, "n": OneOf([Discrete(2)])})
        seen = {"at": np.array([1, 2], np.int8), "by": (3, "no", (4, 5)), "n": (0, 1)}
        units = {"at": ["m", "s"], "by": ["kg", None, "N"], "n": ["V"]}
        assert TextCodec(space, Discrete(2), observation_units=units).render(seen) == (
            '{at: [1 m, 2 s], by: (3 kg, "no", [4 N, 5 N]), n: 0: 1 V}'
        )
        assert TextCodec(space, Discrete(2), observation_units="m").render(seen).count(" m") == 6

    def test_actions_are_told_with_them_and_read_with_them_or_without(self):
        codec = TextCodec(None, Box(-2, 2, (2,)), render=str, action_units=["N m", "m"])
        bounds = "at least [-2 N m, -2 m] and at most [2 N m, 2 m]"
        assert codec.describe() == f"Answer with 2 numbers, {bounds}, separated by commas."
        for reply in ("1.5, -1", "1.5 N m, -1 m", "[1.5N m, -1m]", "(1.5 N m;-1)"):
            assert codec.parse(reply).tolist() == [1.5, -1]
        for reply in ("1.5 kg, -1", "m, m", "1.5 N m m, 1"):
            with pytest.raises(InvalidAction):
                codec.parse(reply)
        assert codec.render_action(np.array([1.5, -1], np.float32)) == "1.5, -1"

    @pytest.mark.parametrize(
        ("space", "how"),
        [
            (Discrete(3), "Answer with one of: 0, 1, 2 (cards)."),
            (Discrete(99), "Answer with a whole number from 0 to 98 cards."),
            (Discrete(10**6), "Answer with a whole number from 0 to 999999 cards."),
        ],
    )
    def test_whole_numbers(self, space, how):
        codec = TextCodec(None, space, render=str, action_units="cards")
        assert codec.describe() == how
        assert codec.parse("2 cards") == codec.parse("2") == 2 and codec.render_action(2) == "2"
        with pytest.raises(InvalidAction):
            codec.parse("cards")
        assert TextCodec(space, Discrete(2), observation_units="cards").render(2) == "2 cards"

    def test_inside_others(self):
        space = Dict({"go": Discrete(3), "by": Box(0, 1, ())})
        codec = TextCodec(None, space, render=str, action_units={"by": "m"})
        assert codec.describe().endswith("{by: <1 number from 0 to 1 m>, go: <0|1|2>}")
        assert codec.parse("{go: 1, by: 0.5 m}") == codec.parse("{go: 1, by: 0.5}")

    @pytest.mark.parametrize(
        ("space", "units"),
        [
            (Box(0, 1, (2,)), ["m"]),
            (Box(0, 1, (2,)), [1, 2]),
            (Box(0, 1, (2,)), {"a": "m"}),
            (Discrete(2), ["m", "s"]),
            (Tuple([Discrete(2)]), ["m", "s"]),
            (Dict({"a": Discrete(2)}), {"b": "m"}),
            (Dict({"a": Discrete(2)}), ["m"]),
            (Text(3), "m"),
            (TextSpace(), "m"),
        ],
        ids=repr,
    )
    def test_what_fits_nothing_is_refused(self, space, units):
        with pytest.raises(ConfigError, match="units .* do not fit"):
            TextCodec(space, Discrete(2), observation_units=units)
        with pytest.raises(ConfigError, match="units .* do not fit"):
            TextCodec(None, space, render=str, action_units=units)

    def test_they_are_no_part_of_an_author_s_own_words(self):
        with pytest.raises(ConfigError, match="`render` replaces"):
            TextCodec(Discrete(2), Discrete(2), render=str, observation_units="m")
        with pytest.raises(ConfigError, match="`parse` replaces"):
            TextCodec(Discrete(2), Discrete(2), parse=int, action_units="m")
        with pytest.raises(ConfigError, match="leave out action_units 'm'"):
            TextCodec(Discrete(2), Discrete(2), action_names=["a", "b"], action_units="m")
