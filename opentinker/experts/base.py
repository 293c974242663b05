"""A scripted player that knows several games, each by its environment's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opentinker.envs.registry import canonical_id
from opentinker.errors import ConfigError
from opentinker.players import ScriptedPlayer, Situation


@dataclass(frozen=True, slots=True)
class Expert:
    """One name for a way to play, and how it is done in each game."""

    label: str
    """As `make_player` takes it."""
    games: Mapping[str, ScriptedPlayer]
    """By the environment's id; all others are refused, see `check_player`."""

    def __call__(self, situation: Situation) -> Any:
        """An action.

        Raises:
            ConfigError: another environment, or an observation that is not that game's.
        """
        play = self.games.get(situation.env) or self.games.get(canonical_id(situation.env))
        if play is None:
            known = ", ".join(sorted(self.games))
            raise ConfigError(f"player {self.label!r} cannot play {situation.env!r}; it plays {known}")
        return play(situation)


def seen(situation: Situation) -> str:
    """The environment's own text, whatever words it was put into."""
    return situation.world if isinstance(situation.world, str) else situation.observation
