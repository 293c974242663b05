import math
from types import MappingProxyType

import numpy as np
import pytest

from opentinker.answers import flag, info_of, reward_number
from opentinker.errors import EnvError


@pytest.mark.parametrize("yes", [True, 1, 1.0, np.bool_(True), np.int64(1), np.array(True), np.array(1.0)])
def test_what_says_true_or_false_is_taken_as_a_plain_truth_value(yes):
    assert flag(yes, "terminated", "ann", "game") is True
    assert flag(0 * yes if not isinstance(yes, np.bool_) else np.bool_(False), "terminated", "ann", "game") is False


@pytest.mark.parametrize(
    "given", ["no", "", None, 2, -1, math.nan, [], [True], np.array([True]), np.array("no"), np.array(None), b"1", object()]
)
def test_what_says_neither_is_no_flag_whatever_its_truth_value(given):
    with pytest.raises(EnvError, match=r"'game' gave ann as truncated .*; give True or False"):
        flag(given, "truncated", "ann", "game")


def test_rewards_are_numbers():
    class Odd:
        def __float__(self):
            raise RuntimeError

    assert [reward_number(given) for given in (1.5, 2, True, np.float32(0.5), np.array(3))] == [1.5, 2.0, 1.0, 0.5, 3.0]
    assert type(reward_number(np.float64(1))) is float
    for given in ("1.5", b"1", None, [1.0], 10**400, Odd(), {}):
        assert math.isnan(reward_number(given))


def test_an_info_is_a_mapping_or_nothing():
    assert info_of(None, "game") == {}
    assert info_of({"a": 1}, "game") == info_of(MappingProxyType({"a": 1}), "game") == {"a": 1}
    for given in ([], ["action_mask"], "text", 0):
        with pytest.raises(EnvError, match=f"'game' gave a {type(given).__name__} as info: .*; give a dict"):
            info_of(given, "game")
