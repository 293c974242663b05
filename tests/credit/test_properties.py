"""What holds for any rewards, any order and any number of turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opentinker.credit import make_credit
from opentinker.types import Group

ALL = ["dr_grpo", "grpo", "rae", "reinforce", "state_baseline"]
REWARD = st.integers(-40, 40).map(lambda n: n / 4)
PLAN = st.lists(  # groups of episodes: (swapped seats, rewards of the agents, turns of the agents)
    st.lists(
        st.tuples(st.booleans(), st.tuples(REWARD, REWARD), st.tuples(st.integers(1, 3), st.integers(0, 2))),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


def played(build, plan, change=lambda reward: reward):
    """Episodes of two agents and two roles; the reward comes with an agent's last turn."""
    groups = []
    for g, episodes in enumerate(plan):
        members = []
        for m, (swapped, rewards, lengths) in enumerate(episodes):
            turns = []
            for agent, reward, length in zip(("p0", "p1"), rewards, lengths, strict=True):
                role = {"p0": "x", "p1": "y"}[agent] if not swapped else {"p0": "y", "p1": "x"}[agent]
                turns += [
                    build.turn(agent, role=role, index=i, prompt_ids=(i,), reward=change(reward) if i == length - 1 else 0.0)
                    for i in range(length)
                ]
            members.append(
                build.episode(f"{g}/{m}", turns, {"p0": change(rewards[0]), "p1": change(rewards[1])}, env=f"env{g % 2}")
            )
        groups.append(Group(f"task{g % 2}", tuple(members)))
    return groups


def with_turns(groups, change):
    """The same episodes with each turn replaced by several."""

    def changed(episode):
        return replace(episode, turns=tuple(new for turn in episode.turns for new in change(turn)))

    return [Group(group.task, tuple(map(changed, group.episodes))) for group in groups]


def close(one, other, scale=1.0, **tolerance):
    assert one.keys() == other.keys()
    for id, values in one.items():
        assert [scale * value for value in values] == pytest.approx(list(other[id]), **tolerance)


@pytest.mark.parametrize("id", ALL)
@given(plan=PLAN, data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_groups_and_members_changes_no_bit(build, id, plan, data):
    groups = played(build, plan, lambda reward: reward / 7)  # sums that round
    shuffled = [
        Group(group.task, tuple(data.draw(st.permutations(group.episodes)))) for group in data.draw(st.permutations(groups))
    ]
    assert make_credit(id)(shuffled, {}) == make_credit(id)(groups, {})


@pytest.mark.parametrize("id", ["dr_grpo", "grpo", "rae", "state_baseline"])
@given(plan=PLAN, shift=REWARD)
@settings(max_examples=40, deadline=None)
def test_a_constant_added_to_all_rewards_changes_nothing(build, id, plan, shift):
    before = make_credit(id)(played(build, plan), {})
    after = make_credit(id)(played(build, plan, lambda reward: reward + shift), {})
    close(before.advantages, after.advantages, abs=1e-9)
    assert before.warnings == after.warnings


@pytest.mark.parametrize(("id", "power"), [("dr_grpo", 1), ("grpo", 0), ("rae", 1), ("reinforce", 1), ("state_baseline", 1)])
@given(plan=PLAN, scale=st.sampled_from([0.125, 3.0, 1000.0]))
@settings(max_examples=40, deadline=None)
def test_rewards_times_a_constant_scale_advantages_but_not_grpos(build, id, power, plan, scale):
    before = make_credit(id)(played(build, plan), {})
    after = make_credit(id)(played(build, plan, lambda reward: reward * scale), {})
    close(before.advantages, after.advantages, scale=scale**power, abs=1e-4 if id == "grpo" else 1e-9 * scale)
    assert before.warnings == after.warnings


@pytest.mark.parametrize("id", ["dr_grpo", "grpo", "rae", "reinforce"])
@given(plan=PLAN, copies=st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_more_turns_for_the_same_episode_change_no_advantage(build, id, plan, copies):
    groups = played(build, plan)
    longer = with_turns(groups, lambda turn: [turn] * copies)
    before, after = make_credit(id)(groups, {}), make_credit(id)(longer, {})
    repeated = {e: tuple(value for value in values for _ in range(copies)) for e, values in before.advantages.items()}
    assert after.advantages == repeated
    assert after.warnings == before.warnings
    assert after.state == before.state


@given(plan=PLAN, gamma=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=40, deadline=None)
def test_more_attempts_at_the_same_decision_change_no_state_baseline(build, plan, gamma):
    groups = played(build, plan)
    retried = with_turns(groups, lambda turn: [replace(turn, reward=0.0, valid=False), replace(turn, attempt=1)])
    credit = make_credit("state_baseline", gamma=gamma)
    before, after = credit(groups, {}), credit(retried, {})
    doubled = {id: tuple(value for value in values for _ in range(2)) for id, values in before.advantages.items()}
    assert after.advantages == doubled
    assert after.warnings == before.warnings


@pytest.mark.parametrize("id", ["dr_grpo", "state_baseline"])
@given(plan=PLAN)
@settings(max_examples=40, deadline=None)
def test_advantages_of_a_pool_sum_to_zero(build, id, plan):
    """Once per agent and episode for dr_grpo, once per decision for state_baseline."""
    groups = played(build, plan)
    result = make_credit(id, **({"baseline": "batch"} if id == "dr_grpo" else {}))(groups, {})
    by_state = id == "state_baseline"
    total: dict[object, float] = {}
    for group in groups:
        for episode in group.episodes:
            once = {}
            for turn, value in zip(episode.turns, result.advantages[episode.id], strict=True):
                pool = (turn.role, turn.prompt_ids) if by_state else (turn.role, group.task)
                once[turn.agent, turn.index if by_state else 0] = pool, value
            for pool, value in once.values():
                total[pool] = total.get(pool, 0.0) + value
    assert list(total.values()) == pytest.approx([0.0] * len(total), abs=1e-9)
