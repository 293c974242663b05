import json
import os
import time

import pytest

from opentinker.config import load_config
from opentinker.runs import listing, status
from opentinker.runs.folder import RunFolder
from opentinker.runs.listing import key_figure, list_runs


@pytest.fixture
def make(tmp_path):
    """Makes a run that has done some steps and lets it go; `state` is what it says of itself."""

    def make_(name, steps=0, state="finished", **row):
        folder = RunFolder.open(config(tmp_path, name))
        for step in range(steps):
            folder.write_metrics({"step": step, **row})
        if state:
            folder.status._set(state)
        else:
            (folder.path / "status.json").unlink(missing_ok=True)
        folder.close()
        return folder.path

    return make_


def config(tmp_path, name="one"):
    data = {
        "name": name,
        "runs_dir": str(tmp_path),
        "env": {"id": "bandit"},
        "coordinator": {"id": "solo"},
        "agents": {"*": {"policy": "learner"}},
        "policies": {"learner": {"model": "tiny"}},
        "train": {"steps": 40},
    }
    return load_config(data)


def states(tmp_path):
    return {run.name: run.state for run in list_runs(tmp_path)}


def test_the_state_of_every_run_is_told(make, tmp_path):
    make("done", 3, "finished")
    make("stopped", 3, "interrupted")
    make("broken", 3, "failed")
    make("killed", 3, "running")
    make("nothing", 0, None)
    make("older", 3, None)  # written before there was a status
    make("older-whole", 41, None)
    held = RunFolder.open(config(tmp_path, "alive"))
    held.write_metrics({"step": 0})
    held.status._set("running")
    starting = RunFolder.open(config(tmp_path, "starting"))
    assert states(tmp_path) == {
        "alive": "running",
        "broken": "failed",
        "done": "finished",
        "killed": "killed",
        "nothing": "empty",
        "older": "interrupted",
        "older-whole": "finished",
        "starting": "running",
        "stopped": "interrupted",
    }
    held.close()
    starting.close()
    assert states(tmp_path)["alive"] == "killed"


def test_a_run_is_summed_up(make, tmp_path):
    path = make("one", 3, **{"rollout/agent/return_mean": 0.5})
    (path / "checkpoints" / "step-000001").mkdir(parents=True)
    (path / "checkpoints" / "step-000001" / "weights").write_bytes(b"x" * 1000)
    (path / "checkpoints" / "link").symlink_to("/")
    os.utime(path / "metrics.jsonl", (time.time() - 7200, time.time() - 7200))
    for name in ("status.json", "config.yaml"):
        os.utime(path / name, (time.time() - 9000, time.time() - 9000))
    (run,) = list_runs(tmp_path)
    assert (run.step, run.steps, run.figure, run.value) == (2, 40, "rollout/agent/return_mean", 0.5)
    assert run.age_s == pytest.approx(7200, abs=60)
    others = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    assert run.checkpoints_size == 1000 + len("/")
    assert run.size == others + run.checkpoints_size


def test_what_is_no_run_is_passed_over_and_garbage_ends_nothing(make, tmp_path):
    make("one", 1)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("a: 1")  # of another program
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nested" / "run").mkdir(parents=True)
    garbage = make("garbage", 2, None)
    (garbage / "config.yaml").write_bytes(b"\xff\x00[")
    (garbage / "metrics.jsonl").write_bytes(b"\xff\xfe\n[]\nnull\n" + b"[" * 70_000 + b"\n")
    (garbage / "run.lock").unlink()
    (garbage / "run.lock").mkdir()
    folder = make("metrics-is-a-folder", 0)
    (folder / "metrics.jsonl").mkdir()
    found = {run.name: run for run in list_runs(tmp_path)}
    assert sorted(found) == ["garbage", "metrics-is-a-folder", "one"]
    assert (found["garbage"].state, found["garbage"].steps) == ("empty", None)


@pytest.mark.parametrize("name", ["Größe", "a b", "賭博", "a\nb", os.fsdecode(b"\xff\xfe"), "-x", "[red]"])
def test_odd_names_are_listed(make, tmp_path, name):
    make("one", 1).rename(tmp_path / name)
    (run,) = list_runs(tmp_path)
    assert run.name == name and run.state == "finished"
    json.dumps(run.name)


def test_a_folder_that_cannot_be_read_is_an_error_and_an_empty_one_holds_nothing(tmp_path):
    assert list_runs(tmp_path) == []
    with pytest.raises(OSError):
        list_runs(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ("", None)),
        ([{"step": 1}], ("", None)),
        ([{"rollout/a/return_mean": 1}, {"rollout/a/return_mean": 2}], ("rollout/a/return_mean", 1.0)),
        ([{"rollout/a/return_mean": 1}, {"eval/exploitability/ema": 0.25}], ("eval/exploitability/ema", 0.25)),
        ([{"eval/exploitability/ema": None, "eval/exploitability/last": 0.5}], ("eval/exploitability/last", 0.5)),
        ([{"eval/random/win_rate": 0.75, "rollout/a/win_rate": 0.5}], ("eval/random/win_rate", 0.75)),
        ([{"eval/exploitability/ema": 10**400, "eval/exploitability/last": 0.5}], ("eval/exploitability/last", 0.5)),
    ],
)
def test_the_most_telling_figure_is_the_latest_of_the_best_kind(rows, expected):
    assert key_figure(rows) == expected


def test_only_the_end_of_the_figures_is_read(make, tmp_path, monkeypatch):
    path = make("one", 0, "finished")
    with (path / "metrics.jsonl").open("w") as file:
        for step in range(3000):
            file.write(json.dumps({"step": step, "rollout/a/return_mean": float(step), "pad": "x" * 100}) + "\n")
        file.write('{"step": 3000, "rollout/')  # cut off by a kill
    reads = []
    real = listing.json.loads
    monkeypatch.setattr(listing.json, "loads", lambda line: reads.append(len(line)) or real(line))
    (run,) = list_runs(tmp_path)
    assert (run.step, run.value) == (2999, 2999.0)
    assert sum(reads) < listing.TAIL_BYTES


def test_only_runs_that_might_be_alive_are_looked_at_for_their_lock(make, tmp_path, monkeypatch):
    for number in range(5):
        make(f"done-{number}", 1)
    make("killed", 1, "running")
    looked = []
    monkeypatch.setattr(listing, "is_held", lambda path: looked.append(path.name) or status.is_held(path))
    list_runs(tmp_path)
    assert looked == ["killed"]
