"""Games against opponents between updates, and of saved runs."""

from __future__ import annotations

import json
import math
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError, RolloutFailed, UnknownId
from opentinker.evaluate import KEPT, check_opponents, evaluate_run, match_figures
from opentinker.report.record import episode_from_json
from opentinker.rollout import HELD_OUT
from opentinker.run import train

saved = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "fixtures" / "saved.py")))
OPPONENTS = ["random", "minimax", "old@5", "self"]


def config(runs: Path, opponents: list[str], **changes):
    return {
        **saved.KUHN,
        "name": "run",
        "runs_dir": str(runs),
        "warm_start": {"player": "random_legal", "steps": 2, "episodes": 8},
        "rollout": {"groups": 4, "group_size": 2},
        "train": {"credit": "grpo", "optim": {"lr": 1e-3}, "ema": 0.9, "steps": 4, "checkpoint_every": 2},
        "evaluate": {"every": 3, "opponents": opponents, "games": 6},
        **changes,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    saved.save_run(folder / "old", steps=(5,))
    return folder


@pytest.fixture(scope="module")
def trained(runs):
    return train(config(runs, OPPONENTS))


def without(rows, *areas: str):
    return [{key: value for key, value in row.items() if not key.startswith(areas)} for row in rows]


def test_figures_come_when_due_for_every_opponent(trained):
    due = [row["step"] for row in trained.rows if any(key.startswith("eval/") for key in row)]
    assert due == [0, 3, 4]  # every 3, the first and the last
    row = trained.rows[-1]
    names = ("win_rate", "draw_rate", "loss_rate", "return_mean", "invalid_rate", "failed")
    wanted = {f"eval/{opponent}/{name}" for opponent in OPPONENTS for name in names}
    wanted -= {"eval/self/win_rate", "eval/self/loss_rate"}  # each win among one's own is a loss as well
    assert wanted == {key for key in row if key.startswith("eval/")}
    for opponent in OPPONENTS[:-1]:
        rates = [row[f"eval/{opponent}/{name}_rate"] for name in ("win", "draw", "loss")]
        assert sum(rates) == pytest.approx(1) and row[f"eval/{opponent}/failed"] == 0


def test_evaluation_leaves_every_other_figure_of_training_as_it_is(trained, runs, tmp_path):
    alone = train(config(tmp_path, []))
    assert without(alone.rows, "time") == without(trained.rows, "time", "eval")


def test_a_saved_run_is_measured_as_it_was_between_updates(trained, runs):
    found = evaluate_run("run", OPPONENTS, games=6, runs_dir=runs)
    assert (found.step, found.weights, found.seed) == (4, "latest", 3)
    expected = {key: value for key, value in trained.rows[-1].items() if key.startswith("eval/")}
    assert {key: value for match in found.matches.values() for key, value in match_figures(match).items()} == expected


def test_other_seeds_give_other_games_and_all_are_held_out(trained, runs):
    first, second = (evaluate_run("run@2", ["random"], seed=seed, games=6, runs_dir=runs) for seed in (1, 2))
    seeds = [[episode.seed for episode in found.matches["random"].episodes] for found in (first, second)]
    assert first.step == 2 and not set(seeds[0]) & set(seeds[1]) and min(seeds[0] + seeds[1]) >= HELD_OUT


def test_policies_may_play_games_outside_training_at_another_temperature(trained, runs, tmp_path):
    saved.save_run(tmp_path / "old", steps=(5,))
    settings = {"every": 3, "opponents": ["random", "old@5"], "games": 6, "temperature": 0.25}
    cooler = train(config(tmp_path, [], evaluate=settings))
    assert without(cooler.rows, "time", "eval") == without(trained.rows, "time", "eval")
    found = evaluate_run("run", ["random", "old@5"], games=6, runs_dir=tmp_path)
    expected = {key: value for key, value in cooler.rows[-1].items() if key.startswith("eval/")}
    assert {key: value for match in found.matches.values() for key, value in match_figures(match).items()} == expected
    assert found.temperature == found.to_json()["temperature"] == 0.25
    turns = [turn for episode in found.matches["old@5"].episodes for turn in episode.turns]
    drawn = {(turn.policy, turn.completion.temperature) for turn in turns}
    assert drawn == {("learner", 0.25), ("old@5/learner", 1.0)}  # the other run's own setting holds for its policies
    assert not any(turn.trainable for turn in turns if turn.policy == "learner")


def test_greedy_games_give_one_reply_to_one_observation(trained, runs):
    greedy = evaluate_run("run", ["random"], games=40, temperature=0, runs_dir=runs).matches["random"]
    replies = {}
    for episode in greedy.episodes:
        for turn in episode.turns:
            if turn.completion is not None:
                replies.setdefault(turn.prompt_ids, set()).add(turn.completion.text)
    assert len(replies) > 3 and all(len(given) == 1 for given in replies.values())
    for value in (-0.1, 1e5, math.nan):
        with pytest.raises(ConfigError, match="temperature: must be from 0"):
            evaluate_run("run", ["random"], temperature=value, runs_dir=runs)


@pytest.mark.slow
def test_averaged_weights_play_where_asked_for(trained, runs, tmp_path):
    saved.save_run(tmp_path / "old", steps=(5,))
    settings = {"every": 3, "opponents": OPPONENTS, "games": 6, "policy_version": "ema"}
    averaged = train(config(tmp_path, [], evaluate=settings))
    assert without(averaged.rows, "time", "eval") == without(trained.rows, "time", "eval")
    found = evaluate_run("run@ema", OPPONENTS, games=6, runs_dir=runs)
    expected = {key: value for key, value in averaged.rows[-1].items() if key.startswith("eval/")}
    assert {key: value for match in found.matches.values() for key, value in match_figures(match).items()} == expected
    labels = {turn.policy for episode in found.matches["old@5"].episodes for turn in episode.turns}
    assert labels == {"learner", "old@5/learner"}


@pytest.mark.slow
def test_p4_a_run_with_opponents_that_was_killed_goes_on_bit_for_bit(trained, runs, tmp_path):
    shutil.copytree(runs, tmp_path / "again")
    folder = tmp_path / "again" / "run"
    shutil.rmtree(folder / "checkpoints" / "step-000004")
    again = train(config(tmp_path / "again", OPPONENTS), resume=True)
    assert without(again.rows, "time") == without(trained.rows, "time")


@pytest.mark.parametrize(
    ("opponent", "error", "message"),
    [
        ("randm", UnknownId, "unknown opponent 'randm'; did you mean 'random'"),
        ("gone@5", UnknownId, "unknown run 'gone'"),
        ("old", ConfigError, "'old' may be other weights after a resume; name a step, as in old@120"),
        ("old@ema", ConfigError, "name a step"),
        ("old@6", ConfigError, "no checkpoint of step 6; it has 5"),
        ("no.such:player", ConfigError, "cannot import"),
    ],
)
def test_opponents_that_cannot_play_are_told_before_anything_is_written(tmp_path, opponent, error, message):
    saved.save_run(tmp_path / "old", steps=(5,))
    with pytest.raises(error, match=message):
        train(config(tmp_path, ["random", opponent]))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_settings_that_do_not_fit_are_told_early(tmp_path):
    bandit = {"env": {"id": "bandit"}, "coordinator": {"id": "solo"}}
    with pytest.raises(ConfigError, match="'minimax' cannot play 'bandit'"):
        check_opponents(load_config(config(tmp_path, ["minimax"], **bandit)))
    with pytest.raises(ConfigError, match="'minimax' cannot play 'bandit'"):
        train(config(tmp_path, [], **bandit, warm_start={"player": "minimax", "steps": 1}))
    averaged = {"opponents": ["random"], "policy_version": "ema"}
    with pytest.raises(ConfigError, match="set train.ema above 0"):
        check_opponents(load_config(config(tmp_path, [], evaluate=averaged, train={"ema": 0.0})))
    check_opponents(load_config(config(tmp_path, ["random", "self", "minimax"])))


def test_one_agent_alone_is_measured_without_an_opponent(tmp_path):
    solo = {"env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}}, "coordinator": {"id": "solo"}}
    saved.save_run(tmp_path / "solo", **solo)
    found = evaluate_run("solo", runs_dir=tmp_path)
    match = found.matches["self"]
    assert found.games == match.overall.games == 4 and match.overall.success is not None
    assert {episode.rewards.get("agent", 0.0) for episode in match.episodes} <= {0.0, 1.0}
    with pytest.raises(ConfigError, match="nobody plays against"):
        evaluate_run("solo", ["random"], runs_dir=tmp_path)


def test_an_evaluation_is_written_into_the_runs_folder(runs):
    found = evaluate_run("old@5:ema", ["random", "minimax"], games=KEPT + 2, runs_dir=runs)
    file = found.save()
    assert file.parent == runs / "old" / "evaluations" and file.name.startswith("step-000005-ema-")
    assert json.loads(file.read_text()) == found.to_json()
    episodes = [episode_from_json(json.loads(line)) for line in file.with_suffix(".jsonl").read_text().splitlines()]
    assert len(episodes) == 2 * 2 * KEPT  # opponents, seats
    assert {episode.outcome["tested"] for episode in episodes} == {"player_0", "player_1"}


@pytest.mark.parametrize("games", [0, -3, 2.5, True])
def test_fewer_games_than_one_are_refused(runs, games):
    with pytest.raises(ConfigError, match=f"games is {games}; give a whole number, at least 1"):
        evaluate_run("old", ["random"], games=games, runs_dir=runs)


def test_an_opponent_without_an_action_of_the_game_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match="'always:zz' can never act as 'player_0'"):
        evaluate_run("old", ["always:zz"], games=1, runs_dir=runs)
    with pytest.raises(ConfigError, match="'always:zz' can never act as 'player_0'"):
        train(config(tmp_path, ["always:zz"]))


def test_an_evaluation_in_which_every_game_fails_says_why(tmp_path):
    saved.save_run(
        tmp_path / "broken",
        env={"id": "opentinker.testing:RaisingEnv", "kwargs": {"at": 1}},
        coordinator={"id": "solo"},
        agents={"*": {"policy": "learner"}},
    )
    with pytest.raises(RolloutFailed, match=r"all 3 games against 'self' failed; the first: .*the world broke"):
        evaluate_run("broken", games=3, runs_dir=tmp_path)
