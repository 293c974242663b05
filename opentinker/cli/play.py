"""`opentinker play`."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from opentinker.cli.app import app, out
from opentinker.cli.stopping import told_when_stopped


@app.command()
@told_when_stopped()
def play(
    run: Annotated[str, typer.Argument(help="RUN or RUN@VERSION: a step, latest, best or ema.", metavar="RUN")],
    agent: Annotated[str | None, typer.Option("--as", help="Whom you play; left out: who there is.")] = None,
    against: Annotated[
        str, typer.Option("--against", help="Who plays the others: self (the run's agents), random, RUN@VERSION, ...")
    ] = "self",
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of the game; default: another one each time.")] = None,
) -> None:
    """Play one game against the agents of RUN."""
    from opentinker.play import play_run

    with Terminal() as terminal:
        played = play_run(run, agent, show=terminal.show, read=terminal.read, against=against, seed=seed)
    out.print(played.describe())
    out.print(f"transcript: {played.file}")
    if terminal.interrupted:
        raise typer.Exit(128 + signal.SIGINT)


class Terminal:
    """Shows texts and reads lines. Once something was shown, a Ctrl-C ends the reading, or is remembered while nobody reads.

    Attributes:
        interrupted: whether there was one.
    """

    def __init__(self) -> None:
        self.interrupted = self._playing = False
        self._before: Any = None
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # bytes that are no text are no action, and end no game

    def __enter__(self) -> Terminal:
        if threading.current_thread() is threading.main_thread():
            # before an event loop starts, which would put a handler of its own here
            self._before = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def show(self, text: str) -> None:
        """Puts a text before the human."""
        self._playing = True
        out.print(text)

    def read(self) -> str:
        """The next line, without its end; raises `Left` at its end or at a Ctrl-C."""
        from opentinker.human import Left

        if self.interrupted:
            raise Left
        try:
            with self._listening():
                line = _line()
        except KeyboardInterrupt:
            self.interrupted = True
            out.print()
            raise Left from None
        if line is None:
            out.print()
            raise Left
        return line

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """A Ctrl-C raises inside."""
        if self._before is None:
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._remember)

    def _remember(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._playing:
            raise KeyboardInterrupt
        self.interrupted = True


def _line() -> str | None:
    """A line without its end, None at the end of the input."""
    from opentinker.human import excerpt

    if sys.stdin.isatty():
        try:
            return input("> ")
        except EOFError:
            return None
    out.print("> ", end="")
    sys.stdout.flush()
    line = sys.stdin.readline()
    out.print(excerpt(line.rstrip("\n")))
    return line.rstrip("\n") if line else None
