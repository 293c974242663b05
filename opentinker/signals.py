"""A polite stop: the first signal is remembered until the step is done, the second one ends the process at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StopRequest:
    """While entered, SIGINT and SIGTERM set `signum` instead of ending the process; in the main thread only.

    Enter it before an event loop starts: `asyncio.run` would put a handler in between that makes a second Ctrl-C wait for
    the next `await`.

    Args:
        armed: false: signals do what they did before, until `listening`.
    """

    def __init__(self, armed: bool = True) -> None:
        self.signum = 0
        self._armed = armed
        self._say: Callable[[], None] = _silent
        self._leave: Callable[[int], None] = _silent
        self._before: dict[int, Any] = {}

    @contextmanager
    def listening(self, say: Callable[[], None], leave: Callable[[int], None]) -> Iterator[None]:
        """Signals are remembered inside.

        Args:
            say: called at the first one, in the main thread, between two of its steps.
            leave: called at the second one with its number, likewise, before it does what it did before.
        """
        self._armed, self._say, self._leave = True, say, leave
        try:
            yield
        finally:
            self._armed, self._say, self._leave = False, _silent, _silent

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, _or_default(handler))

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._armed and not self.signum:
            self.signum = signum
            self._say()
            return
        self._leave(signum)
        before = self._before[signum]
        if callable(before):
            before(signum, frame)
        else:
            signal.signal(signum, _or_default(before))
            signal.raise_signal(signum)


def _silent(*_: object) -> None:
    pass


def _or_default(handler: Any) -> Any:
    return signal.SIG_DFL if handler is None else handler  # None: one that was not set from Python, nor can be
