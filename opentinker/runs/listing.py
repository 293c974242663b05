"""The runs below a folder, each told from a few reads: nothing is loaded, nothing is locked, nothing is changed."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentinker.errors import OpenTinkerError
from opentinker.runs.best import is_finite
from opentinker.runs.reading import is_run, read_config, runs_in
from opentinker.runs.status import FILE, Status, is_held, read_status

TAIL_BYTES = 65_536
"""Read of a run's figures, at their end."""

KEY_FIGURES = ("eval/exploitability/ema", "eval/exploitability/last", "/win_rate", "/return_mean")
"""The first that a run has is shown: a whole key, or the end of one."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run."""

    name: str
    path: str
    state: str
    """`running` (a process holds it), `finished`, `interrupted`, `failed`, `killed` (never said that it ended), `empty`."""
    step: int | None
    """The last step that was done; None: none yet."""
    steps: int | None
    """Steps of the whole run; None where nothing tells."""
    figure: str
    """The key of its most telling figure; empty where there is none."""
    value: float | None
    """The latest value of that figure."""
    age_s: float | None
    """Seconds since it last wrote anything."""
    size: int
    """Bytes on disk."""
    checkpoints_size: int
    """Of these, bytes in `checkpoints/`."""
    error: str
    """What ended it, where it failed."""


def list_runs(folder: Path) -> list[RunSummary]:
    """The runs that lie directly below a folder, by name; whatever else lies there is passed over.

    Raises:
        OSError: the folder cannot be read.
    """
    os.listdir(folder)
    return [summary for path in runs_in(folder) if (summary := summarise(path)) is not None]


def summarise(path: Path) -> RunSummary | None:
    """One run; None where it is gone meanwhile or cannot be read."""
    try:
        rows = _last_rows(path / "metrics.jsonl")
        age = _age(path)
    except OSError:
        return None
    if not is_run(path):
        return None
    status, step = read_status(path), rows[0]["step"] if rows else None
    steps = status.steps if status else _configured_steps(path)
    figure, value = key_figure(rows)
    saved, others = _size(str(path / "checkpoints")), _size(str(path), skip="checkpoints")
    return RunSummary(
        name=path.name,
        path=str(path),
        state=_state(path, status, step, steps),
        step=step,
        steps=steps,
        figure=figure,
        value=value,
        age_s=age,
        size=others + saved,
        checkpoints_size=saved,
        error=status.error if status else "",
    )


def _state(path: Path, status: Status | None, step: int | None, steps: int | None) -> str:
    if status and status.state != "running":
        return status.state
    if is_held(path):
        return "running"
    if status:
        return "killed"
    # written before runs said how they are
    return "empty" if step is None else "finished" if step == steps else "interrupted"


def key_figure(rows: list[dict[str, Any]]) -> tuple[str, float | None]:
    """The most telling figure of some lines of metrics, newest first, and its latest value."""
    for wanted in KEY_FIGURES:
        for row in rows:
            for key, value in row.items():
                if key.endswith(wanted) and is_finite(value):
                    return key, float(value)
    return "", None


def _last_rows(file: Path) -> list[dict[str, Any]]:
    """The newest whole row of the file's end, and the newest in which something was evaluated."""
    try:
        with file.open("rb") as opened:
            length = opened.seek(0, os.SEEK_END)
            start = max(0, length - TAIL_BYTES)
            opened.seek(start)
            lines = opened.read(TAIL_BYTES).split(b"\n")
    except (FileNotFoundError, IsADirectoryError):
        return []
    rows: list[dict[str, Any]] = []
    for line in reversed(lines[1 if start else 0 : -1]):
        evaluated = b'"eval/' in line
        if rows and not evaluated:
            continue
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int:
                rows.append(row)
                if evaluated:
                    break
    return rows


def _age(path: Path) -> float | None:
    times = []
    for name in (FILE, "metrics.jsonl", "config.yaml"):
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(0.0, time.time() - max(times)) if times else None


def _size(path: str, skip: str = "") -> int:
    """Bytes of all files below a folder; links are not followed, a folder of its own that is named is left out."""
    skipped = os.path.join(path, skip)
    size, waiting = 0, [path]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # gone meanwhile, or not ours to read
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.path != skipped:
                        waiting.append(entry.path)
                else:
                    with suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_size
    return size


def _configured_steps(path: Path) -> int | None:
    try:
        return read_config(path).train.steps
    except (OpenTinkerError, OSError):
        return None
