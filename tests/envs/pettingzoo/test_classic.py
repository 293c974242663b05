"""Every classic game of PettingZoo, by random text players and by raw loops."""

from __future__ import annotations

import warnings

import pettingzoo
import pytest

from opentinker.envs import env_ids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # rlcard imports what the standard library is about to drop
    pytest.importorskip("rlcard")

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")  # no-limit hold'em's bounds

GAMES = {
    "chess_v6": {},
    "connect_four_v3": {},
    "go_v5": {"board_size": 5},
    "hanabi_v5": {},
    "leduc_holdem_v4": {},
    "rps_v2": {"max_cycles": 5},
    "texas_holdem_no_limit_v6": {},
    "texas_holdem_v4": {},
    "tictactoe_v3": {},
}
MORE = {
    "go on a board of 9": ("go_v5", {"board_size": 9}),
    "small hanabi of three": ("hanabi_v5", {"players": 3, "colors": 3, "hand_size": 2, "max_life_tokens": 1}),
    "texas hold'em of four": ("texas_holdem_v4", {"num_players": 4}),
    "no limit of three": ("texas_holdem_no_limit_v6", {"num_players": 3}),
    "five throws": ("rps_v2", {"num_actions": 5, "max_cycles": 7}),
}


def test_these_are_all_of_them():
    assert {f"pettingzoo/classic/{name}" for name in GAMES} == {
        id for id in env_ids("pettingzoo") if id.startswith("pettingzoo/classic/")
    }


def played(arena, name, kwargs, seeds, api="aec"):
    """Plays the seeds on one object, each as a fresh one plays it by the raw loop."""
    handle = arena.open(f"pettingzoo/classic/{name}", {**kwargs, "api": api})
    for seed in seeds:
        told = arena.raw(pettingzoo.make(api, f"classic/{name}", **kwargs), seed)
        arena.same(arena.through(handle, seed).episode, told)
        yield told


@pytest.mark.parametrize("name", GAMES)
def test_c2_e5_a_classic_game_is_played_and_paid_as_by_a_raw_loop(arena, name):
    seeds = (4,) if name == "chess_v6" else (3, 4, 3)  # a step of the library's chess takes 10 ms
    for told in played(arena, name, GAMES[name], seeds):
        assert set(told.ends) == set(told.rewards)
        if name != "hanabi_v5":
            assert sum(told.rewards.values()) == 0
        else:  # one score for both
            assert len(set(told.rewards.values())) == 1


@pytest.mark.parametrize("game", MORE)
def test_more_players_and_other_sizes(arena, game):
    name, kwargs = MORE[game]
    for _ in played(arena, name, kwargs, (5,)):
        pass


def test_rock_paper_scissors_at_once(arena):
    for _ in played(arena, "rps_v2", {"max_cycles": 5}, (1, 2, 3), "parallel"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("chess_v6", (3, 4, 3)), ("go_v5", (3, 4, 3))])
def test_e5_long_games_one_after_the_other(arena, name, seeds):
    for _ in played(arena, name, {}, seeds):
        pass


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_wherever_it_runs(arena, isolation):
    handle = arena.open("pettingzoo/classic/leduc_holdem_v4", {}, isolation)
    arena.same(arena.through(handle, 3).episode, arena.raw(pettingzoo.make("aec", "classic/leduc_holdem_v4"), 3))
