"""A run's live environments: made when they are needed, kept between episodes, closed where they may be broken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from opentinker.config import EnvConfig
from opentinker.envs import EnvHandle, EnvStats, open_env

T = TypeVar("T")

OPENING = 16
"""Environments that are made at the same time."""


class EnvPool:
    """Hands out environments of one configuration; every one taken is put back or dropped.

    Attributes:
        stats: counts over all of them.
    """

    def __init__(self, config: EnvConfig) -> None:
        self.stats = EnvStats()
        self._config = config
        self._idle: list[EnvHandle] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(OPENING)

    @property
    def idle(self) -> int:
        """Environments that wait for their next episode."""
        return len(self._idle)

    async def take(self) -> EnvHandle:
        """One that waits, else a new one, made away from the event loop: a constructor may take its time.

        Raises:
            EnvError: it could not be made.
            UnknownId, ConfigError: it can never be made.
        """
        while self._idle:
            env = self._idle.pop()
            if not env.abandoned:  # a process may end between two episodes
                return env
        async with self._slots:
            return await aside(self._open)

    def put(self, env: EnvHandle) -> None:
        """Takes back an environment that is sound."""
        if not env.abandoned:
            self._idle.append(env)

    def drop(self, env: EnvHandle) -> None:
        """Closes one that may be broken, in the background: waits for a call still under way, or abandons it."""
        closing = asyncio.ensure_future(env.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all that were put back or dropped; one that will not close is logged and left behind."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*self._closing, *(env.close() for env in idle))

    def _open(self) -> EnvHandle:
        env = self._config
        return open_env(
            env.id,
            env.kwargs,
            isolation=env.isolation,
            step_timeout=env.step_timeout,
            action_names=env.action_names,
            action_units=env.action_units,
            observation_units=env.observation_units,
            render=env.render,
            parse=env.parse,
            stats=self.stats,
        )


async def aside(call: Callable[[], T]) -> T:
    """A blocking call in a daemon thread of its own: unlike an executor's, nothing waits for it when the process ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():  # nobody waits any more
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # T may be None

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # handed to whoever waits
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=work, name="opentinker-open", daemon=True).start()
    return await answer
