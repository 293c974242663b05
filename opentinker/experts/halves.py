"""Partners in the game of halves, from useless to perfect; see `opentinker.envs.games.halves`."""

from __future__ import annotations

import random

from opentinker.envs.games.halves import UNKNOWN, Seen, named, read
from opentinker.experts.base import seen
from opentinker.players import Situation


def teller(situation: Situation) -> str:
    """Says its half and believes its partner: two of them always get 1.

    Raises:
        ConfigError: the observation is not this game's; likewise the other players.
    """
    told = read(seen(situation))
    if not told.answering:
        return _half(told)
    heard = next((word for text in reversed(told.heard) if len(word := named(text)) == len(_half(told))), "")
    return _whole(told, heard or _half(told))


def mute(situation: Situation) -> str:
    """Says nothing, hears nothing, and names its own half twice: right with a chance of `len(symbols) ** -length`."""
    told = read(seen(situation))
    return _whole(told, _half(told)) if told.answering else ""


def talker(situation: Situation) -> str:
    """Says its half, which is worth hearing, but does not listen: guesses the other half at random, as strong as `mute`."""
    told = read(seen(situation))
    return babbler(situation) if told.answering else _half(told)


def babbler(situation: Situation) -> str:
    """Says half a code at random and guesses the other half at random: as strong as `mute`. Shows what replies look like."""
    told = read(seen(situation))
    guess = "".join(random.Random(situation.seed).choices(told.symbols, k=len(_half(told))))
    return _whole(told, guess) if told.answering else guess


def _half(told: Seen) -> str:
    return told.known.strip(UNKNOWN)


def _whole(told: Seen, other: str) -> str:
    return other + _half(told) if told.known.startswith(UNKNOWN) else _half(told) + other
