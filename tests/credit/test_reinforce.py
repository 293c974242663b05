from __future__ import annotations

from opentinker.credit import make_credit
from opentinker.types import Group


def test_every_turn_gets_the_return_of_its_agent(build):
    """Return 3 = 1 + 2 on both turns of `a`, -4 on the turn of `b`."""
    turns = [build.turn("a", reward=1.0), build.turn("b", reward=-4.0), build.turn("a", index=1, reward=2.0)]
    groups = [Group("task", (build.episode("0", turns, {"a": 3.0, "b": -4.0}),))]
    result = make_credit("reinforce")(groups, {})
    assert result.advantages == {"0": (3.0, -4.0, 3.0)}
    assert result.warnings == {}


def test_c1_each_player_of_a_zero_sum_game_has_its_own_return(build):
    assert make_credit("reinforce")(build.duels((1.0, -1.0)), {}).advantages == {"0/0": (1.0, -1.0)}
