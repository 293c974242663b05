"""Tic-tac-toe, connect four and gomoku: their texts by hand, their rules against OpenSpiel's and against brute force."""

from __future__ import annotations

import itertools
import random

import pyspiel
import pytest

from opentinker.envs import check_env, make_env
from opentinker.envs.games import connect_four, gomoku, tictactoe
from opentinker.envs.games.board import FREE, Grid
from opentinker.errors import ConfigError

MANY = 60


def played(env, rng: random.Random):
    """A random game: (agent, observation, legal moves, move) of each decision, then what each agent was paid."""
    env.reset(seed=rng.randrange(2**32))
    decisions, paid = [], dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, _, info = env.last()
        paid[agent] += reward
        if terminated:
            assert info == {} and "?" not in observation
            env.step(None)
            continue
        names = env.action_space(agent).choices
        legal = [name for name, ok in zip(names, info["action_mask"], strict=True) if ok]
        move = rng.choice(legal)
        decisions.append((agent, observation, legal, move))
        env.step(move)
    return decisions, paid


# id, arguments, OpenSpiel's name, games; a move's place among ours is OpenSpiel's number for it
SPIEL = {
    "tictactoe": ("tictactoe", {}, "tic_tac_toe", MANY),
    "connect four": ("connect_four", {}, "connect_four", MANY),
    "connect four, low": ("connect_four", {"rows": 4, "columns": 5}, "connect_four(rows=4,columns=5)", MANY),
    "connect four, tall": ("connect_four", {"rows": 9, "columns": 3}, "connect_four(rows=9,columns=3)", MANY),
    "gomoku": ("gomoku", {}, "mnk(m=15,n=15,k=5)", 12),
    "gomoku, small": ("gomoku", {"size": 5, "line": 4}, "mnk(m=5,n=5,k=4)", MANY),
    "gomoku, middling": ("gomoku", {"size": 8, "line": 4}, "mnk(m=8,n=8,k=4)", MANY),
    "gomoku, three": ("gomoku", {"size": 3, "line": 3}, "tic_tac_toe", MANY),
}


@pytest.mark.parametrize("game", SPIEL)
def test_random_games_go_as_openspiels(game):
    id, kwargs, name, games = SPIEL[game]
    env, theirs, rng, ends = make_env(id, **kwargs), pyspiel.load_game(name), random.Random(game), set()
    names = env.action_space("player_0").choices
    for _ in range(games):
        state = theirs.new_initial_state()
        decisions, paid = played(env, rng)
        for agent, _, legal, move in decisions:
            assert agent == f"player_{state.current_player()}"
            assert legal == [names[action] for action in state.legal_actions()]
            state.apply_action(names.index(move))
        assert state.is_terminal()
        assert paid == {f"player_{number}": won for number, won in enumerate(state.returns())}
        ends.add(paid["player_0"])
    assert {1.0, -1.0} <= ends  # the games that both sides win were among them


@pytest.mark.parametrize("size", [5, 7, 8, 27])
def test_gomoku_of_every_size_goes_as_openspiels_of_its_own(size):
    """OpenSpiel's gomoku, which is written apart from its mnk, on the sizes where our names of moves differ in kind."""
    env, theirs, rng = make_env("gomoku", size=size), pyspiel.load_game(f"gomoku(size={size})"), random.Random(size)
    names = env.action_space("player_0").choices
    assert len(set(names)) == size * size
    for _ in range(8 if size < 20 else 2):
        state = theirs.new_initial_state()
        decisions, paid = played(env, rng)
        for agent, _, legal, move in decisions:
            assert agent == f"player_{state.current_player()}"
            assert legal == [names[action] for action in state.legal_actions()]
            state.apply_action(names.index(move))
        assert state.is_terminal() and [paid["player_0"], paid["player_1"]] == state.returns()


GRIDS = [Grid(3, 3, 3), Grid(6, 7, 4, falls=True), Grid(5, 4, 4), Grid(7, 7, 5), Grid(4, 6, 2), Grid(3, 3, 1)]


def wins_by_hand(grid: Grid, squares: list[str], square: int) -> bool:
    """Tries every run of squares through this one."""
    mark, at = squares[square], divmod(square, grid.columns)
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        for back in range(grid.line):
            cells = [(at[0] + (step - back) * down, at[1] + (step - back) * right) for step in range(grid.line)]
            inside = all(0 <= row < grid.rows and 0 <= column < grid.columns for row, column in cells)
            if inside and all(squares[row * grid.columns + column] == mark for row, column in cells):
                return True
    return False


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_lines_win_wherever_they_lie(grid):
    rng, seen = random.Random(1), set()
    for _ in range(400):
        squares = rng.choices("xo.", (5, 3, 1), k=grid.rows * grid.columns)
        square = rng.randrange(len(squares))
        squares[square] = "x"
        expected = wins_by_hand(grid, squares, square)
        assert grid.wins(squares, square) == expected
        assert any(square in line and all(squares[place] == "x" for place in line) for line in grid.lines()) == expected
        seen.add(expected)
    assert seen == {True, False} or grid.line == 1


def test_the_lines_are_counted():
    """69 in connect four, 8 in tic-tac-toe (both well known), 572 on 15 x 15: 2 * 15 * 11 + 2 * 11 * 11."""
    counts = [len(Grid(6, 7, 4).lines()), len(Grid(3, 3, 3).lines()), len(Grid(15, 15, 5).lines())]
    assert counts == [69, 8, 572]
    for line in Grid(6, 7, 4).lines():
        steps = {(b // 7 - a // 7, b % 7 - a % 7) for a, b in itertools.pairwise(line)}
        assert len(line) == 4 and len(steps) == 1


def after(env, moves: str):
    env.reset()
    for move in moves.split():
        env.step(move)
    return env.observe("player_0")


def test_the_text_of_tictactoe():
    env = make_env("tictactoe")
    assert after(env, "") == "012\n345\n678\nx?"
    assert after(env, "4 0 8") == "o12\n3x5\n67x\no?" == env.observe("player_1")
    assert env.infos == {"player_0": {}, "player_1": {"action_mask": pytest.approx([0, 1, 1, 1, 0, 1, 1, 1, 0])}}
    assert after(env, "0 3 1 4 2") == "xxx\noo5\n678" and env.rewards == {"player_0": 1.0, "player_1": -1.0}


def test_the_text_of_connect_four():
    env = make_env("connect_four")
    assert after(env, "") == "\n".join([*["......."] * 5, "1234567", "x?"])
    assert after(env, "4 4 6").split("\n") == [*["......."] * 3, "...4...", "...o.6.", "123x5x7", "o?"]
    assert after(env, "4 6 4 1").split("\n") == [*["......."] * 3, "...4...", "1..x.6.", "o23x5o7", "x?"]
    full = after(env, "1 1 1 1 1 1")
    assert full.split("\n")[:6] == ["o......", "x......", "o......", "x......", "o......", "x234567"]
    assert env.infos["player_0"]["action_mask"].tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert env.infos["player_0"]["action_mask"].dtype == "int8"


def test_the_texts_of_gomoku():
    small = make_env("gomoku", size=7)
    assert after(small, "m 0") == "o123456\n789abcd\nefghijk\nlxnpqrs\ntuvwyzA\nBCDEFGH\nIJKLMNP\nx, 5 in a row?"
    large = make_env("gomoku", size=8, line=4)
    assert after(large, "h8 a1 c2").split("\n") == [
        " abcdefgh",
        "1o.......",
        "2..x.....",
        *[f"{row}........" for row in range(3, 8)],
        "8.......x",
        "o, 4 in a row?",
    ]
    wide = after(make_env("gomoku", size=28), "ab1 a28").split("\n")
    assert wide[0] == "  " + "".join(f" {name}" for name in "abcdefghijklmnopqrstuvwxyz") + "aaab"
    assert wide[1] == " 1" + " ." * 27 + " x" and wide[28] == "28 o" + " ." * 27 and wide[29] == "x, 5 in a row?"


READERS = [
    ("tictactoe", {}, tictactoe.read),
    ("connect_four", {}, connect_four.read),
    ("connect_four", {"rows": 4, "columns": 9}, connect_four.read),
    ("gomoku", {"size": 7}, gomoku.read),
    ("gomoku", {"size": 9, "line": 4}, gomoku.read),
    ("gomoku", {"size": 10}, gomoku.read),
    ("gomoku", {"size": 29}, gomoku.read),
]


@pytest.mark.parametrize(("id", "kwargs", "read"), READERS, ids=[f"{id}-{kwargs}" for id, kwargs, _ in READERS])
def test_an_observation_is_read_back_as_the_position(id, kwargs, read):
    env, rng = make_env(id, **kwargs), random.Random(4)
    decisions, _ = played(env, rng)
    squares = [FREE] * (env.grid.rows * env.grid.columns)
    for number, (agent, observation, legal, move) in enumerate(decisions):
        board = read(observation)
        assert board.grid == env.grid and board.moves == env.action_space(agent).choices
        assert board.squares == "".join(squares) and board.sides == (("x", "o") if number % 2 == 0 else ("o", "x"))
        landings = dict(zip(board.moves, board.grid.landings(board.squares), strict=True))
        assert legal == [name for name, square in landings.items() if square is not None]
        assert len(observation) <= env.observation_space(agent).max_length and observation in env.observation_space(agent)
        squares[landings[move]] = "xo"[number % 2]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (tictactoe.read, "Card K. Moves p. p/b?", "rows of equal length above a question"),
        (tictactoe.read, "01\n23\nx?", "three rows of three"),
        (tictactoe.read, "012\n345\n678", "above a question"),
        (connect_four.read, "", "above a question"),
        (gomoku.read, "012\n345\n678\nx?", "end in a line such as 'x, 5 in a row"),
        (gomoku.read, "01\n23\n45\nx, 5 in a row?", "as many columns as rows"),
    ],
)
def test_a_text_that_is_no_position_is_refused(read, text, message):
    with pytest.raises(ConfigError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("connect_four", {"columns": 10}, "columns must be a whole number from 1 to 9, given: 10"),
        ("connect_four", {"rows": "6"}, "rows must be a whole number"),
        ("connect_four", {"rows": 3, "columns": 3}, "rows or columns must be at least 4, or nobody can win"),
        ("gomoku", {"size": 0}, "size must be a whole number from 1 to 99, given: 0"),
        ("gomoku", {"size": 4}, "line must be a whole number from 1 to 4, given: 5"),
        ("gomoku", {"line": True}, "line must be a whole number"),
        ("tictactoe", {"size": 4}, "unexpected keyword argument 'size'"),
    ],
)
def test_boards_that_cannot_be_are_refused(id, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(id, **kwargs)


@pytest.mark.parametrize("move", ["4", "9", "", None, 3, ["3"]])
def test_what_is_no_legal_move_is_refused_with_what_is(move):
    env = make_env("tictactoe")
    after(env, "4 0")
    with pytest.raises(ValueError, match="tictactoe has the legal moves 1, 2, 3, 5, 6, 7, 8 now"):
        env.step(move)


GAMES = [
    ("tictactoe", {}),
    ("connect_four", {}),
    ("connect_four", {"rows": 2, "columns": 4}),
    ("gomoku", {"size": 6}),
    ("gomoku", {"size": 10}),
    ("leduc_poker", {}),
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # its advice is for arrays: observations should be Boxes, ...
@pytest.mark.filterwarnings("ignore:The old environment creation API")  # importing it imports a game in an old way
@pytest.mark.parametrize(("id", "kwargs"), GAMES, ids=str)
def test_passes_pettingzoos_own_tests(id, kwargs, capsys):
    from pettingzoo.test import api_test, seed_test

    api_test(make_env(id, **kwargs), num_cycles=150)
    assert "Passed API test" in capsys.readouterr().out
    seed_test(lambda: make_env(id, **kwargs), num_cycles=100)


@pytest.mark.parametrize(("id", "kwargs"), GAMES, ids=str)
def test_the_checker_finds_nothing(id, kwargs):
    assert check_env(id, kwargs=kwargs) == []


@pytest.mark.parametrize(("id", "kwargs"), GAMES, ids=str)
def test_whole_games_follow_the_seed_and_nothing_stays_from_one_to_the_next(id, kwargs):
    one, other = make_env(id, **kwargs), make_env(id, **kwargs)
    games = [played_all(one, seed) for seed in range(6)]
    assert games == [played_all(other, seed) for seed in range(6)] == [played_all(one, seed) for seed in range(6)]


def played_all(env, seed: int):
    """Everything that a game shows."""
    rng, seen = random.Random(seed), []
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        mask = info["action_mask"] if info else None
        legal = [] if terminated else [n for n, ok in zip(env.action_space(agent).choices, mask, strict=True) if ok]
        seen.append((agent, str(observation), reward, terminated, truncated, legal))
        env.step(rng.choice(legal) if legal else None)
    return seen


def test_a_mask_that_was_handed_out_stays_as_it_was():
    env = make_env("tictactoe")
    env.reset()
    masks = []
    for number in range(5):
        masks.append(env.infos[env.agent_selection]["action_mask"])
        env.step(str(8 - number))
    assert [int(mask.sum()) for mask in masks] == [9, 8, 7, 6, 5]
    assert masks[1].tolist() == [1] * 8 + [0]
