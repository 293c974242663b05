"""Vector environments: each sub-environment is an agent that plays one episode, in every mode of autoreset."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from opentinker.coordinators import Simultaneous, Solo, Table, play_episode
from opentinker.envs import EnvHandle, TextEnv, TextSpace, check_env, make_env, open_env
from opentinker.envs.adapters.vector import SubEnvironments, info_of_one
from opentinker.errors import ConfigError, EnvError
from opentinker.testing import FunctionSeat
from opentinker.types import EpisodeStatus

MODES = ["NextStep", "SameStep", "Disabled"]


class Walk(gymnasium.Env):
    """Counts to a number drawn at reset, in one buffer that it never replaces; odd numbers truncate."""

    def __init__(self, masked: bool = False) -> None:
        self.observation_space = Box(0, 99, (3,), np.int64)
        self.action_space = Discrete(3)
        self.masked = masked
        self.buffer = np.zeros(3, np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.buffer[:] = (0, self.np_random.integers(2, 9), self.np_random.integers(99))  # steps, end, a name
        return self.buffer, self.info()

    def info(self):
        allowed = np.arange(3) != self.buffer[0] % 3
        return {"action_mask": allowed.astype(np.int8), "at": {"step": int(self.buffer[0])}} if self.masked else {}

    def step(self, action):
        assert not self.masked or action != self.buffer[0] % 3
        assert self.buffer[0] < self.buffer[1], "stepped after its end"
        self.buffer[0] += 1
        over, odd = bool(self.buffer[0] == self.buffer[1]), bool(self.buffer[1] % 2)
        return self.buffer, float(action + self.buffer[0] / 4), over and not odd, over and odd, self.info()


def vector(mode: str, *, masked: bool = False, copies: bool = True, count: int = 4) -> SyncVectorEnv:
    return SyncVectorEnv([functools.partial(Walk, masked)] * count, copy=copies, autoreset_mode=mode)


def last_legal(observation, space, mask):
    """An answer that depends on what is read and on the mask."""
    legal = space.legal(mask)
    return space.render_action(legal[len(observation) % len(legal)])


def play(env: Any, coordinator: Any, agents: list[str], seed: int = 11, episodes: int = 1, isolation: Any = "inline"):
    """Episodes of one object, and what each agent saw in them."""
    found = []

    async def main():
        world = env if isinstance(env, EnvHandle) else EnvHandle.wrap(env, isolation=isolation)
        for number in range(episodes):
            seats = {agent: FunctionSeat(agent, last_legal, policy="learner", trainable=True) for agent in agents}
            table = Table(world, seats.__getitem__, episode_id="1/0/0", seed=seed + 100 * number)
            episode = await play_episode(coordinator, world, table)
            assert episode.status is not EpisodeStatus.FAILED, episode.error
            found.append((episode, {agent: seat.seen for agent, seat in seats.items()}))
        await world.close()

    asyncio.run(main())
    return found


def story(episode: Any, seen: dict[str, list[str]], agent: str) -> tuple[Any, ...]:
    """All that one agent's episode consists of."""
    turns = [(turn.action, turn.reward, turn.n_legal) for turn in episode.turns if turn.agent == agent]
    return seen[agent], turns, episode.rewards[agent], "".join(map(chr, episode.final_prompts.get(agent, ())))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("copies", [True, False], ids=["copied", "reused buffers"])
def test_e2_each_plays_as_it_would_alone_and_keeps_its_last_observation(mode, masked, copies):
    agents = [f"env_{index}" for index in range(4)]
    env = vector(mode, masked=masked, copies=copies)
    for number, (episode, seen) in enumerate(play(env, Simultaneous(), agents, episodes=3)):
        lengths = set()
        for index, agent in enumerate(agents):
            ((alone, alone_seen),) = play(Walk(masked), Solo(), ["agent"], seed=11 + 100 * number + index)
            told = story(episode, seen, agent)
            assert told == story(alone, alone_seen, "agent")
            lengths.add(len(told[0]))
        assert len(lengths) > 1  # some ended while others went on


@pytest.mark.parametrize("mode", MODES)
def test_e2_what_it_showed_stays_as_it_was(mode):
    env = SubEnvironments(vector(mode, copies=False))
    held = [env.reset(seed=1)[0]]
    while env.agents:
        held.append(env.step(dict.fromkeys(env.agents, 0))[0])
    for step, observations in enumerate(held):
        assert {int(row[0]) for row in observations.values()} == {step}


@pytest.mark.parametrize("mode", MODES)
def test_c7_what_a_truncated_one_would_have_seen_next_is_kept_and_nothing_of_a_terminated_one(mode):
    agents = [f"env_{index}" for index in range(8)]
    ((episode, seen),) = play(vector(mode, copies=False, count=8), Simultaneous(), agents)
    kinds = set()
    for agent, read in seen.items():
        _, end, name = map(int, read[0][1:-1].split(", "))
        kinds.add(end % 2)
        prompt = "".join(map(chr, episode.final_prompts.get(agent, ())))
        assert prompt == (f"[{end}, {end}, {name}]" if end % 2 else "")
    assert kinds == {0, 1}


@pytest.mark.parametrize("mode", MODES)
def test_e3_one_seed_is_one_episode(mode):
    agents = ["env_0", "env_1", "env_2", "env_3"]
    first, second = (play(vector(mode), Simultaneous(), agents, seed=5)[0] for _ in range(2))
    assert [story(*first, agent) for agent in agents] == [story(*second, agent) for agent in agents]
    env = SubEnvironments(vector(mode))
    firsts = [{agent: row.tolist() for agent, row in env.reset(seed=4)[0].items()} for _ in range(6)]
    assert all(one == firsts[0] for one in firsts)
    assert firsts[0]["env_1"] == Walk().reset(seed=5)[0].tolist()  # Gymnasium's own seeds: one more for each


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_e2_in_processes_of_their_own_too(mode):
    kwargs = {"vectorization_mode": "async", "vector_kwargs": {"autoreset_mode": mode}, "max_episode_steps": 6}
    world = open_env("gymnasium/MountainCar-v0", {"num_envs": 2, **kwargs}, isolation="inline")
    ((episode, seen),) = play(world, Simultaneous(), ["env_0", "env_1"])
    for index, agent in enumerate(("env_0", "env_1")):
        one = open_env("gymnasium/MountainCar-v0", {"max_episode_steps": 6}, isolation="inline")
        ((alone, alone_seen),) = play(one, Solo(), ["agent"], seed=11 + index)
        assert story(episode, seen, agent) == story(alone, alone_seen, "agent")


def test_an_own_vector_class_of_the_library_s():
    world = open_env("gymnasium/CartPole-v1", {"num_envs": 3}, isolation="inline")
    agents = ["env_0", "env_1", "env_2"]
    ((episode, _),) = play(world, Simultaneous(), agents)
    assert episode.status is EpisodeStatus.TERMINATED and set(episode.rewards) == set(agents)
    for agent in agents:
        turns = [turn for turn in episode.turns if turn.agent == agent]
        assert episode.rewards[agent] == len(turns) > 5  # a point for each step that the pole stands


@pytest.mark.parametrize("mode", MODES)
def test_the_ecosystem_s_test_and_the_checker_find_nothing(mode):
    assert check_env(f"{__name__}:vector", kwargs={"mode": mode}) == []  # which calls PettingZoo's parallel_api_test too
    assert check_env(vector(mode)) == []
    kwargs = {"num_envs": 2, "vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    for name in ("Taxi-v4", "MountainCarContinuous-v0", "Blackjack-v1"):
        assert check_env(f"gymnasium/{name}", kwargs=kwargs, max_steps=60) == []


class Words(TextEnv):
    """Speaks, and ends after two steps."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = TextSpace(20), TextSpace(choices=("on", "off"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.name = 0, int(self.np_random.integers(99))
        return f"begin {self.name}", {}

    def step(self, action):
        self.steps += 1
        return f"{action} {self.steps} {self.name}", 1.0, False, self.steps == 2, {}


class Mixed(Words):
    """Shows a dict of texts and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Dict({"say": Text(20, charset="abcdefghijklmnopqrstuvwxyz 0123456789"), "n": Discrete(9)})

    def reset(self, *, seed=None, options=None):
        text, info = super().reset(seed=seed)
        return {"say": text, "n": 0}, info

    def step(self, action):
        text, *rest = super().step(action)
        return {"say": text, "n": self.steps}, *rest


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", [Words, Mixed])
def test_texts_and_what_holds_them(mode, world):
    env = SyncVectorEnv([world] * 2, autoreset_mode=mode)
    ((episode, seen),) = play(env, Simultaneous(), ["env_0", "env_1"])
    for index, agent in enumerate(("env_0", "env_1")):
        ((alone, alone_seen),) = play(world(), Solo(), ["agent"], seed=11 + index)
        assert story(episode, seen, agent) == story(alone, alone_seen, "agent")


def test_infos_are_given_to_whom_they_belong():
    infos = {
        "score": np.array([1.0, 0.0]),
        "_score": np.array([True, False]),
        "at": {"step": np.array([3, 4]), "_step": np.array([True, True])},
        "_at": np.array([True, True]),
        "bare": np.array([[1, 0], [0, 1]]),
    }
    one, other = info_of_one(infos, 0), info_of_one(infos, 1)
    assert one["score"] == 1.0 and one["at"] == {"step": 3} and one["bare"].tolist() == [1, 0]
    assert set(other) == {"at", "bare"} and other["at"] == {"step": 4}


def test_one_that_does_not_say_its_mode_is_refused_with_the_cure():
    env = vector("NextStep")
    env.metadata = {}
    modes = "NextStep, SameStep, Disabled"
    with pytest.raises(ConfigError, match=rf"metadata\['autoreset_mode'\] is None; set it to one of {modes}"):
        EnvHandle.wrap(env, isolation="inline")


def test_one_that_loses_its_last_observation_is_told():
    class Forgetful(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            *rest, _ = self.env.step(actions)
            return *rest, {}

    env = SubEnvironments(Forgetful(vector("SameStep", count=1)))
    env.reset(seed=1)
    with pytest.raises(EnvError, match="ended sub-environment 0 and kept no 'final_obs'"):
        for _ in range(9):
            env.step({"env_0": 0})


def test_wrappers_in_front_count():
    agents = [f"env_{index}" for index in range(4)]
    env = gymnasium.wrappers.vector.TransformReward(vector("SameStep"), lambda rewards: rewards * 10)
    ((plain, _),), ((wrapped, _),) = (play(one, Simultaneous(), agents) for one in (vector("SameStep"), env))
    assert wrapped.rewards == {agent: 10 * reward for agent, reward in plain.rewards.items()}


def test_a_vector_environment_made_by_an_author_s_function_is_brought_by_its_path():
    world = open_env(f"{__name__}:vector", {"mode": "Disabled", "count": 2}, isolation="inline")
    assert world.kind == "parallel" and world.possible_agents == ("env_0", "env_1")
    assert make_env("gymnasium/Taxi-v4", num_envs=2).possible_agents == ["env_0", "env_1"]


def test_async_ones_are_closed_with_their_handle():
    env = AsyncVectorEnv([Walk] * 2)
    world = EnvHandle.wrap(env)
    asyncio.run(world.close())
    assert env.closed


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2"])
def test_a_number_of_environments_that_is_none_is_refused(count):
    with pytest.raises(ConfigError, match="num_envs must be a whole number from 1 on"):
        make_env("gymnasium/FrozenLake-v1", num_envs=count)
