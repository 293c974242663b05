"""Figures arrive where they are asked for: TensorBoard's files are read back, W&B is a fake that writes down its calls."""

from __future__ import annotations

import logging
import math
import os
import sys
import types
import warnings

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError, MissingExtra
from opentinker.training.bringup import bring_up
from opentinker.training.loggers import Loggers, check_loggers

SECRET = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module", autouse=True)
def verl():
    bring_up()


def config(*loggers, **kwargs):
    data = {
        "name": "one",
        "env": {"id": "bandit", "kwargs": kwargs},
        "coordinator": {"id": "solo"},
        "agents": {"*": {"policy": "learner"}},
        "policies": {"learner": {"model": "tiny"}},
        "loggers": list(loggers),
    }
    return load_config(data)


def read(folder):
    """Every series of TensorBoard's files: key to [(step, value)]; texts likewise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
    series = {key: [(event.step, event.value) for event in events.Scalars(key)] for key in events.Tags()["scalars"]}
    texts = {key: events.Tensors(key)[-1].tensor_proto.string_val[0].decode() for key in events.Tags()["tensors"]}
    return series, texts


def test_figures_reach_tensorboard_with_the_configuration(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_DIR", raising=False)
    loggers = Loggers(config("tensorboard", means=[0.25, 0.75]), tmp_path, -1)
    loggers.log({"step": 0, "eval/random/win_rate": 0.5})
    loggers.log({"step": 1, "train/a/loss": 1.5, "train/a/kl": math.nan, "b": None, "c": "text", "train/a/version": 1})
    loggers.close()
    series, texts = read(tmp_path / "tensorboard")
    assert series == {"eval/random/win_rate": [(0, 0.5)], "train/a/loss": [(1, 1.5)], "train/a/version": [(1, 1.0)]}
    assert "id: bandit" in texts["config/text_summary"]
    assert os.listdir(tmp_path) == ["tensorboard"]
    assert capsys.readouterr().out == ""  # what a program reads there is not disturbed
    assert "TENSORBOARD_DIR" not in os.environ


def test_a_run_that_goes_on_shows_no_step_twice_in_tensorboard(tmp_path):
    loggers = Loggers(config("tensorboard"), tmp_path, -1)
    for step in range(6):
        loggers.log({"step": step, "loss": float(step)})
    loggers.close()
    loggers = Loggers(config("tensorboard"), tmp_path, 3)  # killed after step 5, the checkpoint is of step 3
    for step in range(4, 8):
        loggers.log({"step": step, "loss": 10.0 * step})
    loggers.close()
    assert read(tmp_path / "tensorboard")[0] == {
        "loss": [(0, 0), (1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60), (7, 70)]
    }


def test_figures_before_a_checkpoint_are_in_the_files_when_it_counts(tmp_path):
    loggers = Loggers(config("tensorboard"), tmp_path, -1)
    loggers.log({"step": 1, "loss": 0.5})
    loggers.sync()
    assert read(tmp_path / "tensorboard")[0] == {"loss": [(1, 0.5)]}  # a kill comes now
    loggers.close()


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_named_before_anything_starts(name, monkeypatch):
    check_loggers([name])
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"loggers: {name} needs .*pip install 'opentinker\[{name}\]'"):
        check_loggers([name])


@pytest.fixture
def wandb(monkeypatch):
    """Stands for the package `wandb`: what it is called with, and under which environment."""
    fake = types.ModuleType("wandb")
    fake.calls, fake.broken = [], ""

    def init(**settings):
        if fake.broken == "init":
            raise RuntimeError("No API key configured")
        names = ("WANDB_DIR", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_CONSOLE")
        fake.calls.append(("init", settings, {name: os.environ[name] for name in names}))

    def log(data, step):
        if fake.broken == "log":
            raise ConnectionError("W&B is down")
        fake.calls.append(("log", data, step))

    def finish(exit_code):
        fake.calls.append(("finish", exit_code))
        if fake.broken == "log":
            raise ConnectionError("W&B is still down")

    fake.init, fake.log, fake.finish, fake.Settings = init, log, finish, lambda **_: None
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_gets_figures_and_configuration_and_goes_on_with_one_run(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    for done in (-1, 1):
        loggers = Loggers(config("wandb"), tmp_path, done)
        loggers.log({"step": done + 1, "loss": 0.5, "bad": math.inf})
        loggers.close(1 if done < 0 else 0)
    first, _, end, second, *_ = wandb.calls
    assert first[1]["project"] == "opentinker" and first[1]["name"] == "one"
    assert first[1]["config"]["env"]["id"] == "bandit"
    assert first[2] == second[2] == {
        "WANDB_DIR": str(tmp_path),
        "WANDB_RUN_ID": (tmp_path / "wandb" / "run-id").read_text().strip(),
        "WANDB_RESUME": "allow",
        "WANDB_CONSOLE": "off",
    }
    assert len(first[2]["WANDB_RUN_ID"]) == 12
    assert wandb.calls[1] == ("log", {"loss": 0.5}, 0)
    assert (end, wandb.calls[-1]) == (("finish", 1), ("finish", 0))
    assert SECRET not in repr(wandb.calls)
    assert not any(name.startswith("WANDB_") for name in os.environ if name != "WANDB_API_KEY")


def test_the_users_own_settings_of_wandb_count(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    Loggers(config("wandb"), tmp_path, -1).close()
    assert wandb.calls[0][1]["project"] == "mine" and wandb.calls[0][2]["WANDB_RUN_ID"] == "abc"
    assert os.environ["WANDB_RUN_ID"] == "abc"


def test_one_that_cannot_start_is_told_and_the_others_are_closed(wandb, tmp_path):
    wandb.broken = "init"
    with pytest.raises(ConfigError, match="loggers: wandb cannot be started: RuntimeError: No API key configured"):
        Loggers(config("tensorboard", "wandb"), tmp_path, -1)


def test_one_that_fails_is_told_once_and_the_others_go_on(wandb, tmp_path, caplog):
    loggers = Loggers(config("wandb", "tensorboard"), tmp_path, -1)
    wandb.broken = "log"
    with caplog.at_level(logging.WARNING):
        for step in range(4):
            loggers.log({"step": step, "loss": float(step)})
        assert caplog.text.count("wandb fails and is left out from step 0 on, the run goes on: W&B is down") == 1
        loggers.close()
    assert "a logger does not end well: W&B is still down" in caplog.text
    assert read(tmp_path / "tensorboard")[0] == {"loss": [(step, float(step)) for step in range(4)]}


@pytest.mark.slow
def test_wandb_itself_writes_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loggers = Loggers(config("wandb"), tmp_path, -1)
        loggers.log({"step": 0, "loss": 0.5})
        loggers.close()
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert run.name.endswith((tmp_path / "wandb" / "run-id").read_text().strip())
    assert list(run.glob("*.wandb"))
