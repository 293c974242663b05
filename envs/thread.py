"""One daemon thread for one environment: every call is made there, callers await it, exit waits for nobody."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from opentinker.envs.world import Askable, EnvStats

logger = logging.getLogger(__name__)

Outcome = tuple[Any, BaseException | None]
"""An answer and, where the call raised, what it raised."""
_Job = tuple[str, tuple[Any, ...], Callable[[Outcome], None]]


class Overdue(Exception):
    """No answer within the time allowed."""


class EnvThread:
    """The thread and its queue. Calls run one after another, in the order in which they were made.

    Not an executor: the interpreter joins those at exit, and a hanging environment would keep it from ending.
    """

    def __init__(self, world: Askable, name: str, stats: EnvStats) -> None:
        self._world, self._stats = world, stats
        self._waiting: set[asyncio.Future[Outcome | None]] = set()
        self._given_up = threading.Event()
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        arguments = (world, self.jobs, self._given_up, name)
        threading.Thread(target=_serve, args=arguments, name=f"env {name}", daemon=True).start()

    async def run(self, op: str, args: tuple[Any, ...], timeout: float | None) -> Outcome:
        """One call, awaited.

        A caller that is cancelled stops waiting; the call itself goes on, and later calls queue behind it.

        Raises:
            Overdue: no answer within `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome | None] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            loop.call_soon_threadsafe(self._settle, answer, outcome)

        self.jobs.put((op, args, deliver))
        self._waiting.add(answer)
        timer = None if timeout is None else loop.call_later(timeout, _expire, answer)
        try:
            outcome = await answer
        finally:
            self._waiting.discard(answer)
            if timer is not None:
                timer.cancel()
        if outcome is None:
            raise Overdue
        return outcome

    def run_blocking(self, op: str, args: tuple[Any, ...], timeout: float | None) -> Outcome:
        """One call, waited for in the calling thread. Raises like `run`."""
        answers: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.jobs.put((op, args, answers.put))
        try:
            return answers.get(timeout=timeout)
        except queue.Empty:
            raise Overdue from None

    def stop(self) -> None:
        """Lets the thread end after the calls made so far."""
        self.jobs.put(None)

    def abandon(self) -> None:
        """Lets the thread end after its present call, which may be never, or ends that call where it can be killed.

        Calls behind it are not made; whoever awaits one is told `Overdue`.
        """
        self._given_up.set()
        self.jobs.put(None)
        for answer in list(self._waiting):
            _expire(answer)
        self._world.kill()

    def _settle(self, answer: asyncio.Future[Outcome | None], outcome: Outcome) -> None:
        if answer.done():
            self._stats.late += 1
        else:
            answer.set_result(outcome)


def _expire(answer: asyncio.Future[Outcome | None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _serve(world: Askable, jobs: queue.SimpleQueue[_Job | None], given_up: threading.Event, name: str) -> None:
    while (job := jobs.get()) is not None and not given_up.is_set():
        _answer(world, job, name)
        del job  # or the last answer would live until the next call
    try:
        world.ask("close", ())
    except BaseException:  # what ends a thread is no more to it than what an environment raises
        logger.warning("environment %s raised while it was closed", name, exc_info=True)


def _answer(world: Askable, job: _Job, name: str) -> None:
    op, args, deliver = job
    try:
        outcome: Outcome = world.ask(op, args), None
    except BaseException as error:  # SystemExit too: somebody waits for an answer
        outcome = None, error
    try:
        deliver(outcome)
    except RuntimeError:  # the caller's event loop is closed
        logger.debug("environment %s answered %s after its caller was gone", name, op)
