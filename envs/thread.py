"""One daemon thread for one environment: every call is made there, callers await it, exit waits for nobody."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
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
        self._jobs = _Jobs()
        arguments = (world, self._jobs, self._given_up, name)
        threading.Thread(target=_serve, args=arguments, name=f"env {name}", daemon=True).start()

    async def run(self, op: str, args: tuple[Any, ...], timeout: float | None) -> Outcome:
        """One call, awaited.

        A caller that is cancelled stops waiting; the call itself goes on, and later calls queue behind it.

        Raises:
            Overdue: no answer within `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome | None] = loop.create_future()
        mailbox = _mailbox(loop)

        def deliver(outcome: Outcome) -> None:
            mailbox.put((self._settle, answer, outcome))

        self._jobs.put((op, args, deliver))
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
        self._jobs.put((op, args, answers.put))
        try:
            return answers.get(timeout=timeout)
        except queue.Empty:
            raise Overdue from None

    def stop(self) -> None:
        """Lets the thread end after the calls made so far. May be called by a finalizer, whatever else is under way."""
        self._jobs.put(None)

    def abandon(self) -> None:
        """Lets the thread end after its present call, which may be never, or ends that call where it can be killed.

        Calls behind it are not made; whoever awaits one is told `Overdue`.
        """
        self._given_up.set()
        self._jobs.put(None)
        for answer in list(self._waiting):
            _expire(answer)
        self._world.kill()

    def _settle(self, answer: asyncio.Future[Outcome | None], outcome: Outcome) -> None:
        if answer.done():
            self._stats.late += 1
        else:
            answer.set_result(outcome)


_Letter = tuple[Callable[[asyncio.Future[Outcome | None], Outcome], None], asyncio.Future[Outcome | None], Outcome]


class _Mailbox:
    """Answers on their way into one event loop. However many come, the loop is woken once until it has read them.

    A wake-up of its own for each would be a system call, around which the thread must let go of the interpreter and get hold
    of it again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._letters: deque[_Letter] = deque()
        self._rung = False

    def put(self, letter: _Letter) -> None:
        """From any thread. Raises RuntimeError where the loop is closed."""
        self._letters.append(letter)
        if not self._rung:  # two threads may both ring; the second finds nothing
            self._rung = True
            try:
                self.loop.call_soon_threadsafe(self._read)
            except RuntimeError:
                self._rung = False
                self._letters.clear()
                raise

    def _read(self) -> None:
        if not self._letters:
            self._rung = False  # who puts a letter from now on rings again
            if not self._letters:  # nor has any come just before
                return
            self._rung = True
        for _ in range(len(self._letters)):
            settle, answer, outcome = self._letters.popleft()
            settle(answer, outcome)
        self.loop.call_soon(self._read)  # after those who have just been answered; until then nobody needs to ring


class _Here(threading.local):
    mailbox: _Mailbox | None = None


_HERE = _Here()


def _mailbox(loop: asyncio.AbstractEventLoop) -> _Mailbox:
    """The mailbox of the loop that runs in this thread."""
    mailbox = _HERE.mailbox
    if mailbox is None or mailbox.loop is not loop:
        mailbox = _HERE.mailbox = _Mailbox(loop)
    return mailbox


def _expire(answer: asyncio.Future[Outcome | None]) -> None:
    if not answer.done():
        answer.set_result(None)


class _Jobs:
    """The calls that wait for one thread, in order; `None` is the last one."""

    def __init__(self) -> None:
        self._waiting: deque[_Job | None] = deque()
        self._asleep: deque[None] = deque()
        """Holds one entry while the thread sleeps and nobody has set out to wake it: whoever takes it, does."""
        self.bell = threading.Lock()
        self.bell.acquire()

    def put(self, job: _Job | None) -> None:
        """From any thread, and from a finalizer: no lock is ever held."""
        self._waiting.append(job)
        if _taken(self._asleep):
            _DOOR.ring(self)

    def get(self) -> _Job | None:
        """The next call, waited for. For the one thread only."""
        while not self._waiting:
            self._asleep.append(None)
            if self._waiting and _taken(self._asleep):
                break
            self.bell.acquire()
            _DOOR.passed()
        return self._waiting.popleft()


class _Door:
    """Wakes threads a few at a time: who has woken wakes the next.

    A thread that has been woken waits for the interpreter's lock, and looks at it every 5 ms meanwhile; hundreds that wake
    together spend more time looking than working. Nothing here takes a lock: every step is one operation of a deque.
    """

    def __init__(self, places: int) -> None:
        self._line: deque[_Jobs] = deque()
        self._free: deque[None] = deque([None] * places)

    def ring(self, jobs: _Jobs) -> None:
        """Wakes a thread, when it is its turn."""
        self._line.append(jobs)
        self._admit()

    def passed(self) -> None:
        """A woken thread is on its feet: its place goes to the next."""
        self._free.append(None)
        self._admit()

    def _admit(self) -> None:
        while self._line and _taken(self._free):
            try:
                jobs = self._line.popleft()
            except IndexError:  # another thread was faster; the line may have grown since
                self._free.append(None)
            else:
                jobs.bell.release()


_DOOR = _Door(4)


def _taken(tokens: deque[None]) -> bool:
    """Takes one of the tokens, if there is one."""
    try:
        tokens.pop()
    except IndexError:
        return False
    return True


def _serve(world: Askable, jobs: _Jobs, given_up: threading.Event, name: str) -> None:
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
