"""A thread that draws while there is something to draw, and stands aside for those who need the weights."""

from __future__ import annotations

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Iterator
from contextlib import contextmanager

from opentinker.sampling.base import Request
from opentinker.sampling.batching import Answer, Failure
from opentinker.sampling.pool import Pool, deliver

log = logging.getLogger(__name__)

CLOSED = "the sampler was closed while this request waited"

_IDLE = 1.0
"""Seconds without work after which the thread ends; the next request starts another."""


class Worker:
    """Steps a pool in a thread of its own and delivers every answer as soon as it is ready.

    Args:
        pool: nobody else may touch it, except inside `aside`.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turn = threading.Condition()
        self._incoming: list[Request] = []
        self._thread: threading.Thread | None = None
        self._working = False
        self._held = False
        self._fences = 0
        self._asides = 0
        self._closed = False

    def put(self, requests: list[Request]) -> None:
        """Requests join at the next step."""
        with self._turn:
            if self._closed:
                deliver([(request, Failure(CLOSED)) for request in requests])
                return
            self._incoming += requests
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="opentinker-sampler", daemon=True)
                self._thread.start()
            self._turn.notify_all()

    @contextmanager
    def aside(self, *, fence: bool) -> Iterator[None]:
        """The thread stands still between two steps.

        Args:
            fence: first finish what was begun and begin nothing more: what is drawn keeps its weights to the end.
        """
        with self._turn:
            self._asides += not fence
            self._fences += fence
            try:
                self._turn.wait_for(lambda: not self._working and not self._held and not (fence and self._pool.busy))
                self._held = True
            finally:
                self._asides -= not fence
                self._fences -= fence
        try:
            yield
        finally:
            with self._turn:
                self._held = False
                self._turn.notify_all()

    def close(self) -> None:
        """Fails what waits at once, and what is being drawn after the step under way."""
        with self._turn:
            self._closed = True
            waiting, self._incoming = self._incoming, []
            self._turn.notify_all()
        _send([(request, Failure(CLOSED)) for request in waiting])

    def _run(self) -> None:
        while (requests := self._next()) is not None:
            try:
                answers = self._pool.put(requests)
                answers += self._pool.work()
            except Exception as error:  # a fault of ours: nobody may wait for ever
                log.exception("the sampler failed")
                message = f"the sampler failed: {type(error).__name__}: {error}"
                answers = [*self._pool.stop(message), *[(request, Failure(message, error)) for request in requests]]
            _send(answers)
            with self._turn:
                self._working = False
                self._turn.notify_all()
        with self._turn:
            # after an idle end the pool may already be another thread's
            answers = self._pool.stop(CLOSED) if self._closed else []
            self._turn.notify_all()
        _send(answers)

    def _next(self) -> list[Request] | None:
        """Waits for the next step and what joins in it; None: the thread is to end."""
        with self._turn:
            if not self._turn.wait_for(lambda: self._closed or self._ready(), _IDLE) and not self._anything():
                self._thread = None
                return None
            self._turn.wait_for(lambda: self._closed or self._ready())
            if self._closed:
                return None
            self._working = True
            if self._fences:
                return []
            joining, self._incoming = self._incoming, []
            return joining

    def _ready(self) -> bool:
        if self._held or self._asides:
            return False
        return self._pool.busy or bool(self._incoming and not self._fences)

    def _anything(self) -> bool:
        return bool(self._incoming) or self._pool.busy


def _send(answers: list[Answer]) -> None:
    """Hands answers to the event loops that wait for them; a loop that was closed waits no more."""
    by_loop: dict[AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].future.get_loop(), []).append(answer)
    for loop, found in by_loop.items():
        try:
            loop.call_soon_threadsafe(deliver, found)
        except RuntimeError:
            if not loop.is_closed():
                raise
