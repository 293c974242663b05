"""Scripted players: functions that look at a situation and return an action. They sit in seats and drive warm starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from opentinker.envs.registry import canonical_id
from opentinker.errors import ConfigError, InvalidAction
from opentinker.registry import Registry, load_object
from opentinker.types import ActionText, AgentID


@dataclass(frozen=True, slots=True)
class Situation:
    """What a scripted player sees."""

    agent: AgentID
    role: str
    observation: str
    space: ActionText
    mask: Any
    """Of the legal actions, as the environment gave it; None: no mask."""
    seed: int
    """For this decision alone: whoever draws, draws from it."""
    messages: tuple[tuple[str, str], ...] = ()
    """(sender, text) told since the last decision."""
    world: Any = None
    """The observation as the coordinator gave it, before it was put into words; None where nobody handed it on."""
    env: str = ""
    """The environment's id; empty where it is not known."""


ScriptedPlayer: TypeAlias = Callable[[Situation], Any]
"""Returns an action of the space, not its text. Raises `InvalidAction` where it has no legal one to give."""


def random_legal(situation: Situation) -> Any:
    """A legal action, all equally likely."""
    return situation.space.sample(situation.seed, situation.mask)


@dataclass(frozen=True, slots=True)
class Always:
    """The same action every time, written as the environment reads it."""

    text: str

    def __call__(self, situation: Situation) -> Any:
        """The action. Raises `InvalidAction` where it is not legal."""
        return situation.space.parse(self.text, situation.mask)

    @property
    def label(self) -> str:
        """How `make_player` spells it."""
        return f"always:{self.text}"


PLAYERS: Registry[ScriptedPlayer] = Registry("player")
PLAYERS.register("random_legal", random_legal)
PLAYERS.register("random", random_legal)
PLAYERS.register("minimax", "opentinker.perfect:minimax")
PLAYERS.register("greedy", "opentinker.experts.players:greedy")


def make_player(text: str) -> ScriptedPlayer:
    """The player of a text: an id of `PLAYERS`, `always:ACTION`, `alphabeta:DEPTH` or `package.module:function`.

    Raises:
        UnknownId: no such id.
        ConfigError: `always:` without an action, `alphabeta:` without a depth, or nothing callable at
            `package.module:function`.
    """
    head, colon, rest = text.partition(":")
    if not colon:
        return PLAYERS.get(text, hint="or always:ACTION, alphabeta:DEPTH, or package.module:function")
    if head == "always":
        if not rest:
            raise ConfigError(f"player {text!r} names no action; write always:ACTION")
        return Always(rest)
    if head == "alphabeta":
        return load_object("opentinker.experts.players:alphabeta")(rest)  # type: ignore[no-any-return]
    player: Any = load_object(text)
    if not callable(player):
        raise ConfigError(f"player {text!r} is a {type(player).__name__}; it must be a function of a Situation")
    return player  # type: ignore[no-any-return]


def check_player(player: ScriptedPlayer, env: str) -> None:
    """Refuses a player that knows only some games, its `games`, and not this one.

    Raises:
        ConfigError: it cannot play in this environment.
    """
    games = getattr(player, "games", None)
    if games is not None and canonical_id(env) not in games:
        raise ConfigError(
            f"player {player_label(player)!r} cannot play {env!r}; it plays {', '.join(sorted(games))}. "
            "'random' plays everything, and so may a function of your own: package.module:function"
        )


def check_action(player: ScriptedPlayer, agent: AgentID, space: ActionText) -> None:
    """Refuses an `always:ACTION` whose action an agent never has: it would forfeit every game.

    Raises:
        ConfigError: no such action.
    """
    if not isinstance(player, Always):
        return
    try:
        space.parse(player.text)
    except InvalidAction as error:
        raise ConfigError(f"player {player.label!r} can never act as {agent!r}: {error}") from error


def player_label(player: ScriptedPlayer) -> str:
    """What a player is called on the record: its `label`, else the function's or the class's name."""
    label = getattr(player, "label", None) or getattr(player, "__name__", None)
    return str(label) if label else type(player).__name__
