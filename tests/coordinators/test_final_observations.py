"""E2: whatever an environment does with its observation after the last step, the episode keeps what the agent saw."""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo.utils.conversions import parallel_to_aec

from opentinker.coordinators import Simultaneous, Solo, Turns, play_episode
from opentinker.envs import TextParallelEnv
from opentinker.types import EpisodeStatus


class Counting(gymnasium.Env):
    """Counts its steps in one buffer that it never replaces; the third step is the last."""

    def __init__(self, truncates: bool = True) -> None:
        self.observation_space = Box(0, 9, (2,), np.int64)
        self.action_space = Discrete(2)
        self.truncates = truncates
        self.buffer = np.zeros(2, np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.buffer[:] = (0, self.buffer[1] + 1)  # steps, episodes
        return self.buffer, {}

    def step(self, action):
        self.buffer[0] += 1
        over = self.buffer[0] == 3
        return self.buffer, 1.0, bool(over and not self.truncates), bool(over and self.truncates), {}


class CountingTogether(TextParallelEnv):
    """Two agents at once, and one dict of observations that is cleared and filled again at every step."""

    metadata = {"name": "counting_v0"}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, Counting().observation_space)
        self.action_spaces = dict.fromkeys(self.possible_agents, Discrete(2))
        self.render_mode = None
        self.own = {agent: Counting() for agent in self.possible_agents}
        self.answers: dict[str, Any] = {}

    def reset(self, seed=None, options=None):
        self.begin(seed)
        self.answers.clear()
        self.answers.update({agent: env.reset()[0] for agent, env in self.own.items()})
        return self.answers, {agent: {} for agent in self.agents}

    def step(self, actions):
        stepped = {agent: self.own[agent].step(action) for agent, action in actions.items()}
        self.answers.clear()
        self.answers.update({agent: step[0] for agent, step in stepped.items()})
        over = {agent: step[3] for agent, step in stepped.items()}
        self.agents = [agent for agent in self.agents if not over[agent]]
        calm = dict.fromkeys(over, False)
        return self.answers, dict.fromkeys(over, 1.0), calm, over, {agent: {} for agent in over}


def text_of(ids: tuple[int, ...]) -> str:
    return "".join(map(chr, ids))  # how a `FunctionSeat` writes its final prompt


def two_episodes(seated, env, coordinator, agents, isolation):
    """What the agents saw in two episodes of one object, and what they would have seen next."""
    found = []

    async def main():
        handle = seated(env, {}, isolation).env
        for _ in range(2):
            at = seated(handle, {agent: "0" for agent in agents})
            episode = await play_episode(coordinator, handle, at.table)
            assert episode.status is EpisodeStatus.TRUNCATED, episode.error
            prompts = {agent: text_of(ids) for agent, ids in episode.final_prompts.items()}
            found.append(({agent: at.seats[agent].seen for agent in agents}, prompts, dict(episode.rewards)))
        await handle.close()

    asyncio.run(main())
    return found


@pytest.mark.parametrize("isolation", ["inline", "thread"])
@pytest.mark.parametrize("wrapped", [Counting, lambda: gymnasium.wrappers.Autoreset(Counting())])
def test_e2_a_final_observation_outlives_autoreset_and_a_reused_buffer(seated, wrapped, isolation):
    first, second = two_episodes(seated, wrapped(), Solo(), ["agent"], isolation)
    assert first == ({"agent": ["[0, 1]", "[1, 1]", "[2, 1]"]}, {"agent": "[3, 1]"}, {"agent": 3.0})
    # nothing was played between the episodes: the wrapper's own reset is used up by ours
    assert second == ({"agent": ["[0, 2]", "[1, 2]", "[2, 2]"]}, {"agent": "[3, 2]"}, {"agent": 3.0})


class ResetsAtOnce(gymnasium.Wrapper):
    """Begins the next episode in the step that ends one, as vector environments do; the info has the last observation."""

    name = "final_obs"

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {self.name: observation.copy()}
            observation, _ = self.env.reset()
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_e2_a_wrapper_that_resets_at_once_keeps_the_final_observation_in_its_info(seated, monkeypatch, name):
    monkeypatch.setattr(ResetsAtOnce, "name", name)
    first, second = two_episodes(seated, ResetsAtOnce(Counting()), Solo(), ["agent"], "inline")
    assert first == ({"agent": ["[0, 1]", "[1, 1]", "[2, 1]"]}, {"agent": "[3, 1]"}, {"agent": 3.0})
    # the wrapper's own reset between the two counted one that nobody played
    assert second == ({"agent": ["[0, 3]", "[1, 3]", "[2, 3]"]}, {"agent": "[3, 3]"}, {"agent": 3.0})


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_e2_final_observations_of_a_parallel_world_outlive_reused_buffers(seated, isolation):
    first, second = two_episodes(seated, CountingTogether(), Simultaneous(), ["a", "b"], isolation)
    for episode, (seen, prompts, rewards) in enumerate((first, second), start=1):
        for agent in "ab":
            assert seen[agent] == [f"[{step}, {episode}]" for step in range(3)]
            assert prompts[agent] == f"[3, {episode}]" and rewards[agent] == 3.0


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_e2_final_observations_outlive_reused_buffers_where_players_take_turns(seated, isolation):
    first, second = two_episodes(seated, parallel_to_aec(CountingTogether()), Turns(), ["a", "b"], isolation)
    for episode, (seen, prompts, _) in enumerate((first, second), start=1):
        for agent in "ab":
            assert seen[agent] == [f"[{step}, {episode}]" for step in range(3)]
            assert prompts[agent] == f"[3, {episode}]"
