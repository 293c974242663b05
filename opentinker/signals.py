"""A polite stop: the first signal is remembered until the step is done, the second one ends the process at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """While entered, SIGINT and SIGTERM set `signum` instead of ending the process; in the main thread only."""

    def __init__(self) -> None:
        self.signum = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, _or_default(handler))

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.signum:
            signal.signal(signum, _or_default(self._before[signum]))
            signal.raise_signal(signum)
        self.signum = signum


def _or_default(handler: Any) -> Any:
    return signal.SIG_DFL if handler is None else handler  # None: one that was not set from Python, nor can be
