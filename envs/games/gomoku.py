"""Gomoku on a board of any size: five in a row, or more, win (free style, without opening rules).

Up to 7 rows every free square shows its own name of one character, which is the move that takes it: digits, then letters
other than the marks. On larger boards a move is a column's letter and a row's number, as in `h8`; after column `z` comes
`aa`.

    0123456            abcdefgh
    789abcd           1........
    efghijk           2........
    lmnoqrs     ...   3...o....
    ...               ...
    x, 5 in a row?    x, 5 in a row?

On 15 rows the first player wins with perfect play (Allis, van den Herik and Huntjens 1996, "Go-Moku solved by new search
techniques").
"""

from __future__ import annotations

import functools
import re
from string import ascii_lowercase, ascii_uppercase, digits

from opentinker.envs.games.board import MARKS, Board, BoardGame, Grid, check_whole, read_picture
from opentinker.errors import ConfigError

SHORT = 7
"""Boards up to this size have moves of one character."""
MOST = 99

_NAMES = [name for name in digits + ascii_lowercase + ascii_uppercase if name.lower() not in MARKS]
_GOAL = re.compile(r"[xo], ([0-9]+) in a row\?")


@functools.cache
def column_names(size: int) -> tuple[str, ...]:
    """`a` to `z`, then `aa`, `ab`, ..."""
    letters = ascii_lowercase
    return tuple(letters[place] if place < 26 else letters[place // 26 - 1] + letters[place % 26] for place in range(size))


@functools.cache
def move_names(size: int) -> tuple[str, ...]:
    """The moves of a board, row by row from the top left."""
    if size <= SHORT:
        return tuple(_NAMES[: size * size])
    return tuple(f"{column}{row + 1}" for row in range(size) for column in column_names(size))


def read(observation: str) -> Board:
    """The position that an observation shows.

    Raises:
        ConfigError: it is none of this game's.
    """
    *rows, question = observation.split("\n")
    goal = _GOAL.fullmatch(question)
    if goal is None:
        raise ConfigError(f"gomoku's observations end in a line such as 'x, 5 in a row?', given: {observation[-80:]!r}")
    size = len(rows)
    if size > SHORT:
        size -= 1
        width, label = len(column_names(size)[-1]), len(str(size))
        rows = [row[label:][width - 1 :: width] for row in rows[1:]]
    squares = "".join(read_picture("\n".join([*rows, question])))
    if len(squares) != size * size:
        raise ConfigError(f"gomoku has as many columns as rows, given: {observation[:80]!r}")
    return Board(Grid(size, size, int(goal[1])), move_names(size), squares)


class Gomoku(BoardGame):
    """The game as an environment; moves are squares, masked where they are taken.

    Args:
        size: rows and columns, at most 99.
        line: how many in a row win.

    Raises:
        ConfigError: no such board, or a line that is longer than it.
    """

    metadata = {"name": "gomoku", "render_modes": []}

    def __init__(self, size: int = 15, line: int = 5) -> None:
        check_whole("size", size, 1, MOST)
        check_whole("line", line, 1, size)
        super().__init__(Grid(size, size, line), move_names(size), f", {line} in a row")

    def picture(self) -> str:
        """The board; see the module."""
        size = self.grid.rows
        if size <= SHORT:
            return super().picture()
        columns = column_names(size)
        width, label = len(columns[-1]), len(str(size))
        cells = self._squares if width == 1 else [mark.rjust(width) for mark in self._squares]
        head = " " * label + "".join(columns if width == 1 else [name.rjust(width) for name in columns])
        rows = [f"{row + 1:>{label}}" + "".join(cells[row * size : (row + 1) * size]) for row in range(size)]
        return "\n".join([head, *rows])
