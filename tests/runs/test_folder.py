import copy
import json
import logging
import math
import os
import signal
import subprocess
import sys

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError, RunExists, WriteFailed
from opentinker.runs import folder as module
from opentinker.runs import status
from opentinker.runs.folder import FORMAT, RunFolder, read_metrics


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """A held lock is not tried for long."""
    monkeypatch.setattr(status, "PATIENCE_SECONDS", 0.05)


def config_in(tmp_path, *overrides, **changes):
    data = {
        "name": "one",
        "runs_dir": str(tmp_path / "runs"),
        "env": {"id": "kuhn_poker", "kwargs": {"a": 1}},
        "coordinator": {"id": "turns"},
        "agents": {"*": {"policy": "learner", "system": "Größe: 1e-3\n\u2028"}},
        "policies": {"learner": {"model": "tiny"}},
        "train": {"steps": 40},
    }
    return load_config({**data, **changes}, overrides)


@pytest.fixture
def config(tmp_path):
    return config_in(tmp_path)


@pytest.fixture
def run(config):
    folder = RunFolder.open(config)
    yield folder
    folder.close()


def tree(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


# A name belongs to one run.


def test_a_new_run_describes_itself(run, config, tmp_path):
    assert run.path == tmp_path / "runs" / "one"
    assert load_config(run.path / "config.yaml") == config
    assert json.loads((run.path / "run.json").read_text())["format"] == FORMAT
    assert "Größe" in (run.path / "config.yaml").read_text(encoding="utf-8")


def test_p6_a_second_run_of_a_name_is_refused_with_a_clear_choice(run, config):
    run.write_metrics({"step": 7})
    run.close()
    before = tree(run.path)
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(
            RunExists,
            match=r"run 'one' exists in .*one \(7 of 40 steps\); go on with --resume .*, start another "
            "with name=…, or remove that folder",
        ):
            look(config)
    assert tree(run.path) == before
    RunFolder.check(config, resume=True)
    RunFolder.open(config, resume=True).close()


def test_p6_another_name_is_a_run_of_its_own(run, tmp_path):
    other = RunFolder.open(config_in(tmp_path, "name=two"))
    other.write_metrics({"step": 1})
    other.close()
    assert run.read_metrics() == []
    assert len(other.read_metrics()) == 1


HOLDER = """
import sys
from opentinker.config import load_config
from opentinker.runs.folder import RunFolder
folder = RunFolder.open(load_config(sys.argv[1]), resume=True)
print("held", flush=True)
sys.stdin.readline()
"""


def hold_elsewhere(path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path / "config.yaml")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_p6_a_second_process_is_refused_while_the_first_lives(run, config):
    run.close()
    with hold_elsewhere(run.path) as process:
        before = tree(run.path)
        who = rf", pid {process.pid} on \S+ since 20\S+ \(.*one\); wait or stop it"
        with pytest.raises(RunExists, match="run 'one' is being trained by another process" + who):
            RunFolder.open(config, resume=True)
        assert tree(run.path) == before
        process.communicate("\n")
    RunFolder.open(config, resume=True).close()


def test_p6_a_killed_process_holds_nothing(run, config):
    run.close()
    with hold_elsewhere(run.path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    taken_over = RunFolder.open(config, resume=True)
    taken_over.close()
    assert taken_over.path == run.path


def test_p6_the_same_process_cannot_hold_a_run_twice(run, config):
    with pytest.raises(RunExists, match="another process"):
        RunFolder.open(config, resume=True)


def test_resume_starts_a_run_that_is_not_there(config):
    RunFolder.check(config, resume=True)
    assert not os.path.exists(config.runs_dir)
    RunFolder.open(config, resume=True).close()


def test_p6_another_configuration_is_refused_with_the_keys_that_differ(run, tmp_path):
    run.write_metrics({"step": 0})
    run.close()
    other = config_in(
        tmp_path, "seed=3", "env.kwargs={b: null}", "agents.new={player: p}", "train.optim.lr=1e-3", "agents.*.memory=last"
    )
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(ConfigError) as caught:
            look(other, resume=True)
        first, *lines, allowed = str(caught.value).splitlines()
        assert first.startswith("run 'one' in ") and "go on with the same one or choose another name (name=…)" in first
        assert [line.strip() for line in lines if not line.startswith("  agents.new:")] == [
            "seed: 0 there, 3 now",
            "env.kwargs.a: 1 there, nothing now",
            "env.kwargs.b: nothing there, None now",
            "agents.*.memory: 'full' there, 'last' now",
            "train.optim.lr.start: 1e-05 there, 0.001 now (may change)",
            "train.optim.lr.end: 1e-05 there, 0.001 now (may change)",
        ]
        assert allowed.startswith("may change when a run goes on: train.checkpoint_every, ")
        assert any(line.startswith("  agents.new: nothing there, {") for line in lines)
    assert load_config(run.path / "config.yaml").seed == 0


def test_a_run_folder_may_move(run, tmp_path):
    run.close()
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = RunFolder.open(config_in(tmp_path, f"runs_dir={tmp_path / 'moved'}"), resume=True)
    moved.close()
    assert moved.path == tmp_path / "moved" / run.path.name


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("run.json", json.dumps({"format": FORMAT + 1}), f"has run format {FORMAT + 1}, this version reads {FORMAT}"),
        ("run.json", "{}", "run.json tells no format"),
        ("run.json", "[]", "run.json tells no format"),
        ("run.json", "{", "run.json tells no format"),
        ("config.yaml", "seed: [", "config.yaml is not what this version writes:\n.*not valid"),
        ("config.yaml", "future: 1", "config.yaml is not what this version writes:\n"),
        ("config.yaml", "", "config.yaml is not what this version writes:\n"),
    ],
)
def test_a_run_of_another_version_is_refused(run, config, file, text, message):
    run.write_metrics({"step": 0})
    run.close()
    (run.path / file).write_text(text)
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(ConfigError, match=message):
            look(config, resume=True)
    (run.path / file).unlink()
    if file == "run.json":
        with pytest.raises(ConfigError, match="run.json tells no format"):
            RunFolder.open(config, resume=True)


@pytest.mark.parametrize("content", ["notes.txt", "checkpoints", "metrics.jsonl", "episodes"])
@pytest.mark.parametrize("resume", [False, True])
def test_p6_a_folder_that_is_no_whole_run_is_refused_and_left_alone(config, tmp_path, content, resume):
    path = tmp_path / "runs" / "one"
    path.mkdir(parents=True)
    (path / content).mkdir()
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(RunExists, match=rf"one holds \['{content}'\], no config.yaml, and is no whole run; choose"):
            look(config, resume)
    assert tree(path) == [content]


def test_a_file_in_the_place_of_the_folder_is_refused(config, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one").touch()
    with pytest.raises(RunExists, match="one is a file; choose another name"):
        RunFolder.open(config)


def test_a_folder_that_cannot_be_made_is_told(config, tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError, match="runs_dir: cannot use the run's folder '.*one'"):
        RunFolder.open(config)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_runs_dir_that_the_system_refuses_is_told_and_not_at_any_length(config, name):
    bad = config.model_copy(update={"runs_dir": name})
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(ConfigError, match="runs_dir: cannot use the run's folder ") as caught:
            look(bad)
        assert len(str(caught.value)) < 400


# A name of which nothing came is free.


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_holds_nothing_is_begun_anew_with_another_configuration(run, tmp_path, resume):
    run.close()
    (run.path / "metrics.jsonl").touch()
    (run.path / "checkpoints" / ".partial-step-000000").mkdir(parents=True)
    other = config_in(tmp_path, "train.steps=3")
    RunFolder.check(other, resume)
    RunFolder.open(other, resume).close()
    assert load_config(run.path / "config.yaml") == other


def _row(run):
    run.write_metrics({"step": 0})


def _torn(run):
    (run.path / "checkpoints" / "step-000000").mkdir(parents=True)


def _rejected(run):
    (run.path / "checkpoints" / ".rejected-step-000001").mkdir(parents=True)


@pytest.mark.parametrize("holds", [_row, _torn, _rejected])
def test_a_run_that_holds_something_keeps_its_name(run, tmp_path, holds):
    holds(run)
    run.close()
    other = config_in(tmp_path, "seed=3")
    for look in (RunFolder.check, RunFolder.open):
        with pytest.raises(RunExists, match=r"\(0 of 40 steps\); go on with --resume"):
            look(other)
        with pytest.raises(ConfigError, match="has another configuration"):
            look(other, True)


def test_a_run_that_holds_nothing_yet_but_is_alive_is_left_alone(run, tmp_path):
    run.close()
    with hold_elsewhere(run.path) as process:
        with pytest.raises(RunExists, match="is being trained by another process"):
            RunFolder.open(config_in(tmp_path, "train.steps=3"))
        process.communicate("\n")
    assert load_config(run.path / "config.yaml").train.steps == 40


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kill_at", [1, 2])
def test_a_run_killed_before_it_began_begins_again(config, monkeypatch, kill_at):
    count = 0
    real = module.write_synced

    def write(path, text):
        nonlocal count
        count += 1
        if count == kill_at:
            path.with_name(f".{path.name}.partial").write_text(text[:3])
            raise Killed
        real(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_synced", write)
        with pytest.raises(Killed):
            RunFolder.open(config)
    RunFolder.check(config)
    folder = RunFolder.open(config)  # no --resume needed, nothing held
    folder.close()
    assert load_config(folder.path / "config.yaml") == config


# Lines.


def test_metrics_are_read_back(run):
    rows = [{"step": 0, "time_s": 0.1 + 0.2}, {"step": 1, "rollout/Größe/return_mean": -1e-300}]
    for row in rows:
        run.write_metrics(row)
    run.sync_metrics()
    assert run.read_metrics() == read_metrics(run.path) == rows
    assert (run.path / "metrics.jsonl").read_bytes().isascii()


def test_figures_that_are_not_finite_are_null_and_the_row_is_left_alone(run):
    row = {"step": 1, "train/learner/loss": math.nan, "a": math.inf, "b": -math.inf, "c": 1.5}
    before = copy.copy(row)
    run.write_metrics(row)

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    line = (run.path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse) == {"step": 1, "train/learner/loss": None, "a": None, "b": None, "c": 1.5}
    assert repr(row) == repr(before)


def test_no_metrics_yet_are_no_rows(run):
    assert run.read_metrics() == []
    run.sync_metrics()


def test_p5_the_metrics_are_on_disk_when_a_checkpoint_is_about_to_count(run, monkeypatch):
    run.write_metrics({"step": 1})
    synced = []
    monkeypatch.setattr(module.os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    run.sync_metrics()
    assert synced == [str(run.path / "metrics.jsonl")]


@pytest.mark.parametrize("cut", range(1, 13))
def test_a_torn_last_line_is_left_out_and_cut_off(run, cut):
    run.write_metrics({"step": 1})
    run.write_metrics({"step": 2})
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    assert run.read_metrics() == [{"step": 1}]
    run.rewind(2)
    run.write_metrics({"step": 2, "again": True})
    assert run.read_metrics() == [{"step": 1}, {"step": 2, "again": True}]


ODD = [b'{"step": 3, "\xed\xa0\x80": 1}', b'{"step": 3, "a": "\xff"}', b'{"step": true}', b"[" * 100_000]
"""A surrogate and a byte that are no UTF-8, and what json.loads takes or ends on otherwise."""


@pytest.mark.parametrize("line", [b"\0\0\0", b"{}", b"[]", b"nonsense", b'{"step": "1"}', b"\xff\xfe", b"null", b"", *ODD])
def test_a_line_that_is_no_row_is_left_out_with_a_warning(run, line, caplog):
    run.write_metrics({"step": 1})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    run.write_metrics({"step": 2})
    with caplog.at_level(logging.WARNING):
        assert run.read_metrics() == [{"step": 1}, {"step": 2}]
    assert "metrics.jsonl: line 2 is no row of metrics and is left out" in caplog.text
    run.rewind(5)
    assert (run.path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def _save(run, step):
    run.checkpoints.save(step, {}, lambda folder: (folder / "weights").touch())


def test_rewind_cuts_everything_after_a_step(run):
    for step in (0, 1, 2, 3, 1_000_000):
        run.write_metrics({"step": step})
        run.write_episodes(step, [{"id": f"{step}/0/0"}])
    for step in (0, 2, 3):
        _save(run, step)
    (run.path / "checkpoints" / ".partial-step-000004").mkdir()
    (run.path / "episodes" / "step-notes.jsonl").touch()
    run.rewind(2)
    assert [row["step"] for row in run.read_metrics()] == [0, 1, 2]
    assert tree(run.path / "episodes") == [f"step-00000{n}.jsonl" for n in (0, 1, 2)] + ["step-notes.jsonl"]
    assert sorted(entry.name for entry in (run.path / "checkpoints").iterdir()) == [
        ".rejected-step-000003",
        "step-000000",
        "step-000002",
    ]
    run.write_metrics({"step": 3})  # into the file that is there now
    assert [row["step"] for row in run.read_metrics()] == [0, 1, 2, 3]


def test_rewind_to_minus_one_leaves_nothing(run):
    run.write_metrics({"step": 0})
    run.write_episodes(0, [{"id": "0/0/0"}])
    _save(run, 0)
    run.rewind(-1)
    assert run.read_metrics() == []
    assert tree(run.path / "episodes") == []
    assert run.checkpoints.newest() is None


def test_rewind_names_the_steps_whose_figures_are_lost(run, caplog):
    for step in (0, 1, 3, 7):
        run.write_metrics({"step": step})
    with caplog.at_level(logging.WARNING):
        run.rewind(7)
        assert "metrics.jsonl has no line for step 2, 4-6, and these figures are lost" in caplog.text
        (run.path / "metrics.jsonl").unlink()
        run.rewind(6)
        assert "metrics.jsonl has no line for step 0-6, and" in caplog.text
        caplog.clear()
        for step in range(3):
            run.write_metrics({"step": step})
        run.rewind(2)
        assert caplog.text == ""


def test_metrics_that_are_a_folder_are_told(run, config):
    (run.path / "metrics.jsonl").mkdir()
    run.close()
    for look in (lambda: run.rewind(0), run.read_metrics, lambda: RunFolder.check(config), lambda: RunFolder.open(config)):
        with pytest.raises(ConfigError, match="metrics.jsonl is no file; move it elsewhere"):
            look()


def test_rewind_of_a_fresh_run_is_nothing(run):
    run.rewind(-1)
    assert run.read_metrics() == []


def test_episodes_are_ascii_lines_of_json(run):
    run.write_episodes(10, [{"text": "Größe 🂡 \ud800\u2028"}, {"text": "b"}])
    file = run.path / "episodes" / "step-000010.jsonl"
    assert file.read_bytes().isascii()
    assert [json.loads(line)["text"] for line in file.read_text().splitlines()] == ["Größe 🂡 \ud800\u2028", "b"]
    run.write_episodes(10, [{"text": "c"}])  # a step that is redone replaces its file
    assert len(file.read_text().splitlines()) == 1
    with pytest.raises(ValueError, match="Out of range float"):
        run.write_episodes(11, [{"reward": math.nan}])


# What cannot be written.


class Full:
    """An open file on a full disk."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(28, "No space left on device")
        count = self.file.write(bytes(data)[: self.room])
        self.room -= count
        return count

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 5])
def test_p5_metrics_on_a_full_disk_stop_the_run_and_it_goes_on_from_the_checkpoint(run, config, room):
    run.write_metrics({"step": 0})
    _save(run, 0)
    run._metrics = Full(run._metrics, room)
    with pytest.raises(WriteFailed, match=r"cannot write .*metrics\.jsonl: No space left on device \(file system .* free\)"):
        run.write_metrics({"step": 1})
    run.close()  # raises nothing
    assert (run.path / "metrics.jsonl").read_bytes() == b'{"step": 0}\n' + b'{"step": 1}\n'[:room]
    again = RunFolder.open(config, resume=True)
    again.rewind(0)
    again.close()
    assert again.read_metrics() == [{"step": 0}]
    assert (run.path / "metrics.jsonl").read_bytes() == b'{"step": 0}\n'


def test_p5_episodes_that_cannot_be_written_stop_the_run(run):
    (run.path / "episodes").touch()
    with pytest.raises(WriteFailed, match="cannot write .*step-000001.jsonl: .*what the last checkpoint holds is kept"):
        run.write_episodes(1, [{}])


def test_a_lock_that_is_a_pipe_is_refused_and_keeps_nobody_waiting(run, config):
    run.close()
    (run.path / "run.lock").unlink()
    os.mkfifo(run.path / "run.lock")
    assert not status.is_held(run.path)
    with pytest.raises(RunExists, match="run.lock is no file"):
        RunFolder.open(config, resume=True)
