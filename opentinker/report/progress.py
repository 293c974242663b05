"""How a run goes on: a bar with key figures in a terminal, a line now and then elsewhere, JSON lines for programs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from opentinker.config import RunConfig
from opentinker.runs.reading import finite

log = logging.getLogger(__name__)

QUIET_SECONDS = 15.0
"""Between two lines where the output is no terminal."""
WORTH_SAYING = 0.02
"""Share of invalid replies from which on it is shown."""

RETURN = "/return_mean"


def tell_stopping(what: str) -> None:
    """What the first Ctrl-C did, on stderr."""
    with contextlib.suppress(RuntimeError, OSError, ValueError):  # the signal came while stderr was being written, or closed
        sys.stderr.write(f"\nfinishing {what}, saving; press again to stop at once\n")
        sys.stderr.flush()


@contextlib.contextmanager
def unread(stream: IO[str]) -> Iterator[None]:
    """A place to write to a stream whose reader may have gone away, or whose disk may be full: nothing ends for that.

    It is told in a warning, and the stream leads nowhere from then on: what it still holds would fail again, at the latest
    when the process ends.
    """
    try:
        yield
    except (OSError, SystemExit) as error:
        # rich's console leaves the program where the reader of a pipe went away
        cause = error.__context__ if isinstance(error, SystemExit) else error
        if not isinstance(cause, OSError):
            raise
        log.warning("nobody reads the progress any more, the run goes on: %s", cause)
        _lead_nowhere(stream)
        with contextlib.suppress(ValueError):
            try:
                sys.stderr.flush()
            except OSError:  # it goes to the same place
                _lead_nowhere(sys.stderr)


def _lead_nowhere(stream: IO[str]) -> None:
    with contextlib.suppress(OSError, ValueError):  # one that is no file of the system's
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


class LiveProgress:
    """Tells a console how a run goes on. Used as a context manager.

    Args:
        console: where to.
        quiet: say nothing of the steps.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._bar: Progress | None = None
        self._task: Any = None
        self._shown = 0.0
        self._measured = ""
        self._steps = 0

    def __enter__(self) -> LiveProgress:
        if self._console.is_terminal and not self._quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
                console=self._console,
            )
            with self._unread():
                self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            with self._unread():
                self._bar.stop()

    def loading(self) -> None:
        """The run is set up; on a slow disk that takes a while."""
        self._show("starting: loading torch, transformers and verl", 0, None, "", always=True)

    def begin(self, config: RunConfig, done: int) -> None:
        """Training starts or goes on after `done` steps."""
        self._steps = config.train.steps
        self._show("training", done, self._steps, f"from step {done}" if done else "", always=True)

    def warm(self, done: int, total: int) -> None:
        """A supervised step of the warm start is done."""
        self._show("warm start", done, total, "", always=done == total)

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        measured = {key.split("/")[-1]: row[key] for key in row if key.startswith("eval/exploitability/")}
        if measured:
            self._measured = "exploitability " + " ".join(f"{name} {value:.3f}" for name, value in measured.items())
        figures = self._measured or " ".join(
            f"{key.removeprefix('rollout/').removesuffix(RETURN)} {value:.3f}"
            for key, value in row.items()
            if key.startswith("rollout/") and key.endswith(RETURN)
        )
        invalid = [value for key, value in row.items() if key.endswith("/invalid_rate")]
        if invalid and max(invalid) >= WORTH_SAYING:
            figures += f" invalid {max(invalid):.0%}"
        self._show("training", row["step"], self._steps, figures, always=row["step"] == self._steps)

    def stopping(self, what: str) -> None:
        """A signal asked to stop."""
        tell_stopping(what)

    def leaving(self, signum: int) -> None:
        """A second signal: the terminal is given back."""
        self.__exit__(None, None, None)

    @contextlib.contextmanager
    def _unread(self) -> Iterator[None]:
        with unread(self._console.file):
            yield
            return
        self._quiet = True
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError, SystemExit, IndexError):  # it may have stopped halfway through its start
                bar.stop()

    def _show(self, what: str, done: int, total: int | None, figures: str, always: bool = False) -> None:
        if self._quiet:
            return
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(what, total=total, figures=figures)
            with self._unread():
                self._bar.update(self._task, description=what, completed=done, total=total, figures=figures)
            return
        now = time.monotonic()
        if always or now - self._shown >= QUIET_SECONDS:
            self._shown = now
            with self._unread():
                self._console.print(f"{what} {f'{done}/{total} ' if total else ''}{figures}".rstrip(), markup=False)


class JsonProgress:
    """Tells a program how a run goes on: one JSON object a line, each with `event`.

    `begin` (run, done, steps), `warm` (done, total), `step` (row: its line of metrics). A reader that goes away ends no run.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream: IO[str] | None = stream

    def begin(self, config: RunConfig, done: int) -> None:
        """Training starts or goes on after `done` steps."""
        self.tell("begin", run=config.name, done=done, steps=config.train.steps)

    def warm(self, done: int, total: int) -> None:
        """A supervised step of the warm start is done."""
        self.tell("warm", done=done, total=total)

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        self.tell("step", row=finite(row))

    def stopping(self, what: str) -> None:
        """A signal asked to stop."""
        tell_stopping(what)

    def leaving(self, signum: int) -> None:
        """A second signal."""
        self.tell("error", kind="Interrupted", error="stopped at once by a second signal", exit_code=128 + signum)

    def tell(self, event: str, **fields: Any) -> None:
        """Writes one line."""
        if self._stream is None:
            return
        with unread(self._stream):
            self._stream.write(json.dumps({"event": event, **fields}) + "\n")
            self._stream.flush()
            return
        self._stream = None
