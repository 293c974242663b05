import fcntl
import json
import logging
import os

import pytest

from opentinker.errors import ConfigError, Interrupted
from opentinker.runs import status as module
from opentinker.runs.status import StatusFile, hold, is_held, read_status


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_a_run_says_that_it_runs_and_that_it_finished(tmp_path, clock):
    file = StatusFile(tmp_path, 40)
    with file.follow():
        assert json.loads((tmp_path / "status.json").read_text())["state"] == "running"
        file.step(40)
    data = json.loads((tmp_path / "status.json").read_text())
    assert data.pop("updated").endswith("+00:00")
    assert data == {"state": "finished", "step": 40, "steps": 40, "error": "", "traceback": ""}


def test_steps_are_written_at_most_every_few_seconds(tmp_path, clock):
    file = StatusFile(tmp_path, 40)
    seen = []
    with file.follow():
        for step in range(1, 6):
            clock[0] += 0.75
            file.step(step)
            seen.append(read_status(tmp_path).step)
    assert seen == [-1, -1, 3, 3, 3]  # 2.25 s after the start, and not again before 4.25 s
    assert read_status(tmp_path).step == 5


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (Interrupted(15, "stopped after step 3"), "interrupted", "stopped after step 3"),
        (KeyboardInterrupt(), "interrupted", "stopped at once by a second signal"),
        (ConfigError("seed: wrong"), "failed", "ConfigError: seed: wrong"),
        (ZeroDivisionError("Größe \ud800"), "failed", "ZeroDivisionError: Größe \ud800"),
        (SystemExit(3), "failed", "SystemExit: 3"),
    ],
)
def test_the_error_that_ended_it_is_told_with_its_traceback(tmp_path, error, state, message):
    file = StatusFile(tmp_path, 40)
    with pytest.raises(type(error)), file.follow():
        file.step(7)
        raise error
    status = read_status(tmp_path)
    assert (status.state, status.step, status.error) == (state, 7, message)
    assert ("in test_the_error_that_ended_it" in status.traceback) == (state == "failed")


def test_a_long_traceback_keeps_its_end(tmp_path):
    with pytest.raises(ValueError), StatusFile(tmp_path, 1).follow():
        raise ValueError("x" * 50_000 + " the end")
    assert len(read_status(tmp_path).traceback) == module.MOST_TRACEBACK
    assert read_status(tmp_path).traceback.endswith("the end\n")


def test_what_cannot_be_written_is_said_once_and_ends_nothing(tmp_path, clock, monkeypatch, caplog):
    file = StatusFile(tmp_path, 3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    with caplog.at_level(logging.WARNING), file.follow():
        for step in (1, 2, 3):
            clock[0] += 10
            file.step(step)
    assert caplog.text.count("status.json cannot be written, the run goes on") == 1
    assert os.listdir(tmp_path) == []
    monkeypatch.undo()
    gone = StatusFile(tmp_path / "gone", 3)
    with gone.follow():
        pass


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", '{"state": "running"}', "[" * 100_000, "\xff"]
    + [
        json.dumps({"state": "x", "step": 1, "steps": 2, "error": "", "traceback": "", "updated": ""}),
        json.dumps({"state": "running", "step": "1", "steps": 2, "error": "", "traceback": "", "updated": ""}),
        json.dumps({"state": "running", "step": 1, "steps": 2, "error": None, "traceback": "", "updated": ""}),
        json.dumps({"state": ["running"], "step": 1, "steps": 2, "error": "", "traceback": "", "updated": ""}),
    ],
)
def test_a_file_that_is_no_status_is_none(tmp_path, text):
    (tmp_path / "status.json").write_text(text, encoding="latin-1")
    assert read_status(tmp_path) is None
    assert read_status(tmp_path / "nothing") is None


def test_a_held_lock_is_seen_and_whoever_looks_takes_it_from_nobody(tmp_path):
    assert not is_held(tmp_path)
    with (tmp_path / "run.lock").open("a+") as lock:
        hold(lock, tmp_path)
        assert is_held(tmp_path) and is_held(tmp_path)
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
    assert not is_held(tmp_path)


def test_a_start_waits_for_those_who_only_look(tmp_path, monkeypatch):
    with (tmp_path / "run.lock").open("a+") as lock, (tmp_path / "run.lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)  # a look, at its longest
        monkeypatch.setattr(module, "sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))
        hold(lock, tmp_path)
        assert is_held(tmp_path)
