"""Two players set marks on a grid in turn: what tic-tac-toe, connect four and gomoku have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from opentinker.envs.text import Observation, TextAECEnv, TextSpace
from opentinker.errors import ConfigError

PLAYERS = ("player_0", "player_1")
MARKS = "xo"
"""Of player_0, who begins, and of player_1."""
FREE = "."

_DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
"""(rows down, columns right): across, down and both ways aslant."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is won and where marks go: the first with `line` or more marks in a row wins, a full grid is a draw.

    Squares are numbered from 0, row by row from the top left.
    """

    rows: int
    columns: int
    line: int
    falls: bool = False
    """Whether a mark falls to the lowest free square of a column, so that a move is a column; else it is a square."""

    @property
    def moves(self) -> int:
        """How many moves there are at the start."""
        return self.columns if self.falls else self.rows * self.columns

    def landings(self, squares: Sequence[str]) -> list[int | None]:
        """By move, the square that it marks; None where it is not legal.

        Args:
            squares: what stands there: `x`, `o` or `.`.
        """
        if not self.falls:
            return [square if mark == FREE else None for square, mark in enumerate(squares)]
        heights = [squares[column :: self.columns].count(FREE) for column in range(self.columns)]
        return [(free - 1) * self.columns + column if free else None for column, free in enumerate(heights)]

    def wins(self, squares: Sequence[str], square: int) -> bool:
        """Whether the mark on a square stands in a line that wins."""
        mark, rows, columns = squares[square], self.rows, self.columns
        for down, right in _DIRECTIONS:
            length = 1
            for sign in (1, -1):
                row, column = divmod(square, columns)
                row, column = row + sign * down, column + sign * right
                while 0 <= row < rows and 0 <= column < columns and squares[row * columns + column] == mark:
                    length, row, column = length + 1, row + sign * down, column + sign * right
            if length >= self.line:
                return True
        return False

    def lines(self) -> list[list[int]]:
        """Every set of squares that wins, `line` squares each."""
        found = []
        for down, right in _DIRECTIONS:
            step, reach = down * self.columns + right, self.line - 1
            for row in range(self.rows - reach * down):
                low, high = (0, self.columns - reach * right) if right >= 0 else (reach, self.columns)
                for column in range(low, high):
                    first = row * self.columns + column
                    found.append([first + step * place for place in range(self.line)])
        return found


class Board(NamedTuple):
    """A position, as an observation shows it."""

    grid: Grid
    moves: tuple[str, ...]
    """Names of the moves."""
    squares: str
    """One character each: `x`, `o` or `.`."""

    @property
    def sides(self) -> tuple[str, str]:
        """The mark to move, then the other."""
        mark = mark_to_move(self.squares)
        return mark, MARKS[1 - MARKS.index(mark)]


def mark_to_move(squares: Sequence[str]) -> str:
    """The mark that is set next: `x` where both have set equally many."""
    return MARKS[squares.count("x") - squares.count("o")]


def picture(grid: Grid, moves: Sequence[str], squares: Sequence[str]) -> str:
    """The rows; where a move would set its mark stands the move's name, of one character."""
    cells = list(squares)
    for name, square in zip(moves, grid.landings(squares), strict=True):
        if square is not None:
            cells[square] = name
    return "\n".join(["".join(cells[first : first + grid.columns]) for first in range(0, len(cells), grid.columns)])


def read_picture(observation: str) -> list[str]:
    """The rows of `picture` under a question, names of moves as free squares.

    Raises:
        ConfigError: it is no such text.
    """
    *rows, question = observation.split("\n")
    if not rows or len(set(map(len, rows))) != 1 or not rows[0] or question[:1] not in MARKS or not question.endswith("?"):
        raise ConfigError(
            f"a player of board games reads the environment's own observation, rows of equal length above a question such "
            f"as 'x?', given: {observation[:80]!r}"
        )
    return ["".join([cell if cell in MARKS else FREE for cell in row]) for row in rows]


def check_whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number as given.

    Raises:
        ConfigError: it is none, or out of bounds.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, given: {value!r}")
    return value


class BoardGame(TextAECEnv):
    """A game on a grid. The winner gets 1, the loser -1, both 0 for a draw; both players see the same text.

    Args:
        grid: the rules.
        moves: names of the moves, in order.
        goal: stands between the mark to move and the question mark.
    """

    def __init__(self, grid: Grid, moves: Sequence[str], goal: str = "") -> None:
        self.grid, self._moves, self._goal = grid, tuple(moves), goal
        self._place = {name: move for move, name in enumerate(moves)}
        self.possible_agents = list(PLAYERS)
        self.agents = []
        self._begin()
        longest = len(self._view())  # a mark is as long as a free square
        self.observation_spaces = {agent: TextSpace(max_length=longest) for agent in PLAYERS}
        self.action_spaces = {agent: TextSpace(choices=self._moves) for agent in PLAYERS}

    def _begin(self) -> None:
        self._squares = [FREE] * (self.grid.rows * self.grid.columns)
        self._landings = self.grid.landings(self._squares)
        self._mask = np.ones(len(self._moves), np.int8)
        self._left, self._over = len(self._squares), False

    def picture(self) -> str:
        """The grid without the question."""
        return picture(self.grid, self._moves, self._squares)

    def _view(self) -> str:
        return self.picture() if self._over else f"{self.picture()}\n{mark_to_move(self._squares)}{self._goal}?"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Clears the grid; there is no chance in the game."""
        super().reset(seed=seed, options=options)
        self._begin()
        self.infos[PLAYERS[0]] = {"action_mask": self._mask.copy()}

    def observe(self, agent: str) -> str:
        """The grid; below it, while the game lasts, the mark to move and a question mark."""
        return Observation(self._view())

    def step(self, action: str | None) -> None:
        """Sets a mark; None for an agent whose game is over.

        Raises:
            ValueError: no such move, or not legal now.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        move = self._place.get(action) if isinstance(action, str) else None
        square = None if move is None else self._landings[move]
        if move is None or square is None:
            legal = [name for name, landing in zip(self._moves, self._landings, strict=True) if landing is not None]
            raise ValueError(f"{self.metadata['name']} has the legal moves {', '.join(legal)} now, given: {action!r}")
        number = PLAYERS.index(agent)
        other = PLAYERS[1 - number]
        self._squares[square] = MARKS[number]
        self._fill(move, square)
        self.infos = {agent: {}, other: {}}
        won = self.grid.wins(self._squares, square)
        self._over = won or not self._left
        if self._over:
            if won:
                self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(PLAYERS, True)
            self._accumulate_rewards()
        else:
            self.infos[other]["action_mask"] = self._mask.copy()
        self.agent_selection = other

    def _fill(self, move: int, square: int) -> None:
        self._left -= 1
        above = square - self.grid.columns if self.grid.falls else -1
        self._landings[move] = above if above >= 0 else None
        self._mask[move] = above >= 0
