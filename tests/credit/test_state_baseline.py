from __future__ import annotations

import pytest

from opentinker.credit import make_credit
from opentinker.types import Group

START, MIDDLE, END = (1,), (2,), (3,)


def walk(build, id, *steps, agent="a"):
    """An episode of one agent: (prompt, reward) per turn."""
    turns = [build.turn(agent, prompt_ids=prompt, reward=reward, index=i) for i, (prompt, reward) in enumerate(steps)]
    return build.episode(id, turns, {agent: sum(reward for _, reward in steps)})


def credit_of(build, *episodes, **settings):
    return make_credit("state_baseline", **settings)([Group("task", (episode,)) for episode in episodes], {})


def test_by_hand(build):
    """START: returns to go 1 + 2 = 3 and 5; MIDDLE: 2 and 6."""
    result = credit_of(
        build, walk(build, "x", (START, 1.0), (MIDDLE, 2.0)), walk(build, "y", (START, 5.0)), walk(build, "z", (MIDDLE, 6.0))
    )
    assert result.advantages == {"x": (-1.0, -2.0), "y": (1.0,), "z": (2.0,)}
    assert result.warnings == {}


def test_gamma_discounts_per_decision(build):
    """gamma 1/2: x returns 0 + 1/2 * 8 = 4 from START, y returns 2; mean 3."""
    result = credit_of(build, walk(build, "x", (START, 0.0), (MIDDLE, 8.0)), walk(build, "y", (START, 2.0)), gamma=0.5)
    assert result.advantages == {"x": (1.0, 0.0), "y": (-1.0,)}


def test_attempts_of_one_decision_share_its_return_and_count_once(build):
    """x answers START twice (an invalid reply, then 4), y gets 0: mean 2, not 8/3; no discount between attempts."""
    turns = [
        build.turn(prompt_ids=START, valid=False),
        build.turn(prompt_ids=START, attempt=1, reward=0.0),
        build.turn(prompt_ids=MIDDLE, index=1, reward=8.0),
    ]
    result = credit_of(build, build.episode("x", turns, {"a": 8.0}), walk(build, "y", (START, 0.0)), gamma=0.5)
    assert result.advantages == {"x": (2.0, 2.0, 0.0), "y": (-2.0,)}


def test_c3_equal_returns_give_zeros_and_a_counted_warning(build):
    result = credit_of(build, *[walk(build, f"{i}", (START, 0.1)) for i in range(3)])
    assert set(result.advantages.values()) == {(0.0,)}
    assert result.warnings == {"zero_variance": 1}


def test_a_state_seen_once_has_nothing_to_be_compared_with(build):
    result = credit_of(build, walk(build, "x", (START, 0.0), (END, 1.0)), walk(build, "y", (START, 0.0)))
    assert result.advantages == {"x": (0.5, 0.0), "y": (-0.5,)}
    assert result.warnings == {"state_of_one": 1}


def test_c6_neither_long_nor_short_episodes_are_preferred(build):
    """All end with 1 after one, two or three turns from START: nobody did better, so all advantages are zero."""
    result = credit_of(
        build,
        walk(build, "1", (START, 1.0)),
        walk(build, "2", (START, 0.0), (MIDDLE, 1.0)),
        walk(build, "3", (START, 0.0), (MIDDLE, 0.0), (END, 1.0)),
    )
    assert {value for values in result.advantages.values() for value in values} == {0.0}


def test_c6_no_division_by_the_spread_of_whole_returns(build):
    """A long episode's return of 100 elsewhere leaves the differences at START as they are: 2 - 1 and 0 - 1."""
    small = credit_of(build, walk(build, "x", (START, 2.0)), walk(build, "y", (START, 0.0)))
    large = credit_of(
        build, walk(build, "x", (START, 2.0)), walk(build, "y", (START, 0.0)), walk(build, "z", (MIDDLE, 50.0), (END, 50.0))
    )
    assert small.advantages == {"x": (1.0,), "y": (-1.0,)}
    assert large.advantages == {**small.advantages, "z": (0.0, 0.0)}


def test_a_loop_sums_to_zero_in_its_state(build):
    """x comes back to START twice and then wins, y loses at once; gamma 1/2: returns 1/4, 1/2, 1 and 0, mean 7/16."""
    loop = walk(build, "x", (START, 0.0), (START, 0.0), (START, 1.0))
    result = credit_of(build, loop, walk(build, "y", (START, 0.0)), gamma=0.5)
    assert result.advantages == {"x": (-3 / 16, 1 / 16, 9 / 16), "y": (-7 / 16,)}


@pytest.mark.parametrize("apart", [{"role": "other"}, {"policy": "other"}])
def test_equal_prompts_of_other_roles_or_policies_are_other_states(build, apart):
    same = build.episode("x", [build.turn(prompt_ids=START, reward=1.0)], {"a": 1.0})
    other = build.episode("y", [build.turn(prompt_ids=START, reward=3.0, **apart)], {"a": 3.0})
    result = credit_of(build, same, other)
    assert result.advantages == {"x": (0.0,), "y": (0.0,)}
    assert result.warnings == {"state_of_one": 2}


def test_rewards_after_a_frozen_turn_still_belong_to_the_return(build):
    """The second decision is not trained, its reward follows from the first all the same."""
    turns = [build.turn(prompt_ids=START), build.turn(prompt_ids=MIDDLE, index=1, reward=4.0, trainable=False)]
    result = credit_of(build, build.episode("x", turns, {"a": 4.0}), walk(build, "y", (START, 0.0)))
    assert result.advantages == {"x": (2.0, 0.0), "y": (-2.0,)}
