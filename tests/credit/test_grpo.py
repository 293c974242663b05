from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from opentinker.credit import make_credit
from opentinker.types import EpisodeStatus, Group


def flat(result):
    return [value for values in result.advantages.values() for value in values]


def test_by_hand(build):
    """Rewards 1, 2, 6: mean 3, deviations -2, -1, 3, sample variance (4 + 1 + 9) / 2 = 7."""
    groups = build.solo([1.0, 2.0, 6.0])
    assert flat(make_credit("dr_grpo")(groups, {})) == [-2.0, -1.0, 3.0]
    spread = math.sqrt(7) + 0.5
    expected = [-2 / spread, -1 / spread, 3 / spread]
    assert flat(make_credit("grpo", epsilon=0.5)(groups, {})) == pytest.approx(expected, rel=1e-15)


GROUPS = st.lists(st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=2, max_size=6), min_size=1, max_size=5)


@pytest.mark.parametrize(("id", "by_std"), [("grpo", True), ("dr_grpo", False)])
@given(rewards=GROUPS)
@settings(max_examples=60, deadline=None)
def test_agrees_with_verl_on_single_turns(build, id, by_std, rewards):
    ours = flat(make_credit(id, baseline="group")(build.solo(*rewards), {}))
    scores = torch.tensor([reward for group in rewards for reward in group], dtype=torch.float64)[:, None]
    index = np.array([str(g) for g, group in enumerate(rewards) for _ in group], dtype=object)
    theirs, _ = compute_grpo_outcome_advantage(scores, torch.ones_like(scores), index, norm_adv_by_std_in_grpo=by_std)
    assert ours == pytest.approx(theirs[:, 0].tolist(), abs=1e-9, rel=1e-9)


def test_a_group_of_one_is_silent_in_verl_and_counted_here(build):
    theirs, _ = compute_grpo_outcome_advantage(torch.tensor([[7.0]]), torch.ones(1, 1), np.array(["0"], dtype=object))
    assert theirs.item() == pytest.approx(7.0, abs=1e-4)
    result = make_credit("grpo", baseline="group")(build.solo([7.0], [1.0, 2.0]), {})
    assert result.advantages["0/0"] == (0.0,)
    assert result.warnings == {"group_of_one": 1}


def test_c1_each_player_of_a_zero_sum_game_is_compared_with_its_own_role(build):
    """player_0 won 1, 1, -1 (mean 1/3), player_1 lost as much; a common mean would be 0."""
    result = make_credit("dr_grpo")(build.duels((1, -1), (1, -1), (-1, 1)), {})
    expected = {"0/0": (2 / 3, -2 / 3), "1/0": (2 / 3, -2 / 3), "2/0": (-4 / 3, 4 / 3)}
    assert {id: pytest.approx(values) for id, values in expected.items()} == result.advantages


@pytest.mark.parametrize("id", ["grpo", "dr_grpo"])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1e-30, 1e6 / 3])
@pytest.mark.parametrize("size", [2, 3, 7, 10])
def test_c3_equal_rewards_give_exact_zeros_and_a_counted_warning(build, id, reward, size):
    result = make_credit(id)(build.solo([reward] * size, [reward] * size), {})
    assert flat(result) == [0.0] * (2 * size)
    assert result.warnings == {"zero_variance": 2}


def test_c3_rewards_that_differ_by_rounding_are_equal(build):
    result = make_credit("grpo", epsilon=1e-30)(build.solo([0.3, 0.1 + 0.2]), {})
    assert flat(result) == [0.0, 0.0]
    assert result.warnings == {"zero_variance": 1}


def test_c4_each_role_has_its_own_scale(build):
    """p1's rewards are p0's times 1000: equal advantages; and p0's do not move with p1's scale."""
    one = make_credit("grpo", epsilon=1e-12)(build.duels((1, 1000), (2, 2000), (6, 6000)), {}).advantages
    other = make_credit("grpo", epsilon=1e-12)(build.duels((1, 1), (2, 2), (6, 6)), {}).advantages
    for id, (first, second) in one.items():
        assert first == pytest.approx(second, rel=1e-9)
        assert first == other[id][0]


def test_c5_the_baseline_follows_the_role_not_the_seat(build):
    """Buyers earn 0 and 2, sellers 10 and 14; the seats were swapped in the second episode.

    By role: buyers -1, +1, sellers -2, +2. By seat it would be (0, 14) and (10, 2).
    """
    first = [build.turn("p0", role="buyer"), build.turn("p1", role="seller")]
    second = [build.turn("p0", role="seller"), build.turn("p1", role="buyer")]
    episodes = build.episode("0", first, {"p0": 0.0, "p1": 10.0}), build.episode("1", second, {"p0": 14.0, "p1": 2.0})
    assert make_credit("dr_grpo")([Group("trade", episodes)], {}).advantages == {"0": (-1.0, -2.0), "1": (2.0, 1.0)}


def test_c6_an_episode_counts_once_whatever_its_length_and_all_its_turns_get_the_same(build):
    """One turn with return 1, five turns with return 0: mean 1/2, not 1/6; nothing is divided by a length."""
    long = [build.turn(index=i) for i in range(5)]
    groups = [Group("task", (build.episode("short", [build.turn()], {"a": 1.0}), build.episode("long", long, {"a": 0.0})))]
    assert make_credit("dr_grpo")(groups, {}).advantages == {"short": (0.5,), "long": (-0.5,) * 5}


def test_groups_of_one_pool_the_whole_task_by_default(build):
    groups = build.duels((1, -1), (1, -1), (-2, 2), (0, 0))
    assert make_credit("dr_grpo")(groups, {}) == make_credit("dr_grpo", baseline="batch")(groups, {})
    by_group = make_credit("dr_grpo", baseline="group")(groups, {})
    assert set(flat(by_group)) == {0.0}
    assert by_group.warnings == {"group_of_one": 8}


def test_groups_of_several_are_compared_within_by_default(build):
    groups = build.solo([0.0, 2.0], [10.0, 12.0])
    assert flat(make_credit("dr_grpo")(groups, {})) == [-1.0, 1.0, -1.0, 1.0]
    assert flat(make_credit("dr_grpo", baseline="batch")(groups, {})) == [-6.0, -4.0, 4.0, 6.0]


def test_a_group_whose_partner_failed_is_not_compared_with_other_groups(build):
    """`auto` asks how the groups were made, not what came back."""
    first, second = build.solo([0.0, 2.0], [10.0, 12.0])
    broken = [Group("task", (g.episodes[0], replace(g.episodes[1], status=EpisodeStatus.FAILED))) for g in (first, second)]
    result = make_credit("dr_grpo")(broken, {})
    assert flat(result) == [0.0, 0.0]
    assert result.warnings == {"group_of_one": 2}


def test_pooling_keeps_tasks_apart(build):
    groups = build.duels((0, 0), (2, 2)) + [
        Group("other", (build.episode(id, [build.turn("p0")], {"p0": reward}),)) for id, reward in (("x", 10.0), ("y", 14.0))
    ]
    advantages = make_credit("dr_grpo")(groups, {}).advantages
    assert advantages == {"0/0": (-1.0, -1.0), "1/0": (1.0, 1.0), "x": (-2.0,), "y": (2.0,)}


def test_agents_who_share_a_role_share_its_baseline(build):
    """Three workers with 0, 1 and 5 in one episode: mean 2."""
    turns = [build.turn(f"worker_{i}", role="worker") for i in range(3)]
    groups = [Group("job", (build.episode("0", turns, {"worker_0": 0.0, "worker_1": 1.0, "worker_2": 5.0}),))]
    assert make_credit("dr_grpo")(groups, {}).advantages == {"0": (-2.0, -1.0, 3.0)}


def test_an_agent_with_two_roles_counts_once_in_each(build):
    """`a` proposes, then judges; its return 4 is compared with proposers and with judges."""
    both = [build.turn("a", role="proposer"), build.turn("a", role="judge", index=1)]
    one = [build.turn("a", role="proposer"), build.turn("a", role="proposer", index=1)]
    groups = [Group("task", (build.episode("0", both, {"a": 4.0}), build.episode("1", one, {"a": 0.0})))]
    result = make_credit("dr_grpo")(groups, {})
    assert result.advantages == {"0": (2.0, 0.0), "1": (-2.0, -2.0)}
    assert result.warnings == {"group_of_one": 1}


def test_better_rewards_never_get_less(build):
    advantages = flat(make_credit("grpo")(build.solo([-3.0, 0.0, 0.5, 8.0]), {}))
    assert all(low < high for low, high in pairwise(advantages))
