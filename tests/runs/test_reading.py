from pathlib import Path

import pytest

from opentinker.config import load_config
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.runs.folder import RunFolder
from opentinker.runs.reading import RunRef, find_run, parse_run_ref


@pytest.fixture
def open_run(tmp_path):
    """Opens the run `one`; what is still open is closed at the end, as if its process had been killed."""
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


@pytest.fixture
def named(open_run, tmp_path, monkeypatch):
    run = open_run()
    for step in (0, 3, 12):
        run.write_metrics({"step": step, "eval/x": -step})
        _save(run, step)
    run.close()
    monkeypatch.chdir(tmp_path)
    return run.path


def test_a_run_is_found_by_its_name_and_by_its_path(named, tmp_path, monkeypatch):
    assert find_run("one") == find_run("runs/one") == Path("runs/one")
    assert find_run(str(named)) == named
    assert find_run("one", tmp_path / "runs") == named
    monkeypatch.chdir(named)
    assert find_run(".").resolve() == named
    monkeypatch.chdir(tmp_path / "runs")
    assert find_run("one") == Path("one")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("on", r"unknown run 'on'; did you mean 'one'\? \(looked in runs\)"),
        ("runs/onne", r"unknown run 'onne'; did you mean 'one'\? \(looked in runs\)"),
        ("runs", "runs is a folder, but no run's"),
        ("nowhere/one", r"\(looked in nowhere\)"),
        ("x" * 300, "unknown run"),
        ("a\0b", "unknown run"),
    ],
)
def test_an_unknown_run_is_told_with_near_names(named, text, message):
    with pytest.raises(UnknownId, match=message):
        find_run(text)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("", {}),
        ("@latest", {}),
        ("@3", {"step": 3}),
        ("@000012", {"step": 12}),
        ("@best", {"best": True}),
        ("@ema", {"ema": True}),
        ("@3:ema", {"step": 3, "ema": True}),
        ("@latest:ema", {"ema": True}),
        ("@best:ema", {"best": True, "ema": True}),
    ],
)
def test_versions_of_a_run_are_read(named, version, expected):
    assert parse_run_ref("one" + version) == RunRef(Path("runs/one"), **expected)


@pytest.mark.parametrize("version", ["", "3:", "x", "-1", "best:x", "ema:3", "3.5", "ema:ema"])
def test_what_is_no_version_is_told(named, version):
    with pytest.raises(ConfigError, match="names no version; use one@STEP, @latest, @best or @ema"):
        parse_run_ref("one@" + version)


def test_a_folder_above_a_run_may_have_the_mark_of_versions_in_its_name(named, tmp_path):
    (tmp_path / "runs").rename(tmp_path / "me@home")
    assert parse_run_ref("me@home/one@3") == RunRef(Path("me@home/one"), 3)
    assert parse_run_ref("me@home/one") == RunRef(Path("me@home/one"))


def test_the_checkpoint_that_is_named_is_loaded(named):
    assert parse_run_ref("one").load().step == 12
    assert parse_run_ref("one@3").load().step == 3
    with pytest.raises(ConfigError, match="'runs/one' has no checkpoint of step 4; it has 0, 3, 12"):
        parse_run_ref("one@4").load()
    with pytest.raises(ConfigError, match="follows no figure, so there is no @best: set train.keep_best, or name a step"):
        parse_run_ref("one@best").load()


def test_a_run_without_a_checkpoint_is_told(open_run):
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        parse_run_ref(str(open_run().path)).load()


def test_a_checkpoint_that_the_run_drops_while_it_is_read_is_passed_over_for_the_newer_one(named, open_run, monkeypatch):
    run = open_run(resume=True)
    load = CheckpointStore.load

    def drop(store, step):
        if step == 12:
            _save(run, 13)
            store.prune({13})
        return load(store, step)

    monkeypatch.setattr(CheckpointStore, "load", drop)
    assert parse_run_ref("one").load().step == 13
