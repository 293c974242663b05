"""Connect four: a mark falls to the lowest free square of its column, four in a row win.

The lowest free square of a column shows the column's number, which is the move that takes it:

    .......
    .......
    .......
    ...4...
    ...o.6.
    123x5x7
    o?

On the usual 6 rows of 7 the first player wins with perfect play (Allis 1988, "A knowledge-based approach of Connect-Four").
"""

from __future__ import annotations

from opentinker.envs.games.board import Board, BoardGame, Grid, check_whole, read_picture
from opentinker.errors import ConfigError

LINE = 4
MOST_COLUMNS = 9
"""A move is one digit."""
MOST_ROWS = 99


def _moves(columns: int) -> tuple[str, ...]:
    return tuple(str(column + 1) for column in range(columns))


def read(observation: str) -> Board:
    """The position that an observation shows.

    Raises:
        ConfigError: it is none of this game's.
    """
    rows = read_picture(observation)
    return Board(Grid(len(rows), len(rows[0]), LINE, falls=True), _moves(len(rows[0])), "".join(rows))


class ConnectFour(BoardGame):
    """The game as an environment; moves are the columns' numbers from `1`, masked where a column is full.

    Args:
        rows: of the grid.
        columns: of the grid, at most 9.

    Raises:
        ConfigError: no such grid, or none that a line of four fits into.
    """

    metadata = {"name": "connect_four", "render_modes": []}

    def __init__(self, rows: int = 6, columns: int = 7) -> None:
        check_whole("rows", rows, 1, MOST_ROWS)
        check_whole("columns", columns, 1, MOST_COLUMNS)
        if max(rows, columns) < LINE:
            raise ConfigError(f"rows or columns must be at least {LINE}, or nobody can win; given: {rows} and {columns}")
        super().__init__(Grid(rows, columns, LINE, falls=True), _moves(columns))
