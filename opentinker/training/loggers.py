"""A run's figures to TensorBoard and Weights & Biases, through verl's `Tracking`.

`metrics.jsonl` stays the record. When a run goes on from step n, TensorBoard is told that what it had after n does not
count. W&B goes on with the same run of its own; of the steps that are redone it keeps the values it had, which in
deterministic mode are the same. Nothing is sent anywhere unless `wandb` is chosen and is not offline.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opentinker.config import RunConfig, dump_yaml
from opentinker.errors import ConfigError, MissingExtra

log = logging.getLogger(__name__)


def check_loggers(names: Sequence[str]) -> None:
    """Says before anything starts which package is missing; the names are those of packages and extras alike.

    Raises:
        MissingExtra: one is not installed.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(f"loggers: {name}", name)


class Loggers:
    """Where figures go beside `metrics.jsonl`. One that fails is told once and left out; the run goes on.

    Args:
        config: the run's; it is logged as hyperparameters.
        folder: the run's; TensorBoard's files go to its `tensorboard/`, W&B's to its `wandb/`.
        done: the step that the run goes on from; -1: from nothing.

    Raises:
        ConfigError: one cannot be started (W&B without a key, say).
    """

    def __init__(self, config: RunConfig, folder: Path, done: int) -> None:
        self._live: dict[str, Any] = {}
        self._broken: list[Any] = []
        for name in config.loggers:
            start = _tensorboard if name == "tensorboard" else _wandb
            try:
                self._live[name] = start(config, folder, done)
            except Exception as error:  # theirs to choose
                self.close(1)
                raise ConfigError(f"loggers: {name} cannot be started: {type(error).__name__}: {error}") from error

    def log(self, row: Mapping[str, Any]) -> None:
        """Passes a line of metrics on; figures that are no finite numbers are left out."""
        figures = {key: value for key, value in row.items() if key != "step" and _is_figure(value)}
        for name, tracking in list(self._live.items()):
            try:
                tracking.log(data=figures, step=row["step"])
            except Exception as error:  # a full disk, no network, ...: nothing here is worth a run
                log.warning("%s fails and is left out from step %d on, the run goes on: %s", name, row["step"], error)
                self._broken.append(self._live.pop(name))

    def sync(self) -> None:
        """Writes out what TensorBoard still holds back; called before a checkpoint counts."""
        tracking = self._live.get("tensorboard")
        if tracking is not None:
            try:
                tracking.logger["tensorboard"].writer.flush()  # it would wait for up to two minutes
            except Exception as error:
                log.warning("tensorboard fails and is left out, the run goes on: %s", error)
                self._broken.append(self._live.pop("tensorboard"))

    def close(self, exit_code: int = 0) -> None:
        """Ends them all.

        Args:
            exit_code: 0 for a finished run; W&B shows it.
        """
        for tracking in [*self._live.values(), *self._broken]:
            try:
                tracking.finish(exit_code=exit_code)
            except Exception as error:
                log.warning("a logger does not end well: %s", error)
        self._live.clear()
        self._broken.clear()


def _tensorboard(config: RunConfig, folder: Path, done: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter
    from verl.utils.tracking import Tracking

    target = folder / "tensorboard"
    purge = done + 1 if target.is_dir() else None
    with SummaryWriter(str(target), purge_step=purge) as writer:
        text = dump_yaml(config.dump()).replace("\n", "\n    ")
        writer.add_text("config", f"    {text}", done + 1)
    with _environment(TENSORBOARD_DIR=str(target)), contextlib.redirect_stdout(sys.stderr):
        return Tracking("opentinker", config.name, ["tensorboard"])


def _wandb(config: RunConfig, folder: Path, done: int) -> Any:
    from verl.utils.tracking import Tracking

    own = {"WANDB_DIR": str(folder), "WANDB_RUN_ID": _wandb_id(folder), "WANDB_RESUME": "allow", "WANDB_CONSOLE": "off"}
    chosen = {key: os.environ.get(key, value) for key, value in own.items()}
    project = os.environ.get("WANDB_PROJECT", "opentinker")
    settings = {**config.dump(), "trainer": {}}  # Tracking looks for its own settings there
    with _environment(**chosen), contextlib.redirect_stdout(sys.stderr):
        return Tracking(project, config.name, ["wandb"], settings)


def _wandb_id(folder: Path) -> str:
    """The same one for every start of a run."""
    file = folder / "wandb" / "run-id"
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        file.parent.mkdir(exist_ok=True)
        file.write_text(uuid.uuid4().hex[:12] + "\n", encoding="utf-8")
        return file.read_text(encoding="utf-8").strip()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
