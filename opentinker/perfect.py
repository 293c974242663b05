"""Perfect players of solved games: what learned play is measured against."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opentinker.envs.games.tictactoe import read
from opentinker.errors import ConfigError
from opentinker.experts.base import Expert, seen
from opentinker.experts.players import leduc_equilibrium
from opentinker.experts.trees import TreePlayer
from opentinker.players import Situation

_LINES = tuple(
    sum(1 << cell for cell in line)
    for line in ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
)
_FULL = (1 << 9) - 1


def tictactoe(situation: Situation) -> int:
    """A move of PettingZoo's tic-tac-toe that keeps the minimax value; all such moves are equally likely.

    It reads the planes of the raw observation (own marks, the other's), so it plays under any wording.

    Raises:
        ConfigError: the observation was not handed on, or has other planes.
    """
    own, other = _planes(situation.world)
    moves = best_moves(own, other)
    return moves[random.Random(situation.seed).randrange(len(moves))]


@functools.cache
def best_moves(own: int, other: int) -> tuple[int, ...]:
    """The cells that keep the minimax value for who is to move. Boards are sets of cells: bit i is cell i."""
    values = {cell: -board_value(other, own | 1 << cell) for cell in range(9) if not (own | other) >> cell & 1}
    best = max(values.values())
    return tuple(cell for cell, value in values.items() if value == best)


@functools.cache
def board_value(own: int, other: int) -> int:
    """1, 0 or -1: what who is to move gets when both play perfectly."""
    if any(other & line == line for line in _LINES):
        return -1
    if own | other == _FULL:
        return 0
    return max(-board_value(other, own | 1 << cell) for cell in range(9) if not (own | other) >> cell & 1)


def _planes(world: Any) -> tuple[int, int]:
    seen = world.get("observation") if isinstance(world, Mapping) else world
    planes = np.asarray(seen)
    if planes.shape != (3, 3, 2):
        raise ConfigError(
            f"perfect play in tic-tac-toe reads the environment's own observation, planes of shape (3, 3, 2); given: "
            f"{type(seen).__name__} of shape {planes.shape}; ask with what the environment gave, not with a text of it"
        )
    own, other = (sum(1 << int(cell) for cell in np.flatnonzero(planes[:, :, plane])) for plane in (0, 1))
    return own, other


@dataclass(frozen=True, slots=True)
class KuhnEquilibrium:
    """An equilibrium of Kuhn poker; there is one for every alpha. Source: Kuhn (1950), "A simplified two-person poker".

    The first player bets a jack with probability alpha and a king with 3 alpha, and calls with a queen with alpha + 1/3.
    The second has one optimal strategy: a third of the time it bets a jack after a pass and calls a bet with a queen.

    Raises:
        ConfigError: alpha is not in [0, 1/3].
    """

    alpha: float = 1 / 3
    """How often the first player bets a jack: 0 never bluffs, 1/3 always bets a king."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 / 3:
            raise ConfigError(f"the equilibria of Kuhn poker have an alpha from 0 to 1/3, given: {self.alpha}")

    def bets(self, card: str, moves: str) -> float:
        """The probability of betting or calling, with a card (J, Q, K) after some moves (`p` pass, `b` bet)."""
        alpha = self.alpha
        chances = {
            "": {"J": alpha, "Q": 0.0, "K": 3 * alpha},
            "pb": {"J": 0.0, "Q": alpha + 1 / 3, "K": 1.0},
            "p": {"J": 1 / 3, "Q": 0.0, "K": 1.0},
            "b": {"J": 0.0, "Q": 1 / 3, "K": 1.0},
        }
        return chances[moves][card]

    def __call__(self, situation: Situation) -> str:
        """Bet or pass, drawn.

        Raises:
            ConfigError: the observation is not Kuhn poker's.
        """
        text = seen(situation)
        found = _KUHN.search(text)
        if found is None:
            raise ConfigError(f"the equilibrium of Kuhn poker reads 'Card K. Moves p.', given: {text[:80]!r}")
        moves = found[2].replace("-", "")
        return "b" if random.Random(situation.seed).random() < self.bets(found[1], moves) else "p"


_KUHN = re.compile(r"Card ([JQK])\. Moves (-|p|b|pb)\.")


def text_tictactoe(situation: Situation) -> str:
    """A move of our own tic-tac-toe that keeps the minimax value; all such moves are equally likely.

    Raises:
        ConfigError: the observation is not that game's.
    """
    board = read(seen(situation))
    own, other = (sum(1 << cell for cell, found in enumerate(board.squares) if found == mark) for mark in board.sides)
    moves = best_moves(own, other)
    return board.moves[moves[random.Random(situation.seed).randrange(len(moves))]]


minimax = Expert(
    "minimax",
    {
        "kuhn_poker": KuhnEquilibrium(),
        "leduc_poker": TreePlayer(leduc_equilibrium),
        "pettingzoo/classic/tictactoe_v3": tictactoe,
        "tictactoe": text_tictactoe,
    },
)
"""Perfect play by the environment's id: minimax in tic-tac-toe, an equilibrium (alpha = 1/3) in Kuhn poker and nearly one in
Leduc poker; see `opentinker.experts`."""
