import fcntl
import json

import pytest

from opentinker.errors import ConfigError
from opentinker.report.runs import RunRecord, json_line, read_runs


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "kuhn"
    made.mkdir()
    (made / "config.yaml").write_text("name: kuhn\ntrain: {steps: 3}\n")
    (made / "metrics.jsonl").write_text("".join(json.dumps({"step": step, "a": 1.0}) + "\n" for step in range(3)))
    return made


def test_a_run_without_a_status_is_told_by_its_steps(folder):
    record = RunRecord.read(folder)
    assert (record.name, record.step, record.steps, record.state, record.torn) == ("kuhn", 2, 3, "interrupted", 0)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3}\n')
    assert RunRecord.read(folder).state == "finished"
    (folder / "metrics.jsonl").unlink()
    assert RunRecord.read(folder).state == "empty"


@pytest.mark.parametrize(
    ("said", "held", "state"),
    [
        ("running", True, "running"),
        ("running", False, "killed"),
        ("failed", False, "failed"),
        ("finished", True, "finished"),
    ],
)
def test_the_status_and_the_lock_tell_the_state(folder, said, held, state):
    status = {"state": said, "step": 2, "steps": 3, "error": "e", "traceback": "t", "updated": "u"}
    (folder / "status.json").write_text(json.dumps(status))
    with (folder / "run.lock").open("w") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        record = RunRecord.read(folder)
    assert (record.state, record.error, record.traceback, record.updated) == (state, "e", "t", "u")


def test_torn_lines_are_counted_and_left_out(folder):
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'[1]\n\xff\n\n{"step": "3"}\n{"step": true}\n' + b"[" * 100_000 + b'\n{"step": 4, "a')
    record = RunRecord.read(folder)
    assert [row["step"] for row in record.rows] == [0, 1, 2]
    assert record.torn == 6


def test_a_configuration_that_is_no_yaml_stays_text(folder):
    (folder / "config.yaml").write_bytes(b"a: [\xff")
    record = RunRecord.read(folder)
    assert record.config == "a: [\ufffd"
    assert (record.name, record.steps) == ("kuhn", None)
    (folder / "config.yaml").unlink()
    assert RunRecord.read(folder).config is None


def test_what_is_no_run_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="holds neither config.yaml nor metrics.jsonl"):
        RunRecord.read(tmp_path)
    with pytest.raises(ConfigError, match="is no folder of a run"):
        RunRecord.read(folder / "config.yaml")
    with pytest.raises(ConfigError, match="named twice"):
        read_runs([folder, tmp_path / "kuhn" / ".." / "kuhn"])


def test_runs_of_one_name_are_told_apart_by_their_folders(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("name: kuhn")
    assert [record.name for record in read_runs([folder, other])] == [str(folder), str(other)]


def test_episodes_are_found_wherever_they_are_kept(folder):
    for name in (
        "episodes/step-000010.jsonl",
        "episodes/step-000002.jsonl",
        "play/a.jsonl",
        "evaluations/x/b.jsonl",
        "evaluations/c.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    found = [(kind, file.name) for kind, file in RunRecord.read(folder).episode_files()]
    assert found == [
        ("training", "step-000002.jsonl"),
        ("training", "step-000010.jsonl"),
        ("play", "a.jsonl"),
        ("evaluation", "b.jsonl"),
    ]


@pytest.mark.parametrize(("line", "row"), [(b'{"a": 1}', {"a": 1}), (b"[]", None), (b"{", None), (b"\xff\xfe{\0}\0", None)])
def test_a_line_is_an_object_or_nothing(line, row):
    assert json_line(line) == row


def test_a_line_that_a_running_run_is_writing_is_not_torn(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "a')
    assert RunRecord.read(folder).torn == 1
    with (folder / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = RunRecord.read(folder)
    assert (record.state, record.torn, record.step) == ("running", 0, 2)
