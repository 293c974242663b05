"""Several coroutines side by side: the first to fail calls off the others, and the pace's count stays exact."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Iterable, Sequence

from opentinker.coordinators.failures import log_failure
from opentinker.errors import SeatOut, error_text
from opentinker.types import Pace


async def together(coroutines: Sequence[Coroutine[None, None, None]], pace: Pace | None) -> None:
    """Runs coroutines side by side until all have ended.

    When one raises, the others are cancelled, and waited for: nothing acts after its barrier.

    Args:
        coroutines: at least one.
        pace: told how many of them may still ask a sampler; the caller itself, who waits meanwhile, counts for the last.

    Raises:
        BaseException: the first error, in order of time.
        asyncio.CancelledError: the caller was cancelled, or one of the tasks was from elsewhere.
    """
    if len(coroutines) == 1:
        await coroutines[0]
        return
    leaver = _Leaver(pace, len(coroutines))
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    for task in tasks:
        task.add_done_callback(leaver)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await call_off(tasks)
    if leaver.first is not None:
        raise leaver.first
    for task in tasks:
        task.result()


async def call_off(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels what still runs and waits until it has ended.

    A cancellation of the caller meanwhile is passed on to the tasks and raised when they have ended.
    """
    running = pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
            pending = {task for task in pending if not task.done()}
    for task in running:
        if not task.cancelled():
            task.exception()  # read, or asyncio would report it as lost; the caller decides what it means
    if cancelled is not None:
        raise cancelled


def cancel_requests() -> int:
    """How often the current task has been asked to end; see `asyncio.Task.cancelling`."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class _Leaver:
    """Enters the pace for n tasks asked by one coroutine; all but the last to end leave.

    Called as a task's done callback, and so also for a task that was cancelled before it began.
    """

    def __init__(self, pace: Pace | None, n: int) -> None:
        self.first: BaseException | None = None
        self._pace = pace
        self._left = n
        if pace is not None:
            pace.enter(n - 1)

    def __call__(self, task: asyncio.Task[None]) -> None:
        self._left -= 1
        error = None if task.cancelled() else task.exception()
        if self.first is None:
            self.first = error
        elif error is not None and not isinstance(error, SeatOut):  # a player's leaving is on the episode's record
            log_failure(
                f"one more error at a barrier that had failed: {error_text(error)}\n"
                + "".join(traceback.format_exception(error))
            )
        if self._pace is not None and self._left:
            self._pace.leave()
