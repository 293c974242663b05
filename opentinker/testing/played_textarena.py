"""TextArena's games played by a text player that picks among the moves that it is shown."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

from opentinker.envs import env_ids
from opentinker.testing.played import Played, play_id
from opentinker.types import ActionText

MAX_TURNS = 300
"""A game is cut after so many decisions: some go on for as long as nobody wins."""
_TAIL = 1500
"""Characters at the end of an observation in which the present moves mostly stand."""
_BRACKETS = re.compile(r"\[[^\[\]\n]{1,40}\]")
_SPEAKER = re.compile(r"\[(?:GAME|Player \d+)\]")
_COORDINATE = re.compile(r"(?<![A-Za-z])[a-h](?=[0-9])|[0-9]")


def bracketed(observation: str, space: ActionText, mask: Any, seed: int) -> str:
    """One of the moves in brackets that a text shows, mostly one near its end; or one with other squares; or small talk.

    Equal arguments give equal replies.
    """
    draw = random.Random(seed)
    shown = _moves(observation[-_TAIL:]) or _moves(observation)
    kind = draw.random()
    if not shown or kind > 0.95:
        return "Let us see what happens."
    move = draw.choice(shown)
    if kind < 0.6:
        return move
    return _COORDINATE.sub(lambda found: draw.choice("abcdefgh" if found[0].isalpha() else "0123456789"), move)


def played(ids: Iterable[str] | None = None, *, games: int = 1) -> Iterator[Played]:
    """`play_id` of each id; None: of all that TextArena has registered.

    Raises:
        MissingExtra: TextArena is not installed.
    """
    for id in env_ids("textarena") if ids is None else ids:
        yield play_id(id, games=games, max_turns=MAX_TURNS, reply=bracketed)


def _moves(text: str) -> list[str]:
    return [found for found in _BRACKETS.findall(text) if not _SPEAKER.fullmatch(found)]
