"""PettingZoo's tic-tac-toe in ten characters: `x1o345678x` is x to move after x took square 0 and o square 2.

A free square shows its own number, which is also the move that takes it. PettingZoo numbers the squares column by column:

    0 3 6
    1 4 7
    2 5 8
"""

from __future__ import annotations

from typing import Any

MARKS = ("x", "o")
"""Of `player_1`, who begins, and of `player_2`."""


def render(observation: Any) -> str:
    """The nine squares in the order of their numbers, then the mark of whoever is to move.

    Args:
        observation: of `pettingzoo/classic/tictactoe_v3` without its mask: [3, 3, 2], int8, 1 where a mark stands; the
            player's own marks first, then the opponent's.
    """
    flags = observation.tobytes()  # int8: own and opponent's of square 0, of square 1, ...
    own, others = flags[::2], flags[1::2]
    first = own.count(1) == others.count(1)
    me, you = MARKS if first else MARKS[::-1]
    squares = [me if own[i] else you if others[i] else str(i) for i in range(9)]
    return "".join(squares) + me


def parse(text: str) -> int:
    """The square a reply names: one digit, with or without white space around it.

    Raises:
        ValueError: it is no digit from 0 to 8.
    """
    word = text.strip()
    if len(word) != 1 or word not in "012345678":
        raise ValueError("not the number of a square, 0 to 8")
    return int(word)
