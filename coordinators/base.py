"""What a coordinator is: a small script that says who acts when and who hears what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from opentinker.answers import info_of
from opentinker.errors import ConfigError, EnvError, value_text
from opentinker.types import ActionText, AgentID

if TYPE_CHECKING:
    from opentinker.coordinators.table import Table
    from opentinker.envs.handle import EnvHandle

EnvKind = Literal["solo", "aec", "parallel"]

_RETURNED = {2: "observation, info", 5: "observation, reward, terminated, truncated, info"}

_COORDINATOR_OF: dict[str, str] = {"solo": "solo", "aec": "turns", "parallel": "simultaneous"}


@dataclass(frozen=True, slots=True)
class Query:
    """What one agent is asked at a barrier."""

    observation: Any
    """Text, or anything the environment's codec renders."""
    space: ActionText | None = None
    """How to answer; None: the environment's actions of that agent."""
    mask: Any = None
    """Which of them are legal now; None: all, or what the observation's own `action_mask` says."""


class Coordinator(ABC):
    """Says who acts when and who hears what.

    A coordinator keeps nothing between episodes and nothing about a running one outside `play`: the same object may play
    many episodes at once.
    """

    kind: ClassVar[EnvKind | None] = None
    """The kind of environment it plays; None: any."""

    def agents(self, env: EnvHandle) -> list[AgentID]:
        """Who sits at the table from the start.

        Agents born later are seated when they are first asked. Needs no reset, so a run can look for their seats early.

        Raises:
            ConfigError: this coordinator does not play this kind of environment.
        """
        if self.kind is not None and env.kind != self.kind:
            raise ConfigError(
                f"coordinator {type(self).__name__} plays {self.kind} environments, {env.id!r} is {env.kind}; "
                f"use coordinator {_COORDINATOR_OF[env.kind]!r}"
            )
        return list(env.possible_agents)

    @abstractmethod
    async def play(self, env: EnvHandle, table: Table) -> None:
        """Plays one episode, from `env.reset(table.seed)` to its end.

        Args:
            env: a live environment; every call is awaited.
            table: the only way to the seats and to the record.

        Raises:
            SeatOut: let it through and that player's leaving ends the game; catch it to go on without the player.
        """


def agents_of(coordinator: Coordinator, env: EnvHandle) -> list[AgentID]:
    """`coordinator.agents(env)`, checked.

    Raises:
        ConfigError: they are no list of names.
    """
    given: Any = coordinator.agents(env)
    agents = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else None
    if agents is None or not all(isinstance(agent, str) for agent in agents):
        raise ConfigError(
            f"{type(coordinator).__name__}.agents() gave {value_text(given if agents is None else agents)} for {env.id!r}; "
            "it must give a list of names, each a text"
        )
    return agents


def mask_in(info: Any, env: EnvHandle) -> Any:
    """The `action_mask` of an environment's info, or None.

    Raises:
        EnvError: the info is no mapping.
    """
    return info_of(info, env.id).get("action_mask")


def final_in(info: Any, observation: Any, env: EnvHandle) -> Any:
    """What an agent saw at the end: a wrapper that has begun the next episode already keeps it in its info.

    Gymnasium's name for it was `final_observation` before version 1.1 and is `final_obs` since.

    Raises:
        EnvError: the info is no mapping.
    """
    info = info_of(info, env.id)
    for name in ("final_obs", "final_observation"):
        if info.get(name) is not None:
            return info[name]
    return observation


def unpack(given: Any, n: int, call: str, env: EnvHandle) -> Any:
    """What an environment's call returned, if it is n values.

    Raises:
        EnvError: it is not.
    """
    if isinstance(given, (tuple, list)) and len(given) == n:
        return given
    what = f"{len(given)} values" if isinstance(given, (tuple, list)) else f"a {type(given).__name__}"
    raise EnvError(f"{env.id!r} returned {what} from {call}; return a tuple of {n} ({_RETURNED[n]})")


def strangers(known: Collection[str], named: Iterable[str], env: EnvHandle) -> None:
    """Refuses agents that an environment had not announced.

    Args:
        known: the environment's `possible_agents`; empty: it does not say, and any will do.
        named: who is named now.
        env: for the message.

    Raises:
        EnvError: one is none of them.
    """
    for agent in named:
        if known and agent not in known:
            which = f"the agent {value_text(agent)}, which is none of its possible_agents: {sorted(known)}"
            raise EnvError(f"{env.id!r} named {which}")


def check_cap(max_turns: int | None) -> int | None:
    """A cap on turns as given.

    Raises:
        ConfigError: it is not positive.
    """
    if max_turns is not None and max_turns < 1:
        raise ConfigError(f"max_turns must be at least 1 or null, not {max_turns!r}")
    return max_turns
