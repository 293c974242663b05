"""Tic-tac-toe in fourteen characters. Three in a row win; played perfectly by both it is a draw.

A free square shows its own number, which is the move that takes it:

    x1o
    345
    678
    x?
"""

from __future__ import annotations

from opentinker.envs.games.board import Board, BoardGame, Grid, read_picture
from opentinker.errors import ConfigError

GRID = Grid(rows=3, columns=3, line=3)
MOVES = tuple("012345678")


def read(observation: str) -> Board:
    """The position that an observation shows.

    Raises:
        ConfigError: it is none of this game's.
    """
    rows = read_picture(observation)
    if [len(row) for row in rows] != [3, 3, 3]:
        raise ConfigError(f"tic-tac-toe has three rows of three squares, given: {observation[:80]!r}")
    return Board(GRID, MOVES, "".join(rows))


class TicTacToe(BoardGame):
    """The game as an environment; moves are the squares' numbers, `0` to `8`, masked where a square is taken."""

    metadata = {"name": "tictactoe", "render_modes": []}

    def __init__(self) -> None:
        super().__init__(GRID, MOVES)
