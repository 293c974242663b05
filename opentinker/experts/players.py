"""The players as `make_player` finds them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from opentinker.envs.games import connect_four, gomoku, tictactoe
from opentinker.envs.games.board import Board
from opentinker.envs.games.kuhn_poker import KuhnTree
from opentinker.envs.games.leduc_poker import LeducTree
from opentinker.errors import ConfigError
from opentinker.experts.base import Expert
from opentinker.experts.search import AlphaBeta
from opentinker.experts.trees import Play, TreePlayer, answer_to_random, equilibrium

_BOARDS: dict[str, Callable[[str], Board]] = {
    "connect_four": connect_four.read,
    "gomoku": gomoku.read,
    "tictactoe": tictactoe.read,
}


@functools.cache
def leduc_equilibrium() -> Play:
    """Leduc poker's equilibrium as `minimax` plays it."""
    return equilibrium(LeducTree())


@functools.cache
def _kuhn_answer() -> Play:
    return answer_to_random(KuhnTree())


@functools.cache
def _leduc_answer() -> Play:
    return answer_to_random(LeducTree())


DEEPEST = 20
"""Plies; more than that is never over on any board but tic-tac-toe's, which has nine."""


greedy = Expert(
    "greedy",
    {
        **{game: AlphaBeta(read, 1) for game, read in _BOARDS.items()},
        "kuhn_poker": TreePlayer(_kuhn_answer),
        "leduc_poker": TreePlayer(_leduc_answer),
    },
)


def alphabeta(depth: str) -> Expert:
    """The player `alphabeta:DEPTH`.

    Args:
        depth: plies, in digits.

    Raises:
        ConfigError: it is no whole number from 1 to `DEEPEST`.
    """
    if not (depth.isascii() and depth.isdigit() and len(depth) < 4 and 0 < int(depth) <= DEEPEST):
        given = f"player 'alphabeta:{depth[:20]}'"
        raise ConfigError(f"{given} needs a depth in plies, a whole number from 1 to {DEEPEST}: write alphabeta:4")
    return Expert(f"alphabeta:{int(depth)}", {game: AlphaBeta(read, int(depth)) for game, read in _BOARDS.items()})
