"""The command: exit codes, messages without tracebacks, nothing left behind by bad input."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from opentinker.cli import main

GOOD = {
    "name": "run",
    "env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last"}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "rollout": {"groups": 2, "group_size": 4},
    "train": {"steps": 2, "checkpoint_every": 1},
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    return path


def _run(*arguments) -> int:
    try:
        main([str(item) for item in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_train_says_where_things_are_and_what_comes_next(file, capsys):
    assert _run("train", file) == 0
    said = capsys.readouterr().out
    assert "training 2/2" in said and "curves.png" in said and "next:" in said
    assert (file.parent / "runs" / "run" / "report" / "curves.png").exists()
    assert _run("train", file) == 2
    assert "--resume" in capsys.readouterr().err
    assert _run("train", file, "--resume") == 0


BAD = {
    "unknown key": (["trian.steps=3"], r"trian: unknown key; did you mean 'train'"),
    "unknown key deep inside": (["policies.learner.sampling.temprature=1"], "did you mean 'temperature'"),
    "wrong type": (["train.steps=many"], "train.steps"),
    "agent without a policy": (["agents={other: {policy: learner}}"], "agent 'agent'.*no seat"),
    "policy nobody has": (["agents.agent.policy=lerner"], "did you mean 'learner'"),
    "policy nobody uses": (["policies.idle={model: tiny}"], r"policies \['idle'\] are used by no agent"),
    "environment": (["env.id=bandid"], "did you mean 'bandit'"),
    "argument of the environment": (["env.kwargs={meens: [1]}"], "means"),
    "coordinator": (["coordinator.id=sollo"], "did you mean 'solo'"),
    "credit": (["train.credit=grppo"], "did you mean"),
    "credit setting": (["train.credit_kwargs={epsilonn: 1}"], "epsilon"),
    "loss": (["train.loss=vanila"], "vanilla"),
    "player": (["warm_start={player: random_legle, steps: 1}"], "random_legal"),
    "metric that cannot be measured": (["evaluate.metrics=[exploitability]"], "tree"),
    "nothing to train": (["policies.learner.trainable=false"], "nothing would be trained"),
    "only averages play": (["agents.agent.policy=learner@ema", "train.ema=0.9"], "nothing would be trained.*learner@ema"),
    "moves longer than max_tokens": (
        ["agents.agent.format=tag", "warm_start={player: random_legal, steps: 1}"],
        "room for 1: raise max_tokens",
    ),
    "model that does not exist": (["policies.learner.model=./no/such/model"], "no/such/model"),
    "nucleus in training": (["policies.learner.sampling.top_p=0.9"], "top_p"),
    "context shorter than the prompt": (["agents.agent.system='" + "long " * 400 + "'"], "room for"),
    "override without value": (["train.steps"], "key.path=value"),
    "python tag": (["env.kwargs=!!python/object/apply:os.system [echo]"], "tags such as"),
    "name that leaves the folder": (["name=../evil"], "name"),
}


@pytest.mark.parametrize("overrides, message", BAD.values(), ids=BAD.keys())
def test_bad_input_is_exit_code_2_one_message_and_nothing_on_disk(file, capsys, overrides, message):
    before = sorted(file.parent.rglob("*"))
    assert _run("train", file, *overrides) == 2
    said = capsys.readouterr()
    assert re.search(message, said.err), said.err
    assert said.err.count("error: ") == 1 and "Traceback" not in said.err
    assert sorted(file.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: 1\na: 2\n", "duplicate key 'a'"),
        ("!!python/object/apply:os.system ['echo hi']", "tags such as"),
        ("- a\n- b\n", "mapping"),
        ("", "mapping"),
        ("a: [", "is not valid"),
        ("name: \ud800".encode("utf-8", "surrogatepass"), "cannot read"),
    ],
)
def test_a_file_that_is_no_configuration(file, capsys, text, message):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert _run("train", file) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file(tmp_path, capsys):
    assert _run("train", tmp_path / "none.yaml") == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_tokenizer_without_end_of_text(file, capsys, tmp_path):
    from opentinker.sampling.tiny import build_tiny

    model, tokenizer = build_tiny(0)
    tokenizer.eos_token = None
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    assert _run("train", file, f"policies.learner.model={tmp_path / 'model'}") == 2
    assert "end" in capsys.readouterr().err


def test_a_run_folder_of_another_version(file, capsys):
    assert _run("train", file) == 0
    about = Path("runs/run/run.json")
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": 99}))
    assert _run("train", file, "--resume") == 2
    assert "format 99" in capsys.readouterr().err


def test_a_full_disk_at_a_checkpoint_is_exit_code_1_and_one_line(file, capsys, monkeypatch):
    from opentinker.errors import CheckpointError
    from opentinker.runs import checkpoints

    real = checkpoints.write_synced

    def full(path, text):
        if "step-000001" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, text)

    monkeypatch.setattr(checkpoints, "write_synced", full)
    assert _run("train", file) == 1
    said = capsys.readouterr().err
    assert re.search(r"^error: cannot save step 1 in .*No space left .*; the last good checkpoint is kept$", said, re.M)
    assert said.count("error: ") == 1 and "Traceback" not in said
    assert [entry.name for entry in Path("runs/run/checkpoints").iterdir()] == ["step-000000"]
    with pytest.raises(CheckpointError):
        main(["train", str(file), "--resume", "--debug"])
    monkeypatch.undo()
    monkeypatch.chdir(file.parent)
    assert _run("train", file, "--resume") == 0


def test_any_other_fault_of_the_system_is_exit_code_1_and_one_line(file, capsys, monkeypatch):
    from opentinker.runs.folder import RunFolder

    def full(self, row):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_metrics", full)
    assert _run("train", file) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: [Errno 28] No space left on device"
    with pytest.raises(OSError, match="No space"):
        main(["train", str(file), "--debug"])


def test_debug_shows_the_traceback_wherever_it_stands(file):
    for arguments in (["--debug", "train", str(file), "trian=1"], ["train", str(file), "trian=1", "--debug"]):
        from opentinker.errors import ConfigError

        with pytest.raises(ConfigError):
            main(arguments)


def test_config_prints_the_reference_and_envs_lists(capsys):
    assert _run("config") == 0
    assert "checkpoint_every: 50" in capsys.readouterr().out
    assert _run("envs", "list") == 0
    assert "kuhn_poker" in capsys.readouterr().out


def test_envs_check_tells_sound_from_broken(capsys):
    assert _run("envs", "check", "kuhn_poker") == 0
    assert "sound" in capsys.readouterr().out
    assert _run("envs", "check", "khun_poker") == 2
    assert "kuhn_poker" in capsys.readouterr().err


def test_envs_check_takes_arguments_and_words_of_ones_own(capsys):
    view = ["--render", "opentinker.envs.views.tictactoe:render", "--parse", "opentinker.envs.views.tictactoe:parse"]
    assert _run("envs", "check", "pettingzoo/classic/tictactoe_v3", *view) == 0
    assert _run("envs", "check", "gymnasium/CliffWalking", "max_episode_steps=5") == 0
    assert _run("envs", "check", "kuhn_poker", "--render", "opentinker.envs.views.tictactoe:rendre") == 2
    assert "did you mean 'render'" in capsys.readouterr().err
    assert _run("envs", "check", "bandit", "mean=3") == 2
    assert "did you mean 'means'" in capsys.readouterr().err


def test_a_sigterm_gives_143_and_one_line_how_to_go_on(tmp_path):
    config = {**GOOD, "runs_dir": str(tmp_path), "train": {"steps": 100000, "checkpoint_every": 100000}}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "opentinker.cli", "train", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 2):
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.1)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "--resume" in out and "Traceback" not in err
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) == 2


def test_a_working_directory_that_is_gone_is_no_reason_to_fail(tmp_path):
    code = "import os, sys; os.rmdir(os.getcwd()); from opentinker.cli import main; main(['config'])"
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("name: run")
