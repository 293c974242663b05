"""Alpha-beta search in games of lines on a grid: tic-tac-toe, connect four, gomoku.

A position is worth what its open lines are: one with n of the player's own marks and none of the other's counts
`GROWTH ** (n - 1)`, the other's count against it. Every node also sees wins and forced answers of the next two plies. Where
there are many squares, only the most valuable ones are searched.

Source: Knuth and Moore (1975), "An analysis of alpha-beta pruning"; to count open lines is usual in such games.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from opentinker.envs.games.board import Board, Grid
from opentinker.experts.base import seen
from opentinker.players import Situation

GROWTH = 8.0
"""How many lines with n marks weigh as much as one with n + 1."""
WIDTH = 10
"""Squares searched at a node, the most valuable ones."""
WON = 1e12
"""Worth of a win; each ply until then takes off 1."""

Marks: TypeAlias = NDArray[np.int8]
"""1 where a player's marks stand, shape (squares,)."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """Searches `depth` plies. Among equally good first moves one is drawn.

    Args:
        read: the game's own reader of observations.
        depth: plies, at least 1.
    """

    read: Callable[[str], Board]
    depth: int

    def __call__(self, situation: Situation) -> str:
        """A legal move.

        Raises:
            ConfigError: the observation is not this game's.
        """
        board = self.read(seen(situation))
        square = best_square(board, self.depth, random.Random(situation.seed))
        return board.moves[square % board.grid.columns if board.grid.falls else square]


def best_square(board: Board, depth: int, rng: random.Random) -> int:
    """The square of the best move that a search finds.

    Args:
        board: with a free square.
        depth: plies, at least 1; a forced answer does not count.
        rng: draws among equals.
    """
    own, other = (np.array([square == mark for square in board.squares], np.int8) for mark in board.sides)
    search = _Search(board.grid)
    node = search.look(own, other)
    squares = node.squares[rng.sample(range(len(node.squares)), len(node.squares))]
    squares = squares[np.argsort(-node.gains[squares], kind="stable")][:WIDTH]
    best, best_value = int(squares[0]), -np.inf
    if depth == 1 or len(squares) == 1 or node.won:
        return best
    for square in map(int, squares):
        value = search.after(own, other, square, depth - 1, best_value, np.inf, 1)
        if value > best_value:
            best, best_value = square, value
    return best


@dataclass(frozen=True, slots=True)
class _Node:
    """What can be seen without search by who is to move."""

    value: float
    """Own open lines minus the other's."""
    squares: NDArray[np.intp]
    """Where a mark may go: what wins if anything does, else what does not lose at once if there is any such."""
    gains: NDArray[np.float64]
    """How much a mark adds to the value, by square of the grid."""
    won: bool
    """Whether a mark completes a line now."""
    lost: bool
    """Whether the other completes one next, whatever is done now."""


class _Search:
    """Negamax on one grid; values are of who is to move. `ply` counts from the root."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._lines, self._flat, self._weights = _lines_of(grid)

    def after(self, own: Marks, other: Marks, square: int, depth: int, alpha: float, beta: float, ply: int) -> float:
        """The value of a mark on a square, `depth` plies after it."""
        own[square] = 1
        value = -self._value(other, own, depth, -beta, -alpha, ply)
        own[square] = 0
        return value

    def _value(self, own: Marks, other: Marks, depth: int, alpha: float, beta: float, ply: int) -> float:
        node = self.look(own, other)
        squares = node.squares
        if not len(squares):
            return 0.0
        if node.won:
            return WON - ply
        if node.lost:
            return ply + 1 - WON
        if len(squares) == 1:
            return self.after(own, other, int(squares[0]), depth, alpha, beta, ply + 1)
        gains = node.gains[squares]
        if depth == 1:
            return float(node.value + gains.max())
        best = -np.inf
        for square in squares[np.argsort(-gains, kind="stable")][:WIDTH]:
            best = max(best, self.after(own, other, int(square), depth - 1, max(alpha, best), beta, ply + 1))
            if best >= beta:
                break
        return best

    def look(self, own: Marks, other: Marks) -> _Node:
        """Sees what there is without search."""
        mine, theirs = own[self._lines].sum(1), other[self._lines].sum(1)
        ours, closed, weights = mine > 0, theirs > 0, self._weights
        value = weights[mine[~closed]].sum() - weights[theirs[~ours]].sum()
        added = np.where(closed, np.where(ours, 0.0, weights[theirs]), weights[mine + 1] - weights[mine])
        counted = np.bincount(self._flat, np.repeat(added, self._grid.line), minlength=len(own))
        gains = counted.astype(np.float64, copy=False)
        free = (own + other) == 0
        landing = self._landing(free)
        wins = self._completing(mine, closed, free) & landing
        if wins.any():
            return _Node(float(value), np.flatnonzero(wins), gains, won=True, lost=False)
        threats = self._completing(theirs, ours, free)
        forced = threats & landing
        fair = forced if forced.any() else landing
        safe = fair
        if self._grid.falls:  # the square above is open to the other next
            safe = fair & ~np.append(np.zeros(self._grid.columns, bool), threats[: -self._grid.columns])
        lost = bool(forced.sum() > 1 or not safe.any())
        return _Node(float(value), np.flatnonzero(safe if safe.any() else fair), gains, won=False, lost=lost)

    def _landing(self, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which squares a mark can go to."""
        if not self._grid.falls:
            return free
        below = np.append(free[self._grid.columns :], np.zeros(self._grid.columns, bool))
        landing: NDArray[np.bool_] = free & ~below
        return landing

    def _completing(self, count: NDArray[np.int_], closed: NDArray[np.bool_], free: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which free squares are all that an open line lacks."""
        found = np.zeros(len(free), bool)
        found[self._lines[(count == self._grid.line - 1) & ~closed]] = True
        return found & free


@functools.cache
def _lines_of(grid: Grid) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """The squares of each line, shape (lines, length), the same in one row, and the weight of each number of marks."""
    lines = np.array(grid.lines(), np.intp)
    weights = np.append(0.0, GROWTH ** np.arange(grid.line))
    return lines, lines.ravel(), weights
