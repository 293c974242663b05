"""What a run keeps when it goes on: its record of changed settings, and its checkpoints."""

import math
import os

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError
from opentinker.runs import checkpoints, status
from opentinker.runs import folder as module
from opentinker.runs.changes import read_changes
from opentinker.runs.folder import RunFolder, parse_run_ref


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def open_run(tmp_path, monkeypatch):
    """Opens the run `one`; what is still open is closed at the end, as if its process had been killed."""
    monkeypatch.setattr(status, "PATIENCE_SECONDS", 0.05)
    opened = []

    def open_(*overrides, resume=False, **train):
        data = {
            "name": "one",
            "runs_dir": str(tmp_path / "runs"),
            "env": {"id": "kuhn_poker"},
            "coordinator": {"id": "turns"},
            "agents": {"*": {"policy": "learner"}},
            "policies": {"learner": {"model": "tiny"}},
            "train": {"steps": 40, **train},
            "evaluate": {"every": 1},
        }
        for folder in opened:
            folder.close()
        opened.append(RunFolder.open(load_config(data, overrides), resume))
        return opened[-1]

    yield open_
    for folder in opened:
        folder.close()


def _save(run, step):
    run.checkpoints.save(step, {}, lambda folder: (folder / "weights").touch())


def tree(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


# A configuration that changed.


def begin(run, step):
    """The run has done so many steps and is let go."""
    for number in range(step + 1):
        run.write_metrics({"step": number})
    _save(run, step)
    run.close()


def go_on(open_run, *overrides, step=None):
    """Takes the run up as a process does that goes on with it."""
    folder = open_run(*overrides, resume=True)
    folder.rewind(folder.checkpoints.newest().step if step is None else step)
    return folder.path


def test_p6_an_allowed_change_becomes_the_runs_own_and_is_recorded(open_run, caplog):
    run = open_run()
    begin(run, 30)
    path = go_on(open_run, "train.steps=60", "train.keep_last=2", "loggers=[tensorboard]")
    assert load_config(path / "config.yaml").train.steps == 60
    (line,) = read_changes(path)
    assert line["after_step"] == 30
    assert line["changed"] == {
        "train.steps": {"old": 40, "new": 60},
        "train.keep_last": {"old": None, "new": 2},
        "loggers": {"old": [], "new": ["tensorboard"]},
    }
    assert caplog.text == ""  # constant schedules: nothing to say about the training
    go_on(open_run, "train.steps=60", "train.keep_last=2", "loggers=[tensorboard]")
    assert read_changes(path) == [line]


def test_a_change_that_is_not_gone_on_with_leaves_everything_as_it_was(open_run):
    run = open_run()
    begin(run, 30)
    before = (run.path / "config.yaml").read_bytes()
    RunFolder.check(load_config(run.path / "config.yaml", ["train.steps=60"]), resume=True)
    open_run("train.steps=60", resume=True).close()  # and is killed before it begins
    assert (run.path / "config.yaml").read_bytes() == before
    assert read_changes(run.path) == []


@pytest.mark.parametrize("kill_at", [1, 2, 3])
def test_a_change_that_is_killed_while_it_is_recorded_is_recorded_once_or_not_at_all(open_run, monkeypatch, kill_at):
    run = open_run()
    begin(run, 30)
    count = 0

    def write(path, text):
        nonlocal count
        count += 1
        if count == kill_at:
            raise Killed
        _write_synced(path, text)

    _write_synced = module.write_synced
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_synced", write)
        patch.setattr(module.changes, "write_synced", write)
        with pytest.raises(Killed):
            go_on(open_run, "train.steps=60")  # writes metrics, the record, the configuration
    held = load_config(run.path / "config.yaml").train.steps
    assert held == 40
    path = go_on(open_run, f"train.steps={50 if kill_at == 3 else 60}")
    held = load_config(path / "config.yaml").train.steps
    assert [line["changed"]["train.steps"]["new"] for line in read_changes(path)] == [held]


def test_p6_a_rewind_moves_the_record_of_changes_with_it(open_run):
    run = open_run()
    begin(run, 10)
    path = go_on(open_run, "train.steps=50")
    again = open_run("train.steps=50", resume=True)
    begin(again, 20)
    go_on(open_run, "train.steps=60")
    assert [line["after_step"] for line in read_changes(path)] == [10, 20]
    go_on(open_run, "train.steps=60", step=5)
    assert [line["after_step"] for line in read_changes(path)] == [5, 5]
    go_on(open_run, "train.steps=60", step=-1)
    assert read_changes(path) == []


def test_p6_a_run_is_not_made_shorter_than_it_is(open_run):
    run = open_run()
    begin(run, 30)
    with pytest.raises(ConfigError, match=r"train\.steps: .*one has a checkpoint of step 30 already \(given: 29\)"):
        RunFolder.check(load_config(run.path / "config.yaml", ["train.steps=29"]), resume=True)
    go_on(open_run, "train.steps=30")


# Checkpoints that are kept.


def kept(run):
    return run.checkpoints.steps()


def train_steps(run, *values):
    """One step after another, each with its figure and a checkpoint."""
    for value in values:
        step = max([row["step"] for row in run.read_metrics()], default=-1) + 1
        run.write_metrics({"step": step, **({} if value is ... else {"eval/x": value})})
        _save(run, step)
        run.prune(step)


def test_all_checkpoints_are_kept_by_default(open_run):
    run = open_run()
    train_steps(run, ..., ..., ...)
    assert kept(run) == [0, 1, 2]


def test_the_last_k_are_kept(open_run):
    run = open_run(keep_last=2)
    train_steps(run, ..., ..., ..., ...)
    assert kept(run) == [2, 3]
    assert tree(run.path / "checkpoints" / "step-000002") == ["manifest.json", "policies", "policies/weights", "state.json"]
    assert not list((run.path / "checkpoints").glob(".*"))


@pytest.mark.parametrize(
    ("goal", "values", "steps"),
    [
        ("min", (5, 1, 3, 2, 4), [1, 3, 4]),
        ("max", (5, 1, 3, 2, 4), [0, 3, 4]),
        ("min", (5, 1, 1, 1, 1), [1, 3, 4]),  # the earliest among equals
        ("min", (3, math.nan, None, math.inf, ...), [0, 3, 4]),
        ("max", (3, math.nan, None, -math.inf, True), [0, 3, 4]),
        ("min", (math.nan, 2, 3, 4, 5), [1, 3, 4]),
        ("min", (4, 3, 2, 1, 0), [3, 4]),
    ],
)
def test_the_best_is_kept_beside_the_last_k(open_run, goal, values, steps):
    run = open_run(keep_last=2, keep_best={"figure": "eval/x", "goal": goal})
    train_steps(run, *values)
    assert kept(run) == steps
    assert parse_run_ref(f"{run.path}@best").load().step == (steps[0] if len(steps) == 3 else 4)


def test_while_no_checkpoint_has_the_figure_none_is_deleted_and_near_keys_are_named_once(open_run, caplog):
    run = open_run(keep_last=1, keep_best={"figure": "eval/xx", "goal": "min"})
    train_steps(run, 3, 2, 1)
    assert kept(run) == [0, 1, 2]
    assert caplog.text.count("has no figure eval/xx") == 1
    assert "did you mean eval/x?" in caplog.text and "every checkpoint is kept" in caplog.text


def test_a_rewind_forgets_the_best_of_what_is_undone(open_run):
    settings = {"keep_last": 1, "keep_best": {"figure": "eval/x", "goal": "min"}}
    run = open_run(**settings)
    train_steps(run, 5, 4, 3)
    assert kept(run) == [2]
    train_steps(run, 9)
    assert kept(run) == [2, 3]
    again = open_run(resume=True, **settings)
    again.rewind(2)
    train_steps(again, 7, 8)
    assert kept(again) == [2, 4]
    assert parse_run_ref(f"{again.path}@best").load().step == 2


@pytest.mark.parametrize("kill_at", range(1, 30))
def test_a_kill_while_old_checkpoints_are_deleted_loses_none_that_count(open_run, monkeypatch, kill_at):
    run = open_run(keep_last=1, keep_best={"figure": "eval/x", "goal": "min"})
    train_steps(run, 5, 1, 2, 3)
    assert kept(run) == [1, 3]
    count = 0

    def instant(real):
        def call(*arguments, **rest):
            nonlocal count
            count += 1
            if count == kill_at:
                raise Killed
            return real(*arguments, **rest)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "fsync", "unlink", "rmdir"):
            patch.setattr(checkpoints.os, name, instant(getattr(os, name)))
        try:
            train_steps(run, 0.5)
        except Killed:
            pass
        else:
            assert kill_at > 10
    store = checkpoints.CheckpointStore(run.path / "checkpoints")
    assert store.newest().step in (3, 4)
    assert all(store.load(step) for step in store.steps()), "one is half deleted"
    store.load(1 if store.newest().step == 3 else 4)  # the best
    if store.newest().step == 4 and kept(run) != [4]:
        run.prune(4)
    store.sweep()
    assert all(store.load(step) for step in store.steps())
    assert not list(store.folder.glob(".*"))
