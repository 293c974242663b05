"""Episodes through coordinators, and the same ones through raw loops of the library, by players who draw alike."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from pettingzoo import AECEnv

from opentinker.coordinators import Simultaneous, Table, Turns, play_episode
from opentinker.envs import EnvHandle, TextCodec, open_env
from opentinker.testing import FunctionSeat


class Chooser:
    """What everybody does: a function of the seed, the agent's name and how often it was asked."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: Counter[str] = Counter()

    def choose(self, agent: str, space: Any, mask: Any) -> Any:
        """A legal action of the space."""
        self.asked[agent] += 1
        rng = random.Random(f"{self.seed} {agent} {self.asked[agent]}")
        if isinstance(space, Box):
            bounds = zip(space.low, space.high, strict=True)
            return np.array([round(rng.uniform(low, high), 3) for low, high in bounds], space.dtype)
        actions = getattr(space, "choices", None) or range(int(space.start), int(space.start + space.n))
        return rng.choice([action for place, action in enumerate(actions) if mask is None or mask[place]])


def written(action: Any) -> str:
    """An action in the words of a player: not the codec's."""
    return " ".join(f"{number:.3f}" for number in action) if isinstance(action, np.ndarray) else str(action)


@dataclass
class Told:
    """What a raw loop met."""

    turns: list[list[Any]] = field(default_factory=list)
    """[agent, observation as text, action as text, reward] of every decision, in order."""
    rewards: dict[str, float] = field(default_factory=dict)
    ends: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """(terminated, truncated) by agent."""

    def decide(self, agent: str, text: str, action: Any) -> None:
        self.turns.append([agent, text, written(action), 0.0])

    def pay(self, agent: str, reward: Any) -> None:
        """To the agent's latest decision, before its first one to the episode alone."""
        self.rewards[agent] = self.rewards.get(agent, 0.0) + float(reward)
        for turn in reversed(self.turns):
            if turn[0] == agent:
                turn[3] += float(reward)
                return


def _seen(env: Any, agent: Any, observation: Any, info: dict[str, Any]) -> tuple[str, Any]:
    codec = TextCodec(env.observation_space(agent), env.action_space(agent))
    seen, mask = codec.split(observation, info)
    return codec.render(seen), mask


def raw(env: Any, seed: int, most: int | None = None) -> Told:
    """An episode by the library's own loop; `most`: cut after so many decisions (steps, of agents at once)."""
    return (_raw_aec if isinstance(env, AECEnv) else _raw_parallel)(env, seed, most)


def _raw_aec(env: Any, seed: int, most: int | None) -> Told:
    told, chooser, given = Told(), Chooser(seed), Counter[str]()
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        name, action = str(agent), None
        told.pay(name, reward)
        if terminated or truncated:
            told.ends[name] = bool(terminated), bool(truncated)
        elif len(told.turns) == most:
            for other in given:  # what nobody was shown
                told.pay(other, given[other] - told.rewards.get(other, 0.0))
            break
        else:
            text, mask = _seen(env, agent, observation, info)
            action = chooser.choose(name, env.action_space(agent), mask)
            told.decide(name, text, action)
        env.step(action)
        for other, reward in env.rewards.items():
            given[str(other)] += reward
    return told


def _raw_parallel(env: Any, seed: int, most: int | None) -> Told:
    told, chooser = Told(), Chooser(seed)
    observations, infos = env.reset(seed=seed)
    for _ in itertools.count() if most is None else range(most):
        if not env.agents:
            break
        actions = {}
        for agent in [agent for agent in observations if agent in env.agents]:
            text, mask = _seen(env, agent, observations[agent], infos[agent])
            actions[agent] = chooser.choose(str(agent), env.action_space(agent), mask)
            told.decide(str(agent), text, actions[agent])
        observations, rewards, terminated, truncated, infos = env.step(actions)
        for agent, reward in rewards.items():
            told.pay(str(agent), reward)
            if terminated[agent] or truncated[agent]:
                told.ends[str(agent)] = bool(terminated[agent]), bool(truncated[agent])
    return told


def through(handle: EnvHandle, seed: int, coordinator: Any = None) -> Any:
    """A whole episode by a coordinator, with a text player in every seat; and the seats, by agent."""
    chooser, seats = Chooser(seed), {}

    def seat(agent: str) -> FunctionSeat:
        def answer(observation: str, space: Any, mask: Any) -> str:
            return written(chooser.choose(agent, space.action_space, mask))

        seats[agent] = FunctionSeat(agent, answer, policy="learner", trainable=True)
        return seats[agent]

    if coordinator is None:
        coordinator = Turns() if handle.kind == "aec" else Simultaneous()
    table = Table(handle, seat, episode_id="1/0/0", seed=seed)
    episode = asyncio.run(play_episode(coordinator, handle, table))
    assert not episode.error, episode.error
    return SimpleNamespace(episode=episode, seats=seats)


def scripted(handle: EnvHandle, replies: dict[str, list[str]], coordinator: Any = None) -> Any:
    """An episode in which everybody says what is written down; who has nothing left forfeits."""

    def seat(agent: str) -> FunctionSeat:
        left = list(replies[agent])
        return FunctionSeat(agent, lambda *asked: left.pop(0) if left else "?", policy="learner", trainable=True)

    if coordinator is None:
        coordinator = Turns() if handle.kind == "aec" else Simultaneous()
    table = Table(handle, seat, episode_id="1/0/0", seed=7)
    episode = asyncio.run(play_episode(coordinator, handle, table))
    assert not episode.error, episode.error
    return episode


def rows(episode: Any) -> list[list[Any]]:
    """What `Told.turns` holds, of a record."""
    return [[turn.agent, turn.observation, written(turn.action), turn.reward] for turn in episode.turns]


def same(episode: Any, told: Told) -> None:
    """The record is what the raw loop met: the same decisions on the same texts, each paid once, the same ends."""
    assert rows(episode) == told.turns
    assert {agent: reward for agent, reward in episode.rewards.items() if agent in told.rewards} == told.rewards
    assert not any(reward for agent, reward in episode.rewards.items() if agent not in told.rewards)  # the never born
    assert all(turn.action is not None and turn.valid for turn in episode.turns)
    cut = any(truncated and not terminated for terminated, truncated in told.ends.values())
    assert episode.status.value == ("truncated" if cut else "terminated")


class Arena:
    """The above, for tests."""

    raw, rows, same = staticmethod(raw), staticmethod(rows), staticmethod(same)
    through, scripted = staticmethod(through), staticmethod(scripted)

    @staticmethod
    def wrap(env: Any, **settings: Any) -> EnvHandle:
        return EnvHandle.wrap(env, **{"isolation": "inline", **settings})

    @staticmethod
    def open(id: str, kwargs: dict[str, Any], isolation: Any = "inline") -> EnvHandle:
        return open_env(id, kwargs, isolation=isolation)


@pytest.fixture(scope="session")
def arena() -> type[Arena]:
    return Arena
