"""Negotiators of several kinds; see `opentinker.envs.games.negotiation`.

Strength: mean rewards of who speaks first (rows) and second (columns) over 600 games with the environment's own defaults.
The best splits would give both together 1.49.

|           | aimless    | hardliner  | conceder   | candid     |
|-----------|------------|------------|------------|------------|
| aimless   | 0.52, 0.49 | 0.23, 0.96 | 0.28, 0.92 | 0.29, 0.92 |
| hardliner | 0.97, 0.23 | 0.50, 0.26 | 1.00, 0.26 | 1.00, 0.26 |
| conceder  | 0.92, 0.32 | 0.58, 0.76 | 0.69, 0.74 | 0.69, 0.74 |
| candid    | 0.81, 0.39 | 0.58, 0.76 | 0.69, 0.74 | 0.75, 0.74 |
"""

from __future__ import annotations

import itertools
import random
import re

from opentinker.envs.games.negotiation import ACCEPT, PLAYERS, Amounts, Seen, read
from opentinker.experts.base import seen
from opentinker.players import Situation


def aimless(situation: Situation) -> str:
    """A random offer, or, every other time there is one to accept, `[ok]`. Shows what replies look like.

    Raises:
        ConfigError: the observation is not this game's; likewise the other players.
    """
    told, rng = read(seen(situation)), random.Random(situation.seed)
    if _theirs(told) is not None and rng.random() < 0.5:
        return ACCEPT
    return _offer(tuple(rng.randint(0, count) for count in told.counts))


def hardliner(situation: Situation) -> str:
    """Asks for everything that is worth anything to it, and accepts what is left to it only when nobody speaks after it."""
    told = read(seen(situation))
    theirs = _theirs(told)
    wanted = tuple(count if value else 0 for count, value in zip(told.counts, told.values, strict=True))
    if theirs is not None and (_worth(told, theirs) == _worth(told, wanted) or told.left == 1 and _worth(told, theirs) > 0):
        return ACCEPT
    return _offer(wanted)


def conceder(situation: Situation) -> str:
    """Wants everything at first and less with every message, down to a third at its last one.

    It accepts what is worth so much to it, and anything when nobody speaks after it; else it asks for the fewest things that
    are. The linear time-dependent tactic of Faratin, Sierra and Jennings (1998), "Negotiation decision functions for
    autonomous agents".
    """
    told = read(seen(situation))
    whole, last = _worth(told, told.counts), len(told.said) + (told.left - 1) // 2
    aim = whole * (1 - 2 / 3 * len(told.said) / max(last, 1))
    theirs = _theirs(told)
    if theirs is not None and (_worth(told, theirs) >= aim or told.left == 1):
        return ACCEPT
    enough = [share for share in _shares(told.counts) if _worth(told, share) >= aim]
    return _offer(min(enough, key=lambda share: (sum(share), -_worth(told, share))))


def candid(situation: Situation) -> str:
    """Says what things are worth to it, and, told the same, offers or accepts the split that is worth most to both together.

    Among several such splits, the one that is best for whom it is worse. Two of them always agree on it. Who is not told
    anything plays like `conceder`.
    """
    told = read(seen(situation))
    mine = f"To me: {' '.join(map(str, told.values))}."
    values = next((values for text in reversed(told.heard) if (values := _said(text, told.counts))), None)
    if values is None:
        return mine if not told.heard else f"{mine} {conceder(situation)}"

    def merit(share: Amounts) -> tuple[int, int, Amounts]:
        rest = tuple(count - amount for count, amount in zip(told.counts, share, strict=True))
        both = _worth(told, share), sum(value * amount for value, amount in zip(values, rest, strict=True))
        # the last part breaks ties alike on both sides: who speaks first has the higher numbers
        return sum(both), min(both), share if situation.agent == PLAYERS[0] else rest

    best = max(_shares(told.counts), key=merit)
    return ACCEPT if _theirs(told) == best else f"{mine} {_offer(best)}"


def _said(text: str, counts: Amounts) -> Amounts | None:
    found = re.search(r"To me: (\d{1,3}(?: \d{1,3})*)\.", text, re.ASCII)
    values = tuple(map(int, found[1].split())) if found else ()
    return values if len(values) == len(counts) else None


def _theirs(told: Seen) -> Amounts | None:
    return None if told.own_offer else told.offer


def _worth(told: Seen, share: Amounts) -> int:
    return sum(value * amount for value, amount in zip(told.values, share, strict=True))


def _shares(counts: Amounts) -> list[Amounts]:
    return list(itertools.product(*[range(count + 1) for count in counts]))


def _offer(share: Amounts) -> str:
    return f"[{' '.join(map(str, share))}]"
