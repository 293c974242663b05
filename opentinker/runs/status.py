"""Where a run stands, for whoever looks at it from outside: `status.json`, and whether a process holds the folder.

    {"state": "running", "step": 120, "steps": 1000, "error": "", "traceback": "", "updated": "2026-01-31T12:00:00+00:00"}

The file says what the run last said of itself; only the lock of `run.lock` tells a running one from a killed one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Literal

from opentinker.errors import Interrupted, RunExists, error_text

log = logging.getLogger(__name__)

State = Literal["running", "finished", "interrupted", "failed"]
STATES = ("running", "finished", "interrupted", "failed")

FILE, LOCK = "status.json", "run.lock"
PAUSE_SECONDS = 2.0
"""Between two writes while steps go by."""
PATIENCE_SECONDS = 0.5
"""How long a lock is tried: whoever only looks whether a run is alive holds it for an instant."""
MOST_TRACEBACK = 20_000
"""Characters of a traceback that are kept, its end."""


@dataclass(frozen=True, slots=True)
class Status:
    """What `status.json` holds."""

    state: State
    step: int
    """The last step that was done; -1: none yet."""
    steps: int
    """Steps of the whole run."""
    error: str = ""
    """The message, where an error or a signal ended it."""
    traceback: str = ""
    updated: str = ""
    """ISO 8601, UTC."""


class StatusFile:
    """Writes a run's status. What cannot be written is logged once and ends nothing."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._file = folder / FILE
        self._status = Status("running", -1, steps)
        self._written = -PAUSE_SECONDS
        self._warned = False

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Says `running` inside, and at the end how it ended."""
        self._set("running")
        try:
            yield
        except (Interrupted, KeyboardInterrupt, asyncio.CancelledError) as stop:
            if str(stop):
                self._set("interrupted", str(stop))
            else:
                self.left()
            raise
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            self._set("failed", error_text(error), text[-MOST_TRACEBACK:])
            raise
        self._set("finished")

    def left(self) -> None:
        """The run ends without saving anything more."""
        self._set("interrupted", "stopped at once by a second signal")

    def step(self, step: int) -> None:
        """A step is done; written at most every few seconds."""
        self._status = Status("running", step, self._status.steps)
        if monotonic() - self._written >= PAUSE_SECONDS:
            self._write()

    def _set(self, state: State, error: str = "", trace: str = "") -> None:
        self._status = Status(state, self._status.step, self._status.steps, error, trace)
        self._write()

    def _write(self) -> None:
        self._written = monotonic()
        scratch = self._file.with_name(f".{FILE}.partial")
        updated = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            scratch.write_text(json.dumps({**asdict(self._status), "updated": updated}) + "\n", encoding="utf-8")
            os.replace(scratch, self._file)
        except OSError as error:
            if not self._warned:
                self._warned = True
                log.warning("%s cannot be written, the run goes on: %s", self._file, error)
            with contextlib.suppress(OSError):
                scratch.unlink()


def read_status(folder: Path) -> Status | None:
    """What a run last said of itself; None where it never did, or where the file is none of ours."""
    try:
        data: Any = json.loads((folder / FILE).read_text(encoding="utf-8"))
        status = Status(**{key: data[key] for key in Status.__dataclass_fields__})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = type(status.step) is int and type(status.steps) is int
    texts = all(isinstance(text, str) for text in (status.error, status.traceback, status.updated))
    return status if status.state in STATES and numbers and texts else None


def is_held(folder: Path) -> bool:
    """Whether a process holds the run.

    The look takes a shared lock for an instant; `hold` tries again for longer than that, so that no look ever keeps a
    run from starting.
    """
    try:
        with open(folder / LOCK, "rb", opener=_without_waiting) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or one that we may not read
        return False
    return False


def _without_waiting(path: str, flags: int) -> int:
    """Opens also what is no file, a pipe that nobody writes to for instance."""
    return os.open(path, flags | os.O_NONBLOCK)


def refuse_held(folder: Path) -> None:
    """Says early what `hold` would refuse.

    Raises:
        RunExists: another process holds the run.
    """
    if is_held(folder):
        with (folder / LOCK).open(encoding="utf-8") as lock:
            raise RunExists(_held_by(lock, folder))


def hold(lock: IO[str], folder: Path) -> None:
    """Locks a run's folder for this process and writes down who it is.

    Raises:
        RunExists: another process holds it.
    """
    patience = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if monotonic() > patience:
                raise RunExists(_held_by(lock, folder)) from error
            sleep(0.02)
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    with contextlib.suppress(OSError):  # a full disk: the lock itself needs no space
        lock.truncate(0)
        lock.write(json.dumps(who) + "\n")
        lock.flush()


def _held_by(lock: IO[str], folder: Path) -> str:
    try:
        lock.seek(0)
        who = json.loads(lock.read())
        named = f", pid {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        named = ""
    return f"run {folder.name!r} is being trained by another process{named} ({folder}); wait or stop it"
