"""What environments return, checked where coordinators read it."""

import asyncio

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


class OldStep(SlowEnv):
    """Returns Gym's four values."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


def test_a_step_of_the_old_kind_fails_the_episode_and_says_what_to_return(seated):
    episode = play(seated(OldStep(0), {"agent": "go"}), Solo())
    assert episode.status is EpisodeStatus.FAILED
    assert "returned 4 values from step; return a tuple of 5 (observation, reward, terminated, truncated" in episode.error
