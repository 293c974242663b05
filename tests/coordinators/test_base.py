"""What environments return, checked where coordinators read it."""

import asyncio

import numpy as np
import pytest

from opentinker.coordinators import Simultaneous, Solo, Turns, play_episode
from opentinker.coordinators.base import strangers, unpack
from opentinker.envs.handle import EnvHandle
from opentinker.errors import EnvError
from opentinker.testing import BirthsEnv, OffTurnDeathEnv, SlowEnv
from opentinker.types import EpisodeStatus


def play(at, coordinator):
    return asyncio.run(play_episode(coordinator, at.env, at.table))


@pytest.mark.parametrize(
    ("given", "n", "said"),
    [
        ("text", 2, "returned a str from reset; return a tuple of 2 (observation, info)"),
        ((1,), 2, "returned 1 values from reset"),
        (None, 5, "returned a NoneType from reset"),
        ((1, 2, 3, 4), 5, "a tuple of 5 (observation, reward, terminated, truncated, info)"),
    ],
)
def test_what_has_not_the_right_number_of_values_is_refused_in_words(given, n, said):
    env = EnvHandle.wrap(SlowEnv(0), isolation="inline")
    with pytest.raises(EnvError) as fault:
        unpack(given, n, "reset", env)
    assert said in str(fault.value) and "'SlowEnv'" in str(fault.value)
    assert unpack([1, 2], 2, "reset", env) == [1, 2]


def test_agents_that_were_not_announced_are_refused_unless_nobody_was():
    env = EnvHandle.wrap(BirthsEnv(), isolation="inline")
    with pytest.raises(
        EnvError, match=r"'BirthsEnv' named the agent 'ghost', which is none of its possible_agents: \['a'\]"
    ):
        strangers({"a"}, ["a", "ghost"], env)
    strangers({"a"}, ["a"], env)
    strangers((), ["ghost"], env)


class Ghosts(BirthsEnv):
    """Pays somebody who is not there."""

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, {**rewards, "ghost": 1.0}, *rest


class GhostTurn(OffTurnDeathEnv):
    """Selects somebody who is not there."""

    def last(self, observe=True):
        self.agent_selection = "ghost"
        return "?", 0.0, False, False, {}


def test_a_stranger_fails_the_episode_and_gets_no_seat(seated):
    at = seated(Ghosts(most=1), {"worker_0": "work"})
    episode = play(at, Simultaneous())
    assert episode.status is EpisodeStatus.FAILED and "named the agent 'ghost'" in episode.error
    assert list(episode.roles) == ["worker_0"]
    at = seated(GhostTurn(2), {"player_0": "wait", "player_1": "wait"})
    episode = play(at, Turns())
    assert episode.status is EpisodeStatus.FAILED and "named the agent 'ghost'" in episode.error
    assert list(episode.roles) == ["player_0", "player_1"]


class Answering(SlowEnv):
    """Puts one thing of its own into the answer of its first step."""

    def __init__(self, place, thing):
        super().__init__(0, steps=3)
        self.place, self.thing = place, thing

    def step(self, action):
        answer = list(super().step(action))
        answer[self.place] = self.thing
        return tuple(answer)


class AnsweringAll(BirthsEnv):
    """The same for all agents; the thing as it is, where `whole`."""

    def __init__(self, place, thing, whole=False):
        super().__init__(most=1)
        self.place, self.thing, self.whole = place, thing, whole

    def step(self, actions):
        answer = list(super().step(actions))
        answer[self.place] = self.thing if self.whole else dict.fromkeys(actions, self.thing)
        return tuple(answer)


class AnsweringInTurns(OffTurnDeathEnv):
    """The same in what `last` says."""

    def __init__(self, place, thing):
        super().__init__(2)
        self.place, self.thing = place, thing

    def last(self, observe=True):
        answer = list(super().last(observe))
        answer[self.place] = self.thing
        return tuple(answer)


GAMES = {
    "solo": (Solo, Answering, {"agent": "go"}),
    "simultaneous": (Simultaneous, AnsweringAll, {"worker_0": "work"}),
    "turns": (Turns, AnsweringInTurns, {"player_0": "wait", "player_1": "wait"}),
}


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(
    ("place", "thing", "said"),
    [
        (1, 10**400, "the reward 1000"),
        (1, 10**5000, "the reward a int (its __repr__ raised ValueError); give a finite number"),
        (1, "1.0", "the reward '1.0'; give a finite number"),
        (2, "no", "as terminated 'no'; give True or False"),
        (2, None, "as terminated None; give True or False"),
        (3, "no", "as truncated 'no'; give True or False"),
        (4, ["a list"], "gave a list as info: ['a list']; give a dict"),
    ],
    ids=["large", "larger", "text", "terminated", "none", "truncated", "info"],
)
def test_an_answer_that_is_none_fails_the_episode_and_names_world_and_value(seated, game, place, thing, said):
    coordinator, env, answers = GAMES[game]
    at = seated(env(place, thing), answers)
    episode = play(at, coordinator())
    assert episode.status is EpisodeStatus.FAILED
    assert "EnvError: " in episode.error and f"'{env.__name__}'" in episode.error and said in episode.error


@pytest.mark.parametrize("game", GAMES)
def test_flags_of_numpy_and_numbers_are_flags(seated, game):
    coordinator, env, answers = GAMES[game]
    for yes in (np.bool_(True), 1, np.array(True)):
        episode = play(seated(env(2, yes), answers), coordinator())
        assert (episode.status, len(episode.turns)) == (EpisodeStatus.TERMINATED, 0 if game == "turns" else 1)


@pytest.mark.parametrize("place", range(5))
def test_a_parallel_answer_that_is_not_by_agent_is_refused_in_words(seated, place):
    at = seated(AnsweringAll(place, ["a list"], whole=True), {"worker_0": "work"})
    episode = play(at, Simultaneous())
    assert episode.status is EpisodeStatus.FAILED
    assert "returned a list among its 5 values from step: ['a list']; each must be a dict by agent" in episode.error


class OldStep(SlowEnv):
    """Returns Gym's four values."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


def test_a_step_of_the_old_kind_fails_the_episode_and_says_what_to_return(seated):
    episode = play(seated(OldStep(0), {"agent": "go"}), Solo())
    assert episode.status is EpisodeStatus.FAILED
    assert "returned 4 values from step; return a tuple of 5 (observation, reward, terminated, truncated" in episode.error
