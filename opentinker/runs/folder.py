"""A run on disk: one folder, one owner, lines that are cut back to the last checkpoint when it goes on.

    runs/NAME/  config.yaml  run.json  metrics.jsonl  episodes/step-000010.jsonl  checkpoints/…  report/…
                config_changes.jsonl  status.json  run.lock (who holds it)
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from opentinker.config import RunConfig, dump_yaml
from opentinker.errors import ConfigError, OpenTinkerError, RunExists, WriteFailed
from opentinker.runs import changes
from opentinker.runs.best import Best
from opentinker.runs.checkpoints import CheckpointStore, no_room, write_synced
from opentinker.runs.reading import RunRef as RunRef
from opentinker.runs.reading import find_run as find_run
from opentinker.runs.reading import finite, metric_lines, read_config
from opentinker.runs.reading import parse_run_ref as parse_run_ref
from opentinker.runs.reading import read_metrics as read_metrics
from opentinker.runs.status import LOCK, StatusFile, hold, refuse_held

log = logging.getLogger(__name__)

FORMAT = 1


class RunFolder:
    """The folder of one run, held by one process at a time."""

    def __init__(self, path: Path, lock: IO[str], config: RunConfig, before: RunConfig | None = None) -> None:
        """Made by `open`.

        Args:
            path: the folder.
            lock: the open file that is locked.
            config: what the run goes on with.
            before: the configuration that it had, where there is something to go on with.
        """
        self.path = path
        self._lock = lock
        self._config, self._before = config, before or config
        self._metrics: IO[bytes] | None = None
        self._best = Best(config.train.keep_best) if config.train.keep_best else None
        self.checkpoints = CheckpointStore(path / "checkpoints")
        self.status = StatusFile(path, config.train.steps)

    @staticmethod
    def check(config: RunConfig, resume: bool = False) -> None:
        """Says early, before anything slow, what `open` would refuse. Changes nothing on disk.

        Raises:
            RunExists, ConfigError: as `open`.
        """
        path = Path(config.runs_dir) / config.name
        with _usable(path):
            _refuse_strangers(path)
            refuse_held(path)
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
            if os.path.lexists(path / LOCK) and not (path / LOCK).is_file():
                raise RunExists(f"{path / LOCK} is no file, so nobody can hold this run; move it elsewhere")
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / LOCK).open("a+", encoding="utf-8")
        try:
            with _usable(path):
                hold(lock, path)
                before = _is_begun(path, config, resume) if (path / "config.yaml").exists() else None
                if before is None:
                    _describe_run(path, config)
        except BaseException:
            lock.close()
            raise
        return cls(path, lock, config, before)

    def rewind(self, step: int) -> None:
        """Cuts metrics, episodes and checkpoints back to a step, so that no step counts twice; -1 leaves none.

        Where the configuration changed, it is the new one from here on, and `config_changes.jsonl` says so. Steps up to
        that one whose line of metrics is lost are named in a warning.

        Raises:
            ConfigError: `metrics.jsonl` is no file.
            WriteFailed: no space or no right.
        """
        self._close_metrics()  # the file is replaced
        file = self.path / "metrics.jsonl"
        kept = [(line, row) for line, row in metric_lines(file) if row["step"] <= step]
        lost = sorted(set(range(step + 1)) - {row["step"] for _, row in kept})
        if lost:
            log.warning("%s has no line for step %s, and these figures are lost", file, _ranges(lost))
        with _writing(file):
            write_synced(file, "".join(line for line, _ in kept))
        for episodes in (self.path / "episodes").glob("step-*.jsonl"):
            if episodes.stem[5:].isdecimal() and int(episodes.stem[5:]) > step:
                episodes.unlink()
        self.checkpoints.rewind(step)
        if self._best:
            self._best.forget(row for _, row in kept)
        with _writing(self.path / "config.yaml"):
            self._take_over(step)

    def _take_over(self, step: int) -> None:
        """Makes the changed configuration the run's own."""
        changes.cut(self.path, step, self._before)
        found = changes.changes(self._before, self._config)
        if not found:
            return
        if step >= 0:
            changes.record(self.path, found, step)
        write_synced(self.path / "config.yaml", dump_yaml(self._config.dump()))
        for sentence in changes.consequences(found, self._before, self._config, step) if step >= 0 else ():
            log.warning("the configuration of run %r has changed: %s", self._config.name, sentence)
        self._before = self._config

    def write_metrics(self, row: Mapping[str, Any]) -> None:
        """Appends one line. JSON has no NaN and no infinity: such a figure is written as null.

        Raises:
            WriteFailed: no space or no right.
        """
        line = json.dumps(finite(row), allow_nan=False) + "\n"
        file = self.path / "metrics.jsonl"
        with _writing(file):
            if self._metrics is None:
                # unbuffered: what could not be written must not come up again when the file is closed
                self._metrics = file.open("ab", buffering=0)
            left = memoryview(line.encode())
            while left:
                left = left[self._metrics.write(left) :]
        if self._best:
            self._best.see(row)
        self.status.step(row["step"])

    def sync_metrics(self) -> None:
        """Makes the lines written so far survive a power cut; called before a checkpoint counts."""
        if self._metrics is not None:
            with _writing(self.path / "metrics.jsonl"):
                os.fsync(self._metrics.fileno())

    def prune(self, step: int) -> None:
        """Deletes what `train.keep_last` and `train.keep_best` do not keep; called when the checkpoint of `step` counts."""
        train, steps = self._config.train, self.checkpoints.steps()
        best = self._best.among(steps) if self._best else None
        if self._best and best is None and self._is_due(step):
            self._best.warn_where_unknown(self.path / "metrics.jsonl")
        if train.keep_last is None or (self._best and best is None):
            return
        self.checkpoints.prune({*steps[-train.keep_last :], *([] if best is None else [best])})

    def _is_due(self, step: int) -> bool:
        evaluated = step % self._config.evaluate.every == 0 or step == self._config.train.steps
        return step > 0 and (evaluated or not self._config.train.keep_best.figure.startswith("eval/"))  # type: ignore[union-attr]

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of `metrics.jsonl`."""
        return read_metrics(self.path)

    def write_episodes(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the episodes kept of a step, one JSON object a line.

        Raises:
            WriteFailed: no space or no right.
        """
        path = self.path / "episodes" / f"step-{step:06d}.jsonl"
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)

    def close(self) -> None:
        """Lets another process have the run."""
        self._close_metrics()
        self._lock.close()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None


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


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        room = no_room(error, path.parent)
        raise WriteFailed(
            f"cannot write {path}: {error.strerror or error}{room}; what the last checkpoint holds is kept, go on with "
            "--resume when the file can be written"
        ) from error


def _describe_run(path: Path, config: RunConfig) -> None:
    from opentinker import __version__

    write_synced(path / "run.json", json.dumps({"format": FORMAT, "opentinker": __version__}))
    write_synced(path / "config.yaml", dump_yaml(config.dump()))  # last: a folder without it is a run that never began


def _is_begun(path: Path, config: RunConfig, resume: bool) -> RunConfig | None:
    """The configuration that there is something to go on with, None where there is nothing.

    Refuses to go on unless it is asked for and the configuration is one that the run may go on with.
    """
    try:
        found = json.loads((path / "run.json").read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path / 'run.json'} tells no format ({error!r}); choose another name (name=…)") from error
    if found != FORMAT:
        raise ConfigError(f"{path} has run format {found!r}, this version reads {FORMAT}; choose another name (name=…)")
    rows, checkpoints = read_metrics(path), CheckpointStore(path / "checkpoints")
    if not rows and checkpoints.holds_nothing():
        return None
    if not resume:
        done = rows[-1]["step"] if rows else 0
        raise RunExists(
            f"run {config.name!r} exists in {path} ({done} of {config.train.steps} steps); "
            f"go on with --resume (resume=True from Python), start another with name=…, or remove that folder"
        )
    before = read_config(path)
    changes.refuse(changes.changes(before, config), config, path, max(checkpoints.steps(), default=0))
    return before
