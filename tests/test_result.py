"""A run is read from what lies in its folder, torn or whole."""

import json

import pytest

import opentinker
from opentinker.config import dump_yaml, load_config
from opentinker.errors import ConfigError, UnknownId
from opentinker.report.record import episode_to_json
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.testing import play_game

ROWS = [{"step": 0, "time_s": 1.5}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]


def game(seed):
    return play_game("bandit", "solo", lambda *asked: "a", seed=seed)


@pytest.fixture
def folder(tmp_path):
    """A run of two steps with episodes of both, one evaluation and the checkpoint of step 2."""
    path = tmp_path / "runs" / "small"
    config = {
        "name": "small",
        "seed": 5,
        "env": {"id": "bandit"},
        "coordinator": {"id": "solo"},
        "agents": {"agent": {"policy": "learner"}},
        "policies": {"learner": {"model": "tiny"}},
    }
    for place in ("episodes", "evaluations"):
        (path / place).mkdir(parents=True)
    (path / "config.yaml").write_text(dump_yaml(load_config(config).dump()))
    (path / "run.json").write_text('{"format": 1}')
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"step": 3, "lo')
    for step in (10, 9):
        line = json.dumps(episode_to_json(game(step), [0.5]))
        (path / "episodes" / f"step-{step:06d}.jsonl").write_text(line + "\n")
    (path / "evaluations" / "one.jsonl").write_text(json.dumps(episode_to_json(game(1))) + "\n[1]\n{}\n{\"turns\": 3}\nhalf")
    CheckpointStore(path / "checkpoints").save(
        2, {}, lambda policies: (policies / "learner" / "weights").mkdir(parents=True)
    )
    return path


def test_a_run_is_found_by_its_folder_and_by_its_name(folder, monkeypatch):
    monkeypatch.chdir(folder.parents[1])
    for name in (folder, str(folder), "small", "runs/small"):
        run = opentinker.read_run(name)
        assert (run.folder.resolve(), run.config.name, run.seed) == (folder, "small", 5)
    with pytest.raises(UnknownId, match="did you mean 'small'"):
        opentinker.read_run("smal")


def test_figures_are_read_oldest_first_and_a_torn_line_is_left_out(folder):
    run = opentinker.read_run(folder)
    assert run.rows == ROWS
    assert run.figure("loss") == [(1, 2.0), (2, 1.0)]
    assert (run.last("loss"), run.last("time_s")) == (1.0, 1.5)
    with pytest.raises(KeyError, match="'los' was never measured"):
        run.last("los")


def test_episodes_come_back_in_the_order_of_their_steps(folder):
    run = opentinker.read_run(folder)
    assert [episode.seed for episode in run.episodes()] == [9, 10]
    assert next(run.episodes()).turns[0].reply == "a"
    assert list(run.episodes("play")) == []


def test_lines_that_are_no_episode_are_left_out(folder):
    assert [episode.seed for episode in opentinker.read_run(folder).episodes("evaluation")] == [1]


def test_an_unknown_kind_of_episodes_is_an_error(folder):
    with pytest.raises(KeyError, match="trainig"):
        next(opentinker.read_run(folder).episodes("trainig"))


def test_weights_lie_in_the_newest_checkpoint_or_the_one_that_is_named(folder):
    run = opentinker.read_run(folder)
    assert run.weights("learner") == run.weights("learner", 2)
    assert run.weights("learner") == folder / "checkpoints" / "step-000002" / "policies" / "learner" / "weights"
    with pytest.raises(UnknownId, match="did you mean 'learner'"):
        run.weights("lerner")
    with pytest.raises(ConfigError):
        run.weights("learner", 1)


def test_reading_changes_nothing_and_needs_no_torch(folder):
    import subprocess
    import sys

    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code = f"import opentinker, sys; list(opentinker.read_run({str(folder)!r}).episodes()); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
