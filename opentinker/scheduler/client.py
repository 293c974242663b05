"""Who may use the device now: the scheduler a single run needs, one logical device held by one lease at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from opentinker.errors import LeaseLost
from opentinker.types import Lease, LeaseMode


class LocalScheduler:
    """Owns one logical device in this process. Leases are granted in the order of asking, one at a time.

    Every grant raises the epoch, so a lease that was given back can neither be renewed nor used again.
    """

    def __init__(self, holder: str = "run", epoch: int = 0) -> None:
        self.holder = holder
        self.epoch = epoch
        self._current: Lease | None = None
        self._device = asyncio.Lock()
        self._waiting = 0

    def lease(self, policies: Sequence[str], mode: LeaseMode) -> AbstractAsyncContextManager[Lease]:
        """`async with scheduler.lease(["learner"], LeaseMode.TRAIN) as lease:` holds the device inside the block."""
        return self._lease(tuple(policies), mode)

    @asynccontextmanager
    async def _lease(self, policies: tuple[str, ...], mode: LeaseMode) -> AsyncIterator[Lease]:
        self._waiting += 1
        try:
            await self._device.acquire()  # a fair lock: first come, first served
        finally:
            self._waiting -= 1
        try:
            self.epoch += 1
            lease = Lease(f"{self.holder}/{self.epoch}", self.holder, policies, mode, self.epoch, deadline=None)
            self._current = lease
            yield lease
        finally:
            self._current = None
            self._device.release()

    async def renew(self, lease: Lease) -> Lease:
        """The lease, still valid.

        Raises:
            LeaseLost: it was given back, or another one was granted since.
        """
        if self._current is None or lease.epoch != self._current.epoch:
            held = self._current.epoch if self._current else "none"
            raise LeaseLost(f"lease {lease.id} has epoch {lease.epoch}, the device is held by epoch {held}")
        return self._current

    def should_yield(self, lease: Lease) -> bool:
        """Whether somebody else waits for the device. Asked at step boundaries."""
        return self._waiting > 0
