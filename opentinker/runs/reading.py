"""What a run's folder says to whoever only reads: its name, configuration, figures and checkpoints. Nothing is changed."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentinker.config import RunConfig, load_config
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.runs.best import Best
from opentinker.runs.checkpoints import Checkpoint, CheckpointStore

log = logging.getLogger(__name__)


def find_run(text: str, runs_dir: str | Path = "runs") -> Path:
    """The folder of a run that is named by its path or, below `runs_dir`, by its bare name.

    Raises:
        UnknownId: there is no run; near names are suggested.
    """
    given = Path(text)
    bare = len(given.parts) == 1 and text not in (".", "..")
    places = [Path(runs_dir) / given, given] if bare else [given]
    for place in places:
        if is_run(place):
            return place
    beside = places[0].parent
    hint = f"{text} is a folder, but no run's" if os.path.isdir(text) else f"looked in {beside}"
    raise UnknownId("run", given.name or text, [path.name for path in runs_in(beside)], hint)


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run's weights of one moment, as people name them: `kuhn`, `runs/kuhn@120`, `kuhn@best`, `kuhn@120:ema`."""

    path: Path
    """The run's folder."""
    step: int | None = None
    """The checkpoint's step; None: the newest whole one, or the best."""
    best: bool = False
    """The checkpoint with the best figure of `train.keep_best`."""
    ema: bool = False
    """Its averaged weights."""

    def load(self) -> Checkpoint:
        """The verified checkpoint that is named. Only reads: the run may go on meanwhile.

        Raises:
            ConfigError: no checkpoint of that step; the best one is asked for and the run follows no figure, or no
                checkpoint has it.
            CheckpointError: there is none, or it cannot be used.
        """
        store = CheckpointStore(self.path / "checkpoints")
        step = self._best_step(store) if self.best else self.step
        if step is not None:
            if step not in (known := store.steps()):
                shown = ", ".join(map(str, known[-20:])) or "none"
                raise ConfigError(f"run {str(self.path)!r} has no checkpoint of step {step}; it has {shown}")
            return store.load(step)
        newest = _newest(store)
        if newest is None:
            raise CheckpointError(f"{self.path} has no checkpoint yet")
        return newest

    def _best_step(self, store: CheckpointStore) -> int:
        settings = read_config(self.path).train.keep_best
        if settings is None:
            raise ConfigError(f"{self.path} follows no figure, so there is no @best: set train.keep_best, or name a step")
        best = Best(settings)
        best.forget(read_metrics(self.path))
        step = best.among(store.steps())
        if step is None:
            raise ConfigError(f"no checkpoint of {self.path} has the figure {settings.figure}; name a step, or @latest")
        return step


_VERSION = re.compile(r"(?:(?P<step>[0-9]{1,9})|(?P<best>best)|latest)(?P<average>:ema)?|(?P<ema>ema)")


def _newest(store: CheckpointStore) -> Checkpoint | None:
    """The newest whole one. Where the run drops it while it is read, there is a newer one."""
    while True:
        there = store.steps()
        try:
            return store.newest()
        except CheckpointError:
            if store.steps() == there:
                raise


def parse_run_ref(text: str, runs_dir: str | Path = "runs") -> RunRef:
    """Reads RUN or RUN@VERSION; VERSION is a step, `latest`, `best` or `ema`, and the first three may have `:ema` behind.

    Raises:
        UnknownId: as `find_run`.
        ConfigError: the version is none of these.
    """
    name, at, version = text.rpartition("@")
    if not at or "/" in version:  # no version, or a folder above it has the mark in its name
        return RunRef(find_run(text, runs_dir))
    match = _VERSION.fullmatch(version)
    if not match:
        raise ConfigError(
            f"{text!r}: {version!r} names no version; use {name}@STEP, @latest, @best or @ema, and @STEP:ema for averages"
        )
    step = int(match["step"]) if match["step"] else None
    return RunRef(find_run(name, runs_dir), step, bool(match["best"]), bool(match["average"] or match["ema"]))


def is_run(path: Path) -> bool:
    """Whether a folder is a run's."""
    try:
        return (path / "config.yaml").is_file() and (path / "run.json").is_file()
    except (OSError, ValueError):  # no right, a name too long, a null character
        return False


def runs_in(folder: Path) -> list[Path]:
    """The runs that lie directly below a folder, by name; none where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if is_run(path))
    except (OSError, ValueError):
        return []


def read_config(path: Path) -> RunConfig:
    """The configuration of a run's folder.

    Raises:
        ConfigError: it is missing or of another version.
    """
    try:
        return load_config(path / "config.yaml")
    except ConfigError as error:
        raise ConfigError(f"{path / 'config.yaml'} is not what this version writes:\n{error}") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a run folder's `metrics.jsonl`, oldest first; empty where there are none yet."""
    return [row for _, row in metric_lines(path / "metrics.jsonl")]


def metric_lines(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Whole lines of metrics with the rows they hold; what is none is named in a warning.

    Raises:
        ConfigError: the file is no file.
    """
    rows = []
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file} is no file; move it elsewhere, or choose another name (name=…)")
    lines = file.read_bytes().split(b"\n") if file.exists() else []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last line's end was cut off by a kill
        try:
            text = line.decode("utf-8")  # json.loads would also take other encodings, and surrogates
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and type(row.get("step")) is int:
            rows.append((text + "\n", row))
        else:
            log.warning("%s: line %d is no row of metrics and is left out", file, number)
    return rows


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON can hold it: a figure that is no finite number is None."""
    infinite = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return {**row, **dict.fromkeys(infinite)}
