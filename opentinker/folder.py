"""A run on disk: one folder, one owner, lines that are cut back to the last checkpoint when it goes on.

    runs/NAME/  config.yaml  run.json  metrics.jsonl  episodes/step-000010.jsonl  checkpoints/…  report/…
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from opentinker.checkpoints import CheckpointStore, write_synced
from opentinker.config import RunConfig, dump_yaml, load_config
from opentinker.errors import ConfigError, OpenTinkerError, RunExists

log = logging.getLogger(__name__)

FORMAT = 1


class RunFolder:
    """The folder of one run, held by one process at a time."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock
        self._metrics: IO[str] | None = None
        self.checkpoints = CheckpointStore(path / "checkpoints")

    @staticmethod
    def check(config: RunConfig, resume: bool = False) -> None:
        """Says early, before anything slow, what `open` would refuse. Changes nothing on disk.

        Raises:
            RunExists, ConfigError: as `open`.
        """
        path = Path(config.runs_dir) / config.name
        with _usable(path):
            _refuse_strangers(path)
            if (path / "config.yaml").exists():
                _is_begun(path, config, resume)

    @classmethod
    def open(cls, config: RunConfig, resume: bool = False) -> RunFolder:
        """Makes a new run's folder or, to go on, takes over an existing one.

        A run that left neither checkpoint nor metrics (its start failed, say) holds nothing: its name is free.

        Raises:
            RunExists: a run of this name is there and `resume` was not asked for, or another process holds it,
                or the folder holds something that is no run.
            ConfigError: the run there has another configuration or was written by another version, or the folder
                cannot be made.
        """
        path = Path(config.runs_dir) / config.name
        with _usable(path):
            _refuse_strangers(path)
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / "run.lock").open("a+", encoding="utf-8")
        try:
            with _usable(path):
                _hold(lock, path)
                if not (path / "config.yaml").exists() or not _is_begun(path, config, resume):
                    _describe_run(path, config)
        except BaseException:
            lock.close()
            raise
        return cls(path, lock)

    def rewind(self, step: int) -> None:
        """Cuts metrics, episodes and checkpoints back to a step, so that no step counts twice; -1 leaves none.

        Steps up to that one whose line of metrics is lost are named in a warning.

        Raises:
            ConfigError: `metrics.jsonl` is no file.
        """
        self._close_metrics()  # the file is replaced
        file = self.path / "metrics.jsonl"
        kept = [(line, row["step"]) for line, row in _rows(file) if row["step"] <= step]
        lost = sorted(set(range(step + 1)) - {at for _, at in kept})
        if lost:
            log.warning("%s has no line for step %s, and these figures are lost", file, _ranges(lost))
        write_synced(file, "".join(line for line, _ in kept))
        for file in (self.path / "episodes").glob("step-*.jsonl"):
            if file.stem[5:].isdecimal() and int(file.stem[5:]) > step:
                file.unlink()
        self.checkpoints.rewind(step)

    def write_metrics(self, row: Mapping[str, Any]) -> None:
        """Appends one line. JSON has no NaN and no infinity: such a figure is written as null."""
        infinite = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        finite = {**row, **dict.fromkeys(infinite)}
        if self._metrics is None:
            self._metrics = (self.path / "metrics.jsonl").open("a", encoding="utf-8")
        self._metrics.write(json.dumps(finite, allow_nan=False) + "\n")
        self._metrics.flush()

    def sync_metrics(self) -> None:
        """Makes the lines written so far survive a power cut; called before a checkpoint counts."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of `metrics.jsonl`."""
        return read_metrics(self.path)

    def write_episodes(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the episodes kept of a step, one JSON object a line."""
        folder = self.path / "episodes"
        folder.mkdir(exist_ok=True)
        with (folder / f"step-{step:06d}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)

    def close(self) -> None:
        """Lets another process have the run."""
        self._close_metrics()
        self._lock.close()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a run folder's `metrics.jsonl`, oldest first; empty where there are none yet."""
    return [row for _, row in _rows(path / "metrics.jsonl")]


def _rows(file: Path) -> list[tuple[str, dict[str, Any]]]:
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


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, as `0, 3-5, 9`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Tells what the system has against a path (too long, no right, a null character) as a fault of `runs_dir`."""
    try:
        yield
    except OpenTinkerError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error  # an OSError's own text repeats a path of any length
        raise ConfigError(f"runs_dir: cannot use the run's folder {str(path)[:200]!r}: {reason}") from error


def _refuse_strangers(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise RunExists(f"{path} is a file; choose another name (name=…)")
    if (path / "config.yaml").exists():
        return
    begun = {"run.lock", "run.json"}  # what `open` may leave when it is killed
    strange = sorted(entry.name for entry in path.iterdir() if entry.name not in begun and not entry.name.startswith("."))
    if strange:
        raise RunExists(f"{path} holds {strange[:5]}, no config.yaml, and is no whole run; choose another name (name=…)")


def _hold(lock: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunExists(f"run {path.name!r} is being trained by another process ({path}); wait or stop it") from error


def _describe_run(path: Path, config: RunConfig) -> None:
    from opentinker import __version__

    write_synced(path / "run.json", json.dumps({"format": FORMAT, "opentinker": __version__}))
    write_synced(path / "config.yaml", dump_yaml(config.dump()))  # last: a folder without it is a run that never began


def _is_begun(path: Path, config: RunConfig, resume: bool) -> bool:
    """Whether there is something to go on with; refuses to unless it is asked for and the configuration is the same."""
    try:
        found = json.loads((path / "run.json").read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path / 'run.json'} tells no format ({error!r}); choose another name (name=…)") from error
    if found != FORMAT:
        raise ConfigError(f"{path} has run format {found!r}, this version reads {FORMAT}; choose another name (name=…)")
    rows = read_metrics(path)
    if not rows and CheckpointStore(path / "checkpoints").holds_nothing():
        return False
    if not resume:
        done = rows[-1]["step"] if rows else 0
        raise RunExists(
            f"run {config.name!r} exists in {path} ({done} of {config.train.steps} steps); "
            f"go on with --resume (resume=True from Python), or start another with name=…"
        )
    _refuse_another_configuration(path, config)
    return True


def _refuse_another_configuration(path: Path, config: RunConfig) -> None:
    try:
        old = load_config(path / "config.yaml")
    except ConfigError as error:
        raise ConfigError(f"{path / 'config.yaml'} is not what this version writes:\n{error}") from error
    changed = _differences(old.dump(), config.dump())
    if changed:
        raise ConfigError(
            f"run {config.name!r} in {path} has another configuration; go on with the same one or choose another name "
            "(name=…):\n" + "\n".join(changed)
        )


_ABSENT = object()


def _differences(old: Any, new: Any, key: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for name in dict.fromkeys([*old, *new]):
            if key == "" and name == "runs_dir":
                continue  # the folder may have moved
            lines += _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else str(name))
        return lines
    return [] if old == new else [f"  {key}: {_shown(old)} there, {_shown(new)} now"]


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
