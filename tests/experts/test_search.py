"""Alpha-beta against positions with one right answer, against OpenSpiel's rules, and against weaker players."""

from __future__ import annotations

import random

import numpy as np
import pyspiel
import pytest

from opentinker.envs.games import tictactoe
from opentinker.envs.games.board import FREE, Board, Grid
from opentinker.experts.search import _Search, best_square
from opentinker.perfect import best_moves


def board(grid: Grid, rows: str) -> Board:
    """A position drawn in rows."""
    squares = "".join(rows.split())
    return Board(grid, tuple(map(str, range(grid.moves))), squares)


def choices(position: Board, depth: int, draws: int = 20) -> set[int]:
    """The squares that are chosen by chance among equals."""
    return {best_square(position, depth, random.Random(seed)) for seed in range(draws)}


GOMOKU = Grid(9, 9, 5)
FOUR = Grid(6, 7, 4, falls=True)


def test_a_win_is_taken_and_a_loss_is_stopped_at_every_depth():
    rows = ["........."] * 9
    rows[2], rows[5] = ".xxxx....", ".oooo...."
    for depth in (1, 2, 3):
        assert choices(board(GOMOKU, " ".join(rows)), depth) <= {2 * 9, 2 * 9 + 5}
    rows[2] = ".xxx...x."
    for depth in (1, 2, 3):  # one end of the other's four; both lose all the same
        assert choices(board(GOMOKU, " ".join(rows)), depth) <= {5 * 9, 5 * 9 + 5}


def test_an_open_three_is_made_a_four_and_the_others_is_stopped():
    rows = ["........."] * 9
    rows[4], rows[6] = "...xxx...", ".o.o...o."
    assert choices(board(GOMOKU, " ".join(rows)), 3) <= {4 * 9 + 2, 4 * 9 + 6}
    rows[4], rows[6] = "...ooo...", ".x.x...x."
    assert choices(board(GOMOKU, " ".join(rows)), 3) <= {4 * 9 + 1, 4 * 9 + 2, 4 * 9 + 6, 4 * 9 + 7}


def test_connect_four_does_not_open_the_square_above():
    """o would win on the square above column 4's lowest free one, where x must not help it up."""
    position = board(FOUR, " ".join([*["......."] * 4, "ooo....", "xxo.xx."]))
    assert position.sides == ("x", "o")
    for depth in (1, 2, 4):
        assert 38 not in choices(position, depth)  # row 5, column 4


@pytest.mark.parametrize("seed", range(40))
def test_a_search_to_the_end_of_tictactoe_plays_only_moves_that_keep_the_value(seed):
    rng = random.Random(seed)
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    while not state.is_terminal():
        squares = str(state).replace("\n", "")
        position = Board(tictactoe.GRID, tictactoe.MOVES, squares)
        own, other = (sum(1 << cell for cell, mark in enumerate(squares) if mark == side) for side in position.sides)
        assert best_square(position, 9, rng) in best_moves(own, other)
        state.apply_action(rng.choice(state.legal_actions()))


def brute(state, mover: int) -> int:
    """OpenSpiel's value of a position for a player, by trying everything."""
    if state.is_terminal():
        return int(state.returns()[mover])
    values = [brute(state.child(action), mover) for action in state.legal_actions()]
    return max(values) if state.current_player() == mover else min(values)


@pytest.mark.parametrize("seed", range(6))
def test_a_search_to_the_end_of_connect_four_keeps_openspiels_value(seed):
    """On 4 x 4, from where nine squares are free."""
    rng = random.Random(seed)
    state = pyspiel.load_game("connect_four(rows=4,columns=4)").new_initial_state()
    while not state.is_terminal() and state.move_number() < 7:
        state.apply_action(rng.choice(state.legal_actions()))
    while not state.is_terminal():
        grid = Grid(4, 4, 4, falls=True)
        position = board(grid, str(state))
        column = best_square(position, 16, rng) % 4
        mover = state.current_player()
        assert brute(state.child(column), mover) == brute(state, mover)
        state.apply_action(column)


def test_no_search_leaves_the_position_changed_or_depends_on_anything_but_it():
    position = board(GOMOKU, " ".join(["........."] * 4 + ["...xo...."] + ["........."] * 4))
    before = position.squares
    assert choices(position, 3, 3) == choices(position, 3, 3) and position.squares == before


def test_a_won_game_is_won_soon():
    """x makes its open three a four, and whatever is answered five; to force o first, in the second row, takes longer."""
    for depth in (2, 3, 4):
        rows = ["........."] * 9
        rows[1], rows[4], rows[6], rows[8] = "oxxx.....", "...xxx...", ".o..o..o.", "o......o."
        squares, rng = list("".join(rows)), random.Random(depth)
        for number in range(3):
            square = best_square(Board(GOMOKU, (), "".join(squares)), depth if number % 2 == 0 else 1, rng)
            squares[square] = "xo"[number % 2]
        assert GOMOKU.wins(squares, square)


@pytest.mark.parametrize(
    ("row", "lost", "squares"),
    [("..xxx....", False, None), (".oxxxx...", False, [42]), ("..xxxx...", True, [37, 42]), ("oxxx.xxo.", False, [40])],
)
def test_two_threats_cannot_both_be_answered(row, lost, squares):
    """o is to move; the row is the fifth, squares 36 to 44."""
    marks = np.array(list("".join(["........."] * 4 + [row] + ["........."] * 4)))
    node = _Search(GOMOKU).look((marks == "o").astype(np.int8), (marks == "x").astype(np.int8))
    assert node.lost == lost and not node.won
    assert node.squares.tolist() == (squares if squares else np.flatnonzero(marks == ".").tolist())


@pytest.mark.parametrize("depth", [1, 2])
def test_chance_decides_among_equals(depth):
    assert choices(board(Grid(4, 4, 3), "." * 16), depth, 60) == {5, 6, 9, 10}


def random_move(position: Board, rng: random.Random) -> int:
    return rng.choice([square for square in position.grid.landings(position.squares) if square is not None])


def play(grid: Grid, depths: tuple[int, int], rng: random.Random) -> int:
    """Who wins, 0 or 1, or -1; depth 0 is random."""
    squares = [FREE] * (grid.rows * grid.columns)
    for number in range(len(squares)):
        position = Board(grid, (), "".join(squares))
        depth = depths[number % 2]
        square = best_square(position, depth, rng) if depth else random_move(position, rng)
        squares[square] = "xo"[number % 2]
        if grid.wins(squares, square):
            return number % 2
    return -1


@pytest.mark.parametrize("grid", [tictactoe.GRID, FOUR, GOMOKU], ids=["tictactoe", "connect four", "gomoku"])
def test_greedy_play_beats_random_play_from_both_seats(grid):
    rng = random.Random(0)
    assert sum(play(grid, (1, 0), rng) == 0 for _ in range(30)) >= 25
    assert sum(play(grid, (0, 1), rng) == 1 for _ in range(30)) >= 18


@pytest.mark.parametrize("grid", [FOUR, GOMOKU], ids=["connect four", "gomoku"])
def test_deeper_search_beats_greedy_play(grid):
    rng = random.Random(0)
    won = [play(grid, (4, 1), rng) == 0 for _ in range(6)] + [play(grid, (1, 4), rng) == 1 for _ in range(6)]
    assert sum(won) >= 9
