"""A live environment as plain calls, whatever its API. One thread owns it: the caller's, its own, or a child process's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import pettingzoo  # type: ignore[import-untyped]
from gymnasium.spaces import Space

from opentinker.answers import reward_number
from opentinker.envs.adapters.vector import brought
from opentinker.errors import ConfigError, EnvError, value_text

Kind = Literal["solo", "aec", "parallel"]
Spaces = tuple[Space[Any] | None, Space[Any]]
"""An agent's observation space and action space."""

SOLO_AGENT = "agent"
_NUMBERS = frozenset((float, int))
_NOTHING: Mapping[Any, Any] = {}


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

    PettingZoo's agents may be named by anything hashable, numbers or tuples say; here they are texts, `str(agent)`.

    Args:
        build: returns the environment.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._env: Any = None
        self.kind: Kind = "solo"
        self._ids: dict[str, Any] = {}
        """By name, the agents whose own names are no texts."""
        self._all_texts = False
        """Whether the environment has announced its agents, and all of them by texts."""
        self._owed: dict[Any, float] = {}
        """By the environment's own names."""

    def ask(self, op: str, args: tuple[Any, ...]) -> Any:
        """Calls the method `op`."""
        return getattr(self, op)(*args)

    def kill(self) -> None:
        """Nothing: a thread cannot be killed."""

    def open(self) -> Facts:
        """Makes the environment.

        Raises:
            ConfigError: what was made is no Gymnasium or PettingZoo environment, or two of its agents are written alike.
        """
        env = brought(self._build())
        self.kind = kind_of(env)
        self._env = env
        if self.kind == "solo":
            agents: tuple[str, ...] = (SOLO_AGENT,)
        else:
            announced = tuple(getattr(env, "possible_agents", ()))
            agents = tuple(map(self._name, announced))
            if len(set(agents)) < len(agents):
                raise ConfigError(f"possible_agents are not told apart by str(agent): {value_text(announced)}")
            self._all_texts = bool(agents) and not self._ids
        return Facts(self.kind, agents, {agent: self.spaces(agent) for agent in agents})

    def spaces(self, agent: str) -> Spaces:
        """An agent's spaces."""
        if self.kind == "solo":
            return self._env.observation_space, self._env.action_space
        own = self._ids.get(agent, agent)
        return self._env.observation_space(own), self._env.action_space(own)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """What the environment's `reset` returns, by agents' names."""
        answer = self._env.reset(seed=seed, options=options)
        if self.kind == "aec":
            self._owed = {}
        return answer if self.kind != "parallel" or self._all_texts else self._by_name(answer)

    def step(self, action: Any) -> Any:
        """What the environment's `step` returns, by agents' names."""
        if self.kind == "aec":
            return self._step_aec(action)
        if self.kind == "solo" or self._all_texts:
            return self._env.step(action)
        return self._by_name(self._env.step({self._ids.get(agent, agent): chosen for agent, chosen in action.items()}))

    def turn(self) -> AgentTurn | None:
        """The next agent and what it is told; None when nobody is left."""
        env = self._env
        if self.kind != "aec":
            raise EnvError(f"turn() is for AEC environments, this one is {self.kind}: read what reset() and step() return")
        agents = env.agents
        if not agents:
            return None
        observation, reward, terminated, truncated, info = env.last()
        agent, left = env.agent_selection, tuple(agents)
        if not self._all_texts:
            agent, left = self._name(agent), tuple(map(self._name, left))
        return AgentTurn(agent, observation, reward, terminated, truncated, info, left)

    def step_turn(self, action: Any) -> AgentTurn | None:
        """`step`, then `turn`."""
        self._step_aec(action)
        return self.turn()

    def owed(self) -> dict[str, float]:
        """AEC only: what each agent was given since its own last step, that step included, its own or another's.

        For an agent that has not been selected since, that is what `last()` has yet to show. It is summed up from `rewards`:
        PettingZoo's `parallel_to_aec` leaves in `_cumulative_rewards` what it has shown already.
        """
        return {self._name(agent): reward for agent, reward in self._owed.items()}

    def _step_aec(self, action: Any) -> None:
        env = self._env
        agent = env.agent_selection
        env.step(action)
        owed = self._owed
        owed[agent] = 0.0
        for other, reward in getattr(env, "rewards", _NOTHING).items():
            if type(reward) not in _NUMBERS or reward:  # mostly nobody is given anything
                owed[other] = owed.get(other, 0.0) + reward_number(reward)

    def live_agents(self) -> tuple[str, ...]:
        """Agents still in the game."""
        return (SOLO_AGENT,) if self.kind == "solo" else tuple(map(self._name, self._env.agents))

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

    def _name(self, agent: Any) -> str:
        """An agent's name as a text.

        Raises:
            EnvError: another agent has the same.
        """
        if isinstance(agent, str):
            return agent
        name = str(agent)
        if self._ids.setdefault(name, agent) != agent:
            raise EnvError(f"two agents are both written {name!r}: {value_text(self._ids[name])} and {value_text(agent)}")
        return name

    def _by_name(self, answer: Any) -> Any:
        """The parts of an answer whose agents are named by something else than texts, by texts; all else as it is."""
        if not isinstance(answer, (tuple, list)):
            return answer
        return tuple(
            {self._name(agent): value for agent, value in part.items()} if isinstance(part, Mapping) else part
            for part in answer
        )


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
