from __future__ import annotations

import json
from dataclasses import replace

import pytest

from opentinker.credit import make_credit
from opentinker.types import Group


def test_by_hand_over_two_calls(build):
    """Decay 1/2.

    Returns 1 and 3 move a mean that has no past to 2, with weight 1 - 1/4. Then 4: the past keeps 3/4 * 1/2 = 3/8, the new
    return has 1/2, so the mean is (3/8 * 2 + 1/2 * 4) / (7/8) = 22/7.
    """
    credit = make_credit("rae", decay=0.5)
    first = credit(build.solo([1.0, 3.0]), {})
    assert first.advantages == {"0/0": (-1.0,), "0/1": (1.0,)}
    assert first.state == {"game": {"a": {"mean": 2.0, "weight": 0.75}}}
    second = credit(build.solo([4.0]), first.state)
    assert second.advantages == {"0/0": (pytest.approx(4 - 22 / 7),)}
    assert second.state["game"]["a"]["weight"] == 0.875


def test_equal_returns_at_once_or_one_by_one_move_the_mean_alike(build):
    credit = make_credit("rae", decay=0.9)
    start = {"game": {"a": {"mean": 1.0, "weight": 0.5}}}
    together = credit(build.solo([5.0, 5.0, 5.0]), start).state
    state = start
    for _ in range(3):
        state = credit(build.solo([5.0]), state).state
    assert together["game"]["a"] == pytest.approx(state["game"]["a"])


def test_without_memory_it_is_dr_grpo_over_the_batch(build):
    groups = build.duels((1, -1), (2, 4), (-3, 3))
    batch = make_credit("dr_grpo", baseline="batch")(groups, {})
    assert make_credit("rae", decay=0.0)(groups, {}).advantages == batch.advantages


def test_c1_and_c5_each_role_has_its_own_mean(build):
    result = make_credit("rae", decay=0.0)(build.duels((1, -1), (1, -1), (-1, 1)), {})
    assert result.state["game"]["p0"]["mean"] == pytest.approx(1 / 3)
    assert result.state["game"]["p1"]["mean"] == pytest.approx(-1 / 3)
    swapped = [build.turn("p0", role="p1"), build.turn("p1", role="p0")]
    other = make_credit("rae", decay=0.0)([Group("duel", (build.episode("0", swapped, {"p0": -1.0, "p1": 1.0}),))], {})
    assert {role: entry["mean"] for role, entry in other.state["game"].items()} == {"p0": 1.0, "p1": -1.0}


def test_c3_equal_rewards_give_zeros_and_a_counted_warning(build):
    credit = make_credit("rae")
    result = credit(build.solo([0.1] * 3), {})
    assert set(result.advantages.values()) == {(0.0,)}
    assert result.warnings == {"zero_variance": 1}
    again = credit(build.solo([0.1] * 3), result.state)
    assert set(again.advantages.values()) == {(0.0,)}
    assert again.warnings == {"zero_variance": 1}


def test_a_first_game_alone_is_counted_and_later_ones_are_compared_with_it(build):
    credit = make_credit("rae", decay=0.5)
    first = credit(build.solo([3.0]), {})
    assert first.advantages == {"0/0": (0.0,)}
    assert first.warnings == {"group_of_one": 1}
    # the past keeps 1/2 * 1/2, the new return has 1/2: mean (1/4 * 3 + 1/2 * 6) / (3/4) = 5
    second = credit(build.solo([6.0]), first.state)
    assert second.advantages == {"0/0": (1.0,)}
    assert second.warnings == {}


def test_environments_and_absent_roles_keep_their_means(build):
    credit = make_credit("rae")
    state = credit(build.duels((1, -1), (3, 5)), {}).state
    group = build.solo([7.0, 9.0])[0]
    other = Group("task", tuple(replace(episode, env="elsewhere") for episode in group.episodes))
    after = credit([other], state).state
    assert after["game"] == state["game"]
    assert after["elsewhere"]["a"]["mean"] == pytest.approx(8.0)


def test_p4_state_survives_json_bit_for_bit_and_is_not_changed_in_place(build):
    credit = make_credit("rae")
    state = credit(build.duels((1 / 3, -1 / 7), (0.1, 0.7)), {}).state
    text = json.dumps(state)
    groups = build.duels((2.0, 1.0), (0.0, 0.5))
    assert credit(groups, json.loads(text)) == credit(groups, state)
    assert json.dumps(state) == text
