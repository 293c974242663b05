"""PettingZoo's conversions and the usual wrappers, its own and SuperSuit's, in front of what is played."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from pettingzoo.utils import (
    AssertOutOfBoundsWrapper,
    BaseParallelWrapper,
    BaseWrapper,
    OrderEnforcingWrapper,
    aec_to_parallel,
    parallel_to_aec,
    turn_based_aec_to_parallel,
)
from pettingzoo.utils.wrappers import MultiEpisodeEnv, MultiEpisodeParallelEnv

from opentinker.coordinators import Turns
from opentinker.envs import make_env
from opentinker.errors import EnvError
from opentinker.testing import LifecycleAEC, LifecycleParallel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library's own making
    import supersuit

SEEDS = range(10)


class NoStillborn(BaseParallelWrapper):
    """Says nothing of agents that are born and dead in one step: PettingZoo's conversion fails on those that never acted."""

    def step(self, actions):
        before = set(self.env.agents)
        answer = super().step(actions)
        told = {agent for agent in answer[0] if agent in before or agent in self.env.agents}
        return tuple({agent: value for agent, value in part.items() if agent in told} for part in answer)


class TimeLimit(BaseWrapper):
    """Truncates everybody alive after so many actions."""

    def __init__(self, env, most):
        super().__init__(env)
        self.most = most

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.count = 0

    def step(self, action):
        self.count += action is not None
        super().step(action)
        if action is not None and self.count >= self.most:
            inner = self.env.unwrapped
            inner.truncations.update({agent: True for agent in self.agents if not self.terminations[agent]})


class ParallelTimeLimit(BaseParallelWrapper):
    """Truncates everybody alive after so many steps."""

    def __init__(self, env, most):
        super().__init__(env)
        self.most = most

    def reset(self, seed=None, options=None):
        self.count = 0
        return super().reset(seed, options)

    def step(self, actions):
        self.count += 1
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if self.count >= self.most:
            truncated = {agent: truncated[agent] or not terminated[agent] for agent in truncated}
            self.env.unwrapped.agents = []
        return observations, rewards, terminated, truncated, infos


class Backwards(BaseParallelWrapper):
    """Names the agents in the other order, in everything it says."""

    @property
    def agents(self):
        return self.env.agents[::-1]

    @property
    def possible_agents(self):
        return self.env.possible_agents[::-1]

    def reset(self, seed=None, options=None):
        return tuple(dict(reversed(part.items())) for part in super().reset(seed, options))

    def step(self, actions):
        return tuple(dict(reversed(part.items())) for part in super().step(actions))


def numbers(**kwargs):
    return LifecycleParallel(numbers=True, **kwargs)


def throws(**kwargs):
    return make_env("pettingzoo/classic/rps_v2", max_cycles=6, **kwargs)


FRONTS = {
    "parallel as aec": lambda: parallel_to_aec(NoStillborn(LifecycleParallel())),
    "parallel as aec, unannounced": lambda: parallel_to_aec(NoStillborn(LifecycleParallel(announced=False))),
    "parallel as aec, numbers": lambda: parallel_to_aec(NoStillborn(numbers())),
    "parallel as aec and back": lambda: aec_to_parallel(parallel_to_aec(LifecycleParallel())),
    "matrix game as aec": lambda: parallel_to_aec(make_env("matrix_game", rounds=4)),
    "aec as parallel": lambda: aec_to_parallel(throws()),
    "aec as parallel and back": lambda: parallel_to_aec(aec_to_parallel(throws())),
    "order enforced": lambda: OrderEnforcingWrapper(LifecycleAEC()),
    "bounds and order": lambda: OrderEnforcingWrapper(AssertOutOfBoundsWrapper(LifecycleAEC(announced=False))),
    "kuhn poker in order": lambda: OrderEnforcingWrapper(AssertOutOfBoundsWrapper(make_env("kuhn_poker"))),
    "time limit in turns": lambda: TimeLimit(LifecycleAEC(deads_first=False, cycles=20), 5),
    "time limit at once": lambda: ParallelTimeLimit(LifecycleParallel(cycles=20), 3),
    "time limit at once, as aec": lambda: parallel_to_aec(NoStillborn(ParallelTimeLimit(LifecycleParallel(cycles=20), 3))),
    "order of agents": lambda: Backwards(LifecycleParallel()),
    "order of agents, as aec": lambda: parallel_to_aec(Backwards(NoStillborn(LifecycleParallel()))),
    "several games at once": lambda: MultiEpisodeParallelEnv(make_env("matrix_game", rounds=2), 3),
    "in turn, as parallel": lambda: turn_based_aec_to_parallel(make_env("kuhn_poker")),
    "black death": lambda: supersuit.black_death_v3(numbers(first=4, most=4)),
    "black death in turns": lambda: parallel_to_aec(supersuit.black_death_v3(numbers(first=4, most=4))),
    "frame skip": lambda: supersuit.frame_skip_v0(make_env("mpe/simple_v3", api="parallel", max_cycles=6), 2),
    "clipped rewards": lambda: supersuit.clip_reward_v0(NoStillborn(LifecycleParallel()), -0.1, 0.1),
    "clipped rewards in turns": lambda: supersuit.clip_reward_v0(LifecycleAEC(), -0.1, 0.1),
    "agent indicator": lambda: supersuit.agent_indicator_v0(NoStillborn(numbers())),
    "stacked frames": lambda: supersuit.frame_stack_v1(numbers(), 2),
    "padded": lambda: supersuit.pad_action_space_v0(supersuit.pad_observations_v0(NoStillborn(numbers()))),
}


@pytest.mark.parametrize("front", FRONTS)
def test_what_stands_in_front_is_played_as_a_raw_loop_plays_it(arena, front):
    handle = arena.wrap(FRONTS[front]())
    for seed in SEEDS:
        arena.same(arena.through(handle, seed).episode, arena.raw(FRONTS[front](), seed))


def test_black_death_keeps_asking_the_dead_and_pays_them_nothing(arena):
    handle = arena.wrap(FRONTS["black death"]())
    asked_when_dead = 0
    for seed in SEEDS:
        episode = arena.through(handle, seed).episode
        turns = [turn for turn in episode.turns if turn.observation == "[0, 0, 0, 0]"]
        asked_when_dead += len(turns)
        assert not any(turn.reward for turn in turns)
    assert asked_when_dead > 10


def test_a_wrapper_that_does_not_take_texts_says_so(arena):
    handle = arena.wrap(supersuit.black_death_v3(LifecycleParallel()))
    with pytest.raises(EnvError, match="raised in reset: AssertionError: .*must be Box spaces"):
        asyncio.run(handle.reset(0))


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_c2_what_a_converted_world_has_shown_is_not_paid_again_when_a_player_leaves(arena, isolation):
    # parallel_to_aec leaves the last step's rewards where they are until the next step of the world
    handle = arena.wrap(parallel_to_aec(make_env("matrix_game", rounds=3)), isolation=isolation)
    episode = arena.scripted(handle, {"player_0": ["rock", "rock"], "player_1": ["scissors"]})
    assert episode.outcome["forfeit"] == "player_1"
    assert [(turn.agent, turn.action, turn.reward) for turn in episode.turns] == [
        ("player_0", "rock", 1.0),
        ("player_1", "scissors", -1.0),
        ("player_0", "rock", 0.0),
        ("player_1", None, 0.0),
    ]
    assert episode.rewards == {"player_0": 1.0, "player_1": -1.0}


@pytest.mark.parametrize(("most", "paid"), [(1, (0.0, 0.0)), (2, (1.0, -1.0)), (3, (1.0, -1.0)), (4, (2.0, -2.0))])
def test_c2_what_a_converted_world_has_shown_is_not_paid_again_at_a_cap(arena, most, paid):
    handle = arena.wrap(parallel_to_aec(make_env("matrix_game", rounds=9)))
    replies = {"player_0": ["rock"] * 9, "player_1": ["scissors"] * 9}
    episode = arena.scripted(handle, replies, Turns(max_turns=most))
    assert episode.outcome == {"max_turns": most}
    assert tuple(episode.rewards.values()) == paid
    assert sum(turn.reward for turn in episode.turns if turn.agent == "player_0") == paid[0]


def test_c2_a_world_that_names_nobody_and_ends_without_last_turns_pays_all_the_same(arena):
    class Vanishing(LifecycleAEC):
        """Whoever is left when the time is over is gone without a last turn."""

        def step(self, action):
            super().step(action)
            if self.cycle >= self.cycles:
                self.agents = []

    for announced in (True, False):
        handle = arena.wrap(Vanishing(announced=announced))
        for seed in SEEDS:
            env, paid = Vanishing(announced=announced), {}
            chance = arena.through(handle, seed).episode
            env.reset(seed)
            for turn in chance.turns:
                while env.terminations[env.agent_selection] or env.truncations[env.agent_selection]:
                    env.step(None)
                env.step(turn.action)
                for agent, reward in env.rewards.items():
                    paid[agent] = paid.get(agent, 0.0) + reward
            assert {agent: reward for agent, reward in chance.rewards.items() if reward} == {
                agent: reward for agent, reward in paid.items() if reward
            }


def test_agents_that_come_back_from_the_dead_are_refused(arena):
    handle = arena.wrap(MultiEpisodeEnv(make_env("kuhn_poker"), 2))
    chooser = {"player_0": ["p", "p"], "player_1": ["p"]}
    with pytest.raises(AssertionError, match="brought 'player_0' back to life.*until the next reset"):
        arena.scripted(handle, chooser)
