"""The players by their names: who plays what, from both seats, through seats and coordinator, in a run."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from opentinker.config import load_config
from opentinker.coordinators import Table, coordinator_factory, play_episode
from opentinker.envs import open_env
from opentinker.errors import ConfigError, UnknownId
from opentinker.players import check_player, make_player, player_label
from opentinker.run import train
from opentinker.saved import look_up
from opentinker.seats import ScriptedSeat

PLAYS = {
    "greedy": {"connect_four", "gomoku", "kuhn_poker", "leduc_poker", "tictactoe"},
    "alphabeta:2": {"connect_four", "gomoku", "tictactoe"},
    "minimax": {"kuhn_poker", "leduc_poker", "pettingzoo/classic/tictactoe_v3", "tictactoe"},
}
SMALL = {"gomoku": {"size": 6, "line": 4}, "connect_four": {"rows": 5, "columns": 5}}


@pytest.mark.parametrize("name", PLAYS)
def test_a_player_plays_its_games_and_refuses_the_others(name):
    player = make_player(name)
    assert player_label(player) == name
    for game in ("tictactoe", "connect_four", "gomoku", "kuhn_poker", "leduc_poker", "matrix_game", "bandit"):
        if game in PLAYS[name]:
            check_player(player, game)
        else:
            known = ", ".join(sorted(PLAYS[name]))
            with pytest.raises(ConfigError, match=f"'{name}' cannot play '{game}'; it plays {known}"):
                check_player(player, game)
    assert set(player.games) == PLAYS[name]


@pytest.mark.parametrize("depth", ["", "0", "x", "-1", "2.5", "21", "9" * 5000])
def test_a_depth_that_is_none_is_refused(depth):
    text = f"alphabeta:{depth[:20]}"
    with pytest.raises(ConfigError, match=f"'{text}' needs a depth in plies, a whole number from 1 to 20: write"):
        make_player(f"alphabeta:{depth}")


def test_an_opponent_is_found_by_its_name_with_its_depth():
    config = load_config({"env": {"id": "gomoku"}, "coordinator": {"id": "turns"}, "agents": {"*": {"player": "random"}}})
    assert look_up("alphabeta:3", config).label == "alphabeta:3" and look_up("greedy", config).label == "greedy"
    with pytest.raises(ConfigError, match="'minimax' cannot play 'gomoku'; it plays kuhn_poker"):
        look_up("minimax", config)
    with pytest.raises(UnknownId, match="alphabeta:DEPTH"):
        make_player("alphabeta")


def results(game: str, names: tuple[str, str], games: int, seed: int = 0, **kwargs) -> Counter:
    """player_0's returns, under words that the players do not know."""

    async def main() -> Counter:
        env, ends = open_env(game, kwargs, render=str.upper), Counter()
        for number in range(games):

            def seat(agent, number=number):
                player = make_player(names[env.possible_agents.index(agent)])
                return ScriptedSeat(agent, player, seed_key=(seed,), place=(number, 0), env=game)

            table = Table(env, seat, episode_id=str(number), seed=number)
            episode = await play_episode(coordinator_factory("turns", {})(), env, table)
            assert episode.status == "terminated" and "out" not in episode.outcome, episode.error
            ends[episode.rewards["player_0"]] += 1
        await env.close()
        return ends

    return asyncio.run(main())


@pytest.mark.parametrize("name", PLAYS)
@pytest.mark.parametrize("game", ["tictactoe", "connect_four", "gomoku", "kuhn_poker", "leduc_poker"])
def test_every_player_sits_in_both_seats(game, name):
    if game in PLAYS[name]:
        kwargs = SMALL.get(game, {})
        first, second = (results(game, names, 12, **kwargs) for names in ((name, "random"), ("random", name)))
        assert sum(first.values()) == sum(second.values()) == 12
        if game in ("tictactoe", "connect_four", "gomoku"):
            assert first[1.0] >= 9 and second[-1.0] >= 5


def test_perfect_play_in_tictactoe_never_loses_and_draws_with_itself():
    assert results("tictactoe", ("minimax", "minimax"), 20) == {0.0: 20}
    for names, lost in (
        (("minimax", "random"), -1.0),
        (("random", "minimax"), 1.0),
        (("minimax", "greedy"), -1.0),
        (("greedy", "minimax"), 1.0),
        (("alphabeta:9", "minimax"), -1.0),
        (("minimax", "alphabeta:9"), 1.0),
    ):
        assert results("tictactoe", names, 25)[lost] == 0


@pytest.mark.parametrize(
    ("game", "kwargs", "opponents"),
    [
        pytest.param("tictactoe", {}, ["random", "minimax"], marks=pytest.mark.slow),
        pytest.param("connect_four", {"rows": 4, "columns": 4}, ["greedy", "alphabeta:2"], marks=pytest.mark.slow),
        ("gomoku", {"size": 5, "line": 4}, ["greedy", "alphabeta:2"]),
        ("leduc_poker", {}, ["greedy", "minimax"]),
    ],
)
def test_a_run_warms_up_on_them_trains_and_is_measured_against_them(tmp_path, game, kwargs, opponents):
    config = {
        "name": "short",
        "runs_dir": str(tmp_path),
        "env": {"id": game, "kwargs": kwargs},
        "coordinator": {"id": "turns"},
        "agents": {"*": {"policy": "learner", "memory": "last", "on_invalid": {"forfeit": -2}}},
        "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
        "warm_start": {"player": opponents[0], "steps": 2, "episodes": 4, "lr": 1e-3},
        "rollout": {"groups": 4},
        "train": {"credit": "dr_grpo", "steps": 1, "optim": {"lr": 1e-3}},
        "evaluate": {
            "every": 1,
            "games": 1,
            "opponents": opponents,
            "metrics": ["exploitability"] if game == "leduc_poker" else [],
        },
    }
    row = train(config).rows[-1]
    assert row["step"] == 1 and row["rollout/all/failed"] == 0
    for opponent in opponents:
        assert f"eval/{opponent}/return_mean" in row and row[f"eval/{opponent}/failed"] == 0
    if game == "leduc_poker":
        assert 0 < row["eval/exploitability/last"] < 13
