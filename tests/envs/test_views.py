import numpy as np
import pytest

from opentinker.envs.views.tictactoe import parse, render


def seen(own, others):
    """PettingZoo's planes: the player's own marks, then the other's."""
    planes = np.zeros((9, 2), np.int8)
    planes[own, 0] = planes[others, 1] = 1
    return planes.reshape(3, 3, 2)


@pytest.mark.parametrize(
    ("own", "others", "text"),
    [
        ([], [], "012345678x"),
        ([], [4], "0123x5678o"),  # the second player's first move: x stands in the middle
        ([0], [2], "x1o345678x"),
        ([2], [0, 8], "x1o34567xo"),
        ([1, 2, 3, 8], [0, 4, 5, 6], "oxxxooo7xx"),
    ],
)
def test_a_board_in_ten_characters(own, others, text):
    assert render(seen(own, others)) == text


@pytest.mark.parametrize(("reply", "square"), [("0", 0), (" 8\n", 8), ("4", 4)])
def test_a_square_by_its_number(reply, square):
    assert parse(reply) == square


@pytest.mark.parametrize("reply", ["", " ", "9", "-1", "x", "12", "\u0661", "0 1", "\u00b2"])
def test_anything_else_is_no_square(reply):
    with pytest.raises(ValueError, match="not the number of a square"):
        parse(reply)
