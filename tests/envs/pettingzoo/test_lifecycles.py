"""Agents that are born and die in the middle of things, through coordinators and through raw loops."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter

import pytest
from pettingzoo.utils import parallel_to_aec

from opentinker.coordinators import Simultaneous, Turns
from opentinker.errors import ConfigError
from opentinker.testing import LifecycleAEC, LifecycleParallel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's tests import its games in a way that it is about to give up
    from pettingzoo.test.example_envs import (
        generated_agents_env_action_mask_info_v0,
        generated_agents_env_cust_agentid_v0,
        generated_agents_env_v0,
        generated_agents_parallel_cust_agentid_v0,
        generated_agents_parallel_v0,
    )

SEEDS = range(40)
AEC = [
    pytest.param({"announced": announced, "deads_first": first, "numbers": numbers}, id=f"{announced}-{first}-{numbers}")
    for announced, first, numbers in itertools.product((True, False), repeat=3)
]
PARALLEL = [
    pytest.param({"announced": announced, "numbers": numbers}, id=f"{announced}-{numbers}")
    for announced, numbers in itertools.product((True, False), repeat=2)
]


@pytest.mark.parametrize("kwargs", AEC)
def test_e1_c2_agents_in_turns_are_born_die_off_turn_and_are_paid_once(arena, kwargs):
    handle = arena.wrap(LifecycleAEC(**kwargs))  # e5: one object for all of its episodes
    for seed in SEEDS:
        arena.same(arena.through(handle, seed).episode, arena.raw(LifecycleAEC(**kwargs), seed))


@pytest.mark.parametrize("kwargs", PARALLEL)
def test_e1_c2_agents_at_once_are_born_die_and_are_paid_once(arena, kwargs):
    handle = arena.wrap(LifecycleParallel(**kwargs))
    for seed in SEEDS:
        arena.same(arena.through(handle, seed).episode, arena.raw(LifecycleParallel(**kwargs), seed))


@pytest.mark.parametrize("make", [LifecycleAEC, LifecycleParallel])
def test_the_generated_episodes_meet_what_they_are_for(arena, make):
    met: Counter[str] = Counter()
    for seed in SEEDS:
        env = make()
        told = arena.raw(env, seed)
        acted = {turn[0] for turn in told.turns}
        met["born later"] += env.born - 2
        met["born and died, and never acted"] += len(set(told.ends) - acted)
        met["paid before it acted"] += any(told.rewards[agent] for agent in set(told.ends) - acted)
        met["killed"] += any(what == "died" for what, _ in env.log)
        met["truncated alone"] += len({end for end in told.ends.values()}) > 1
        met["everybody died before time"] += env.cycle < env.cycles
    assert all(count >= 5 for count in met.values()), met


class Draws:
    """A generator whose numbers are written down beforehand."""

    def __init__(self, *numbers):
        self.left = list(numbers)

    def random(self):
        return self.left.pop(0)


class ByHand(LifecycleAEC):
    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        # drawn in a step: is a strike fatal, is one born, does one die, is there a gift; where to act, is a death a cut
        self._chance = Draws(*(0.1, 0.1, 0.9, 0.9, 0.1, 0.9), *(0.9, 0.9), *(0.9, 0.9), *(0.1, 0.9, 0.9, 0.1), *(0.9, 0.9))


def test_e1_by_hand(arena):
    handle = arena.wrap(ByHand(most=3, cycles=3))
    replies = {"worker_0": ["strike", "work"], "worker_1": [], "worker_2": ["work", "strike", "rest"]}
    episode = arena.scripted(handle, replies)
    assert [(turn.agent, turn.action, turn.reward) for turn in episode.turns] == [
        ("worker_0", "strike", 0.0),  # kills worker_1, which never acts; worker_2 is born and acts next
        ("worker_2", "work", 0.5),
        ("worker_0", "work", 0.25),  # 0.5, less what the strike against it cost
        ("worker_2", "strike", 0.0),
        ("worker_2", "rest", 0.0),
    ]
    assert episode.rewards == {"worker_0": 0.25, "worker_1": -0.25, "worker_2": 0.5}
    assert episode.status.value == "truncated" and set(episode.final_prompts) == {"worker_0", "worker_2"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "world",
    [
        generated_agents_env_v0.raw_env,
        generated_agents_env_action_mask_info_v0.raw_env,
        generated_agents_env_cust_agentid_v0.raw_env,  # its agents are named by tuples
        generated_agents_parallel_v0.raw_env,  # this one and those below never end by themselves
        generated_agents_parallel_v0.parallel_env,
        generated_agents_parallel_cust_agentid_v0.parallel_env,
    ],
    ids=lambda world: f"{world.__module__.rpartition('.')[2]}-{world.__name__}",
)
def test_pettingzoos_own_generated_environments(arena, world, seed):
    handle = arena.wrap(world())
    aec = handle.kind == "aec"
    most = 400 if aec else 40
    episode = arena.through(handle, seed, (Turns if aec else Simultaneous)(most)).episode
    told = arena.raw(world(), seed, most)
    assert episode.outcome == {"max_turns": most}
    assert arena.rows(episode)[0] == told.turns[0]
    assert len({turn.agent for turn in episode.turns}) > 5  # so many there are at the start
    # what a newborn of a new type sees is drawn from a space that nobody seeds
    assert [row[::2] + row[3:] for row in arena.rows(episode)] == [row[::2] + row[3:] for row in told.turns]
    assert episode.rewards == told.rewards


class Numbered(LifecycleParallel):
    """Its agents are numbers."""

    def __init__(self, *names, **kwargs):
        super().__init__(most=2, **kwargs)
        self.names = dict(zip(("worker_0", "worker_1"), names or (0, 1), strict=True))
        self.possible_agents = list(self.names.values())

    def reset(self, seed=None, options=None):
        answer = super().reset(seed)
        return self._renamed(answer)

    def step(self, actions):
        self.agents = [agent for agent in self.names if self.names[agent] in self.agents]
        return self._renamed(super().step({agent: actions[self.names[agent]] for agent in self.agents}))

    def _renamed(self, answer):
        self.agents = [self.names[agent] for agent in self.agents]
        return tuple({self.names[agent]: value for agent, value in part.items()} for part in answer)


@pytest.mark.parametrize("front", [Numbered, lambda: parallel_to_aec(Numbered())], ids=["at once", "in turns"])
@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_agents_that_are_numbers_are_played_by_their_names(arena, front, isolation):
    handle = arena.wrap(front(), isolation=isolation)
    assert handle.possible_agents == ("0", "1")
    for seed in range(5):
        arena.same(arena.through(handle, seed).episode, arena.raw(front(), seed))


def test_two_agents_of_one_name_are_refused(arena):
    with pytest.raises(ConfigError, match=r"not told apart by str\(agent\): \(1, '1'\)"):
        arena.wrap(Numbered(1, "1"))
