"""`train`, `resume` and `runs` on real runs: what they say, their exit codes, and one run that several processes want."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from opentinker.cli import main
from opentinker.config import load_config
from opentinker.runs.changes import read_changes
from opentinker.runs.folder import read_metrics
from opentinker.runs.status import read_status

CONFIG = {
    "name": "run",
    "env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last"}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "rollout": {"groups": 2, "group_size": 4},
    "train": {"steps": 2, "checkpoint_every": 1},
}


def run(*arguments) -> int:
    try:
        main([str(item) for item in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which `opentinker train config.yaml` was called."""
    place = tmp_path_factory.mktemp("trained")
    (place / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    before = Path.cwd()
    os.chdir(place)
    try:
        assert run("train", "config.yaml", "--quiet") == 0
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy of that folder, where one stands."""
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_finished_run_is_lengthened_by_its_name(place, capsys):
    assert run("resume", "run", "train.steps=3", "loggers=[tensorboard]") == 0
    said = capsys.readouterr().out
    assert "training 2/3 from step 2" in said and "training 3/3" in said and "curves.png" in said
    assert [row["step"] for row in read_metrics(Path("runs/run"))] == [0, 1, 2, 3]
    assert load_config("runs/run/config.yaml").train.steps == 3
    assert [line["after_step"] for line in read_changes(Path("runs/run"))] == [2]
    assert list(Path("runs/run/tensorboard").iterdir())


def test_a_finished_run_says_so_and_how_it_is_lengthened(place, capsys):
    before = {file: file.read_bytes() for file in Path("runs/run").rglob("*") if file.is_file()}
    assert run("resume", "run") == 0
    said = capsys.readouterr().out
    assert "'run' is finished: all 2 steps are done" in said and "resume run train.steps=4\n" in said
    assert "eval run" in said and "training" not in said
    assert run("resume", "run", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["step"] == 2
    assert {file: file.read_bytes() for file in Path("runs/run").rglob("*") if file.is_file()} == before
    shutil.rmtree("runs/run/checkpoints/step-000002")  # then there is something to do
    assert run("resume", "run") == 0
    assert "is finished" not in capsys.readouterr().out


def test_a_run_goes_on_where_its_folder_moved(place, capsys, monkeypatch):
    Path("elsewhere").mkdir()
    shutil.move("runs/run", "elsewhere/another-name")
    monkeypatch.chdir(place / "elsewhere" / "another-name")
    assert run("resume", ".", "train.steps=3", "--quiet") == 0
    assert str(place / "elsewhere" / "another-name") in capsys.readouterr().out
    assert not (place / "runs" / "run").exists()
    assert read_status(place / "elsewhere" / "another-name").step == 3


BAD = {
    "unknown run": (["rum"], "unknown run 'rum'; did you mean 'run'?"),
    "another seed": (["run", "seed=9", "train.steps=5"], "seed: 0 there, 9 now\n  train.steps: 2 there, 5 now (may"),
    "shorter than it is": (["run", "train.steps=1"], "train.steps: "),
    "another name": (["run", "name=other"], "name: it follows the folder"),
    "another place": (["run", "runs_dir=other"], "runs_dir: it follows the folder"),
    "unknown key": (["run", "trian.steps=3"], "did you mean 'train'"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD.keys())
def test_p6_what_a_run_cannot_go_on_with_is_exit_code_2_and_changes_nothing(place, capsys, arguments, message):
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert run("resume", *arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("error: ") == 1 and "Traceback" not in said
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_programs_get_json_lines_and_nothing_else_on_stdout(place, capsys, monkeypatch):
    from opentinker import run as module

    plot = module.plot_curves
    monkeypatch.setattr(module, "plot_curves", lambda *rest: sys.stdout.write("somebody prints") and plot(*rest))
    assert run("train", "config.yaml", "name=other", "--json") == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["event"] for line in lines] == ["begin", "step", "step", "end"]
    assert lines[0] == {"event": "begin", "run": "other", "done": 0, "steps": 2}
    assert [line["row"] for line in lines[1:3]] == read_metrics(Path("runs/other"))[1:]
    end = lines[-1]
    assert end["run"] == "runs/other" and end["step"] == 2
    assert all(Path(end[name]).exists() for name in ("run", "curves", "metrics", "checkpoints"))
    assert "somebody prints" in said.err


def test_programs_are_told_of_bad_input_and_of_bugs_with_the_exit_code(place, capsys, monkeypatch):
    assert run("resume", "run", "seed=9", "--json") == 2
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["event"], line["kind"], line["exit_code"]) == ("error", "ConfigError", 2)
    assert "seed: 0 there, 9 now" in line["error"]
    assert run("resume", "rum", "--json") == 2
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["kind"] == "UnknownId"
    from opentinker import run as module

    monkeypatch.setattr(module, "train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["train", "config.yaml", "--json"])
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["kind"], line["exit_code"]) == ("ZeroDivisionError", 1)


def test_a_logger_whose_package_is_missing_is_exit_code_2_and_leaves_nothing(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert run("train", "config.yaml", "name=other", "loggers=[tensorboard]") == 2
    assert "pip install 'opentinker[tensorboard]'" in capsys.readouterr().err
    assert not Path("runs/other").exists()


def test_quiet_says_only_how_it_ended(place, capsys):
    assert run("resume", "run", "--quiet") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["run:", "curves:", "figures:", "weights:"]
    assert run("train", "config.yaml", "--quiet") == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: run 'run' exists")


def test_runs_lists_what_is_there(place, capsys, monkeypatch):
    shutil.copytree("runs/run", "runs/Größe [b]\n")
    status = Path("runs/Größe [b]\n/status.json")
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "failed", "error": "EnvError: no\nway"}))
    (Path("runs") / "notes").mkdir()
    assert run("runs") == 0
    head, first, second, why = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "state", "step", "figure", "age", "size", "(checkpoints)"]
    assert first.startswith("Gr\\xf6\\xdfe [b]\\n  failed    2/2   agent/return_mean ")
    assert second.startswith("run ") and " finished  2/2 " in second and second.endswith(" MB)")
    assert why == "Gr\\xf6\\xdfe [b]\\n failed: EnvError: no"
    assert run("runs", "runs", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in found] == ["Größe [b]\n", "run"]
    assert found[1]["state"] == "finished" and found[1]["size"] > found[1]["checkpoints_size"] > 1_000_000
    monkeypatch.chdir(place / "runs" / "notes")
    assert run("runs") == 2
    assert "cannot list runs in 'runs': No such file" in capsys.readouterr().err
    assert run("runs", ".") == 0
    assert capsys.readouterr().out == "no runs in .\n"


class Trainer:
    """A run that goes on for long, in a process of its own."""

    def __init__(self, place, *arguments):
        self.place = place
        command = [sys.executable, "-m", "opentinker.cli", *arguments, "--json"]
        self.process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        for line in self.process.stdout:
            if json.loads(line)["event"] == "step":
                return self
        raise AssertionError(self.process.stderr.read())

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_p6_a_run_that_is_being_trained_is_refused_to_others_until_it_ends(place, capsys):
    with Trainer(place, "resume", "run", "train.steps=100000", "train.checkpoint_every=100000") as first:
        for arguments in (["train", "config.yaml", "--resume"], ["resume", "run"], ["train", "config.yaml"]):
            assert run(*arguments) == 2
            said = capsys.readouterr().err
            assert f"is being trained by another process, pid {first.process.pid} on " in said and "wait or stop it" in said
        assert run("runs", "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["state"] == "running"
        first.process.send_signal(signal.SIGINT)
        out, err = first.process.communicate(timeout=120)
    assert first.process.returncode == 130
    assert "finishing step " in err and "saving; press again to stop at once" in err and "Traceback" not in err
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["kind"], last["exit_code"]) == ("error", "Interrupted", 130)
    status = read_status(place / "runs" / "run")
    assert status.state == "interrupted"
    assert (place / "runs" / "run" / "checkpoints" / f"step-{status.step:06d}").is_dir()
    assert run("runs", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "interrupted"


@pytest.mark.slow
def test_p6_a_killed_process_holds_nothing_and_the_run_is_listed_as_killed(place, capsys):
    with Trainer(place, "resume", "run", "train.steps=100000") as first:
        first.process.kill()
        first.process.wait()
        assert run("runs", "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["state"] == "killed"
    Path("runs/run/config.yaml").write_text(Path("runs/run/config.yaml").read_text().replace("100000", "100"))
    assert run("resume", "run", "--quiet") == 0


@pytest.mark.slow
def test_p5_a_second_ctrl_c_stops_a_long_step_at_once(place):
    long = ["rollout.groups=20000", "name=long", "train.steps=100000"]
    command = [sys.executable, "-m", "opentinker.cli", "train", "config.yaml", *long]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if "training 0/" in line:
                break
        time.sleep(1.0)  # in the middle of step 1, which takes long
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        assert process.stderr.readline() == "finishing step 1, saving; press again to stop at once\n"
        process.send_signal(signal.SIGINT)
        pressed = time.monotonic()
        out, err = process.communicate(timeout=120)
        assert time.monotonic() - pressed < 5
    assert process.returncode == 130
    assert err == "stopped at once; `opentinker resume RUN` goes on from the last checkpoint\n"
    assert read_status(place / "runs" / "long").state == "interrupted"
    assert [path.name for path in (place / "runs" / "long" / "checkpoints").iterdir()] == ["step-000000"]
