"""A run's folder as it lies there, whole or torn, finished or running: for reading only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opentinker.config import parse_yaml
from opentinker.errors import ConfigError
from opentinker.runs.status import Status, is_held, read_status

PLACES = (("training", "episodes"), ("play", "play"), ("evaluation", "evaluations"))
"""Where episodes lie, and what they are called for it."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run has left so far."""

    path: Path
    name: str
    config: Any
    """`config.yaml` as plain data; its text where it is no YAML; None where there is none."""
    rows: list[dict[str, Any]] = field(repr=False)
    """Whole lines of `metrics.jsonl`."""
    torn: int
    """Lines of `metrics.jsonl` that could not be read."""
    state: str
    """`running`, `finished`, `interrupted`, `failed`, `killed` (it never said that it ended) or `empty`."""
    step: int
    steps: int | None
    """None where no configuration says it."""
    error: str
    traceback: str
    updated: str

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Reads a folder; what is torn is left out and counted.

        Raises:
            ConfigError: it is no run: there is neither a `config.yaml` nor a `metrics.jsonl`.
        """
        if not ((path / "config.yaml").is_file() or (path / "metrics.jsonl").is_file()):
            what = "is no run: it holds neither config.yaml nor metrics.jsonl" if path.is_dir() else "is no folder of a run"
            raise ConfigError(f"{path} {what}; name a folder such as runs/NAME")
        config = _config(path / "config.yaml")
        held = is_held(path)
        # the last line of a run that is running may be on its way
        lines = [line for line in lines_of(path / "metrics.jsonl") if line.endswith(b"\n") or not held]
        parsed = [json_line(line) for line in lines]
        rows = [row for row in parsed if row is not None and type(row.get("step")) is int]
        step = max((row["step"] for row in rows), default=0)
        steps = _deep(config, "train", "steps")
        steps = steps if type(steps) is int else None
        status = read_status(path)
        return cls(
            path,
            str(_deep(config, "name") or path.resolve().name),
            config,
            rows,
            len(parsed) - len(rows),
            _state(held, status, bool(rows), steps is not None and step >= steps),
            step,
            steps,
            status.error if status else "",
            status.traceback if status else "",
            status.updated if status else "",
        )

    def episode_files(self) -> Iterator[tuple[str, Path]]:
        """Files that hold episodes and what kind they are, in the order of their names."""
        for kind, folder in PLACES:
            for file in sorted((self.path / folder).rglob("*.jsonl")):
                yield kind, file

    def evaluations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Results of evaluations, newest file first: its name and what it holds; files that are torn are passed over."""
        for file in sorted((self.path / "evaluations").glob("*.json"), key=_stamp, reverse=True):
            if file.is_file() and (result := json_line(file.read_bytes())) is not None:
                yield file.name, result


def _stamp(file: Path) -> tuple[str, str]:
    return file.stem.rpartition("-")[2], file.name  # the time stands last in the name


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Reads several folders. Runs of one name get their folder's path as name.

    Raises:
        ConfigError: one is no run, or is named twice.
    """
    records = [RunRecord.read(path) for path in paths]
    seen: dict[Path, Path] = {}
    for record in records:
        if (before := seen.setdefault(record.path.resolve(), record.path)) is not record.path:
            raise ConfigError(f"{record.path} is named twice (also as {before}); name each run once")
    names = Counter(record.name for record in records)
    return [replace(record, name=str(record.path)) if names[record.name] > 1 else record for record in records]


def lines_of(file: Path) -> Iterator[bytes]:
    """The lines of a file that are not blank; none where there is no file."""
    if file.is_file():
        with file.open("rb") as stream:
            yield from (line for line in stream if line.strip())


def json_line(line: bytes) -> dict[str, Any] | None:
    """One JSON object, or None where the text is torn or something else."""
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _config(file: Path) -> Any:
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        return parse_yaml(text, str(file))
    except ConfigError:
        return text


def _deep(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _state(held: bool, status: Status | None, begun: bool, done: bool) -> str:
    said = status.state if status else ""
    if said not in ("", "running"):
        return said
    if held:
        return "running"
    if said:
        return "killed"
    return "finished" if done else "interrupted" if begun else "empty"
