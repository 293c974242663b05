"""Gymnasium's vector environments: every sub-environment plays one episode, all of them at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped]
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from opentinker.envs.codec import TextCodec
from opentinker.errors import ConfigError, EnvError
from opentinker.seeding import derive

_FINAL = ("final_obs", "final_observation")
"""Where the last observation is kept by who resets in the same step: since Gymnasium 1.1, and before."""


class OwnObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hands out copies of observations.

    A vector environment of mode SameStep resets before anybody has read the last observation; a sub-environment that fills
    one buffer again and again would overwrite it there.
    """

    def step(self, action: Any) -> Any:
        """The environment's answer, with a copy of its observation."""
        observation, *rest = self.env.step(action)
        return copy.deepcopy(observation), *rest


class SubEnvironments(pettingzoo.ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """A vector environment as a parallel one: each sub-environment is an agent, `env_0`, `env_1`, ..., for one episode.

    An agent whose episode is over leaves with its own last observation, in each mode of autoreset. A vector environment
    steps all or none: what a sub-environment begins anew is played at random until the others are done, and nobody is told.

    Args:
        env: says in `metadata["autoreset_mode"]` which mode it has.

    Raises:
        ConfigError: it does not say.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._mode = _mode(env)
        base: Any = env.unwrapped
        if self._mode is AutoresetMode.SAME_STEP and isinstance(base, SyncVectorEnv):
            base.envs = [sub if isinstance(sub, OwnObservations) else OwnObservations(sub) for sub in base.envs]
        self._env = env
        self._space = env.single_action_space
        self.possible_agents = [f"env_{index}" for index in range(env.num_envs)]
        self._index = {agent: index for index, agent in enumerate(self.possible_agents)}
        self.agents: list[str] = []
        self.metadata = {"name": str(env), **env.metadata}
        self.render_mode = env.render_mode
        self._ended = np.zeros(env.num_envs, np.bool_)
        """What the last step ended; in mode Disabled it must be reset before the next."""
        self._masks: dict[int, Any] = {}
        """The action masks of those that play on for nobody."""
        self._seed, self._steps = 0, 0
        self._codec = TextCodec(None, self._space, render=str, parse=str)  # for masks and draws alone

    def observation_space(self, agent: str) -> Space[Any]:
        """One sub-environment's, always the same object."""
        return self._env.single_observation_space

    def action_space(self, agent: str) -> Space[Any]:
        """One sub-environment's, always the same object."""
        return self._space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Resets all. Of Gymnasium's own, sub-environment i gets the seed `seed + i`."""
        observations, infos = self._env.reset(seed=seed, options=options)
        self.agents = self.possible_agents[:]
        self._ended[:] = False
        self._masks.clear()
        self._seed, self._steps = seed or 0, 0
        rows = self._rows(observations)
        return (
            {agent: copy.deepcopy(row) for agent, row in zip(self.agents, rows, strict=True)},
            {agent: info_of_one(infos, index) for index, agent in enumerate(self.agents)},
        )

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """One step of all. Returns PettingZoo's five dicts, for the agents whose episode was not over."""
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            anew = np.flatnonzero(self._ended).tolist()
            observations, infos = self._env.reset(options={"reset_mask": self._ended.copy()})
            self._ended[:] = False
            self._note_masks(anew, self._rows(observations), infos)
        batch = [actions[agent] if agent in actions else self._idle(agent) for agent in self.possible_agents]
        room: Any = create_empty_array(self._space, len(batch))
        observations, rewards, terminated, truncated, infos = self._env.step(concatenate(self._space, batch, room))
        self._steps += 1
        self._ended = np.logical_or(terminated, truncated)
        rows, live = self._rows(observations), self.agents
        finals = {agent: self._final(self._index[agent], rows, infos) for agent in live}
        self.agents = [agent for agent in live if not self._ended[self._index[agent]]]
        self._note_masks([self._index[agent] for agent in self.possible_agents if agent not in self.agents], rows, infos)
        return (
            {agent: observation for agent, (observation, _) in finals.items()},
            {agent: float(rewards[self._index[agent]]) for agent in live},
            {agent: bool(terminated[self._index[agent]]) for agent in live},
            {agent: bool(truncated[self._index[agent]]) for agent in live},
            {agent: info for agent, (_, info) in finals.items()},
        )

    def close(self) -> None:
        """Closes all."""
        self._env.close()

    def _rows(self, observations: Any) -> list[Any]:
        return list(iterate(self._env.observation_space, observations))

    def _final(self, index: int, rows: list[Any], infos: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What a sub-environment showed and said in this step, before it began anew."""
        own = info_of_one(infos, index)
        if not self._ended[index] or self._mode is not AutoresetMode.SAME_STEP:
            return copy.deepcopy(rows[index]), own
        for name in _FINAL:
            if own.get(name) is not None:
                return copy.deepcopy(own[name]), dict(own.get("final_info") or {})
        raise EnvError(
            f"{self._env} began anew in the step that ended sub-environment {index} and kept no 'final_obs' in its info"
        )

    def _note_masks(self, indices: list[int], rows: list[Any], infos: Mapping[str, Any]) -> None:
        """Keeps what those may do next who play on for nobody; whoever is about to begin anew ignores its action."""
        for index in indices:
            ignored = self._mode is AutoresetMode.NEXT_STEP and self._ended[index]
            self._masks[index] = None if ignored else self._codec.split(rows[index], info_of_one(infos, index))[1]

    def _idle(self, agent: str) -> Any:
        return self._codec.sample(derive(self._seed, self._steps, agent), self._masks[self._index[agent]])


def brought(env: Any) -> Any:
    """An environment as it is, a vector environment as the parallel one that it stands for."""
    return SubEnvironments(env) if isinstance(env, VectorEnv) else env


def _mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    given = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(given)
    except ValueError:
        modes = ", ".join(mode.value for mode in AutoresetMode)
        raise ConfigError(
            f"{env} does not say how it begins anew: its metadata['autoreset_mode'] is {given!r}; set it to one of {modes}"
        ) from None


def info_of_one(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One sub-environment's part of a vector environment's info, whose `_key` says who has a `key`."""
    own: dict[str, Any] = {}
    for key, values in infos.items():
        has = infos.get(f"_{key}")
        if (key.startswith("_") and key[1:] in infos) or (has is not None and not has[index]):
            continue
        own[key] = info_of_one(values, index) if isinstance(values, Mapping) else values[index]
    return own
