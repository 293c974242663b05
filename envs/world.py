"""A live environment as plain calls, whatever its API. One thread owns it: the caller's, its own, or a child process's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import pettingzoo  # type: ignore[import-untyped]
from gymnasium.spaces import Space

from opentinker.errors import ConfigError, EnvError

Kind = Literal["solo", "aec", "parallel"]
Spaces = tuple[Space[Any] | None, Space[Any]]
"""An agent's observation space and action space."""

SOLO_AGENT = "agent"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """What PettingZoo's `agent_selection` and `last()` say of the agent that is to act."""

    agent: str
    observation: Any
    reward: float
    """Gathered since the agent's own last step."""
    terminated: bool
    """A terminated or truncated agent may only be stepped with None."""
    truncated: bool
    info: dict[str, Any]
    agents: tuple[str, ...]
    """All agents still in the game, this one included."""


@dataclass(slots=True)
class EnvStats:
    """Counts over any number of handles; see `open_env`."""

    abandoned: int = 0
    """Environments given up: after a deadline, or because their process had ended."""
    errors: int = 0
    """Calls in which an environment raised."""
    late: int = 0
    """Answers that came after their caller had stopped waiting; they were ignored."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an environment once it is made."""

    kind: Kind
    possible_agents: tuple[str, ...]
    """Empty for a PettingZoo environment that does not say."""
    spaces: dict[str, Spaces]


class Askable(Protocol):
    """A world, here or in another process."""

    def ask(self, op: str, args: tuple[Any, ...]) -> Any:
        """Calls the `World` method `op`; raises what it raises."""

    def kill(self) -> None:
        """Ends it at once, from any thread, where that is possible."""


class World:
    """An environment behind one interface. The constructor makes nothing; `open` does.

    Args:
        build: returns the environment.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._env: Any = None
        self.kind: Kind = "solo"

    def ask(self, op: str, args: tuple[Any, ...]) -> Any:
        """Calls the method `op`."""
        return getattr(self, op)(*args)

    def kill(self) -> None:
        """Nothing: a thread cannot be killed."""

    def open(self) -> Facts:
        """Makes the environment.

        Raises:
            ConfigError: what was made is no Gymnasium or PettingZoo environment.
        """
        env = self._build()
        self.kind = kind_of(env)
        self._env = env
        if self.kind == "solo":
            agents: tuple[str, ...] = (SOLO_AGENT,)
        else:
            agents = tuple(getattr(env, "possible_agents", ()))
        return Facts(self.kind, agents, {agent: self.spaces(agent) for agent in agents})

    def spaces(self, agent: str) -> Spaces:
        """An agent's spaces."""
        if self.kind == "solo":
            return self._env.observation_space, self._env.action_space
        return self._env.observation_space(agent), self._env.action_space(agent)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """What the environment's `reset` returns."""
        return self._env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """What the environment's `step` returns."""
        return self._env.step(action)

    def turn(self) -> AgentTurn | None:
        """The next agent and what it is told; None when nobody is left."""
        env = self._env
        if self.kind != "aec":
            raise EnvError(f"turn() is for AEC environments, this one is {self.kind}: read what reset() and step() return")
        agents = env.agents
        if not agents:
            return None
        observation, reward, terminated, truncated, info = env.last()
        return AgentTurn(env.agent_selection, observation, reward, terminated, truncated, info, tuple(agents))

    def step_turn(self, action: Any) -> AgentTurn | None:
        """`step`, then `turn`."""
        self._env.step(action)
        return self.turn()

    def live_agents(self) -> tuple[str, ...]:
        """Agents still in the game."""
        return (SOLO_AGENT,) if self.kind == "solo" else tuple(self._env.agents)

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """A method's answer or an attribute's value, through all wrappers."""
        env = self._env
        found = env.get_wrapper_attr(name) if isinstance(env, gymnasium.Env) else getattr(env, name)
        return found(*args) if args or callable(found) else found

    def close(self) -> None:
        """Closes the environment; a second time does nothing."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def kind_of(env: Any) -> Kind:
    """Which of the three APIs an environment has.

    Raises:
        ConfigError: none of them.
    """
    if isinstance(env, gymnasium.Env):
        return "solo"
    if isinstance(env, pettingzoo.AECEnv):
        return "aec"
    if isinstance(env, pettingzoo.ParallelEnv):
        return "parallel"
    raise ConfigError(
        f"{type(env).__module__}.{type(env).__qualname__} is no environment: expected an instance of gymnasium.Env, "
        "pettingzoo.AECEnv or pettingzoo.ParallelEnv"
    )
