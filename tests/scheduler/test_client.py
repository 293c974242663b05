"""The one-device scheduler."""

import asyncio

import pytest

from opentinker.errors import LeaseLost
from opentinker.scheduler.client import LocalScheduler
from opentinker.types import LeaseMode


def test_leases_are_exclusive_and_first_come_first_served():
    async def main():
        scheduler, log = LocalScheduler(), []

        async def user(name):
            async with scheduler.lease([name], LeaseMode.TRAIN) as lease:
                log.append(("in", name, lease.epoch))
                await asyncio.sleep(0.001)
                log.append(("out", name, lease.epoch))

        await asyncio.gather(user("a"), user("b"), user("c"))
        return log

    assert asyncio.run(main()) == [
        (what, name, epoch) for epoch, name in enumerate("abc", start=1) for what in ("in", "out")
    ]


def test_s4_a_stale_epoch_is_refused():
    async def main():
        scheduler = LocalScheduler()
        async with scheduler.lease(["a"], LeaseMode.SERVE) as old:
            assert await scheduler.renew(old) == old
        async with scheduler.lease(["a"], LeaseMode.TRAIN):
            with pytest.raises(LeaseLost, match="epoch 1"):
                await scheduler.renew(old)
        with pytest.raises(LeaseLost, match="held by epoch none"):
            await scheduler.renew(old)

    asyncio.run(main())


def test_an_error_inside_a_lease_gives_the_device_back():
    async def main():
        scheduler = LocalScheduler()
        with pytest.raises(ZeroDivisionError):
            async with scheduler.lease(["a"], LeaseMode.TRAIN):
                raise ZeroDivisionError
        async with scheduler.lease(["b"], LeaseMode.TRAIN) as lease:
            return lease.policies

    assert asyncio.run(main()) == ("b",)


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_waiter_does_not_block_the_queue(granted):
    async def main():
        scheduler = LocalScheduler()
        async with scheduler.lease(["a"], LeaseMode.TRAIN) as lease:
            loser = asyncio.create_task(_hold(scheduler))
            await asyncio.sleep(0)
            winner = asyncio.create_task(_hold(scheduler))
            await asyncio.sleep(0)
            assert scheduler.should_yield(lease)
            if not granted:
                loser.cancel()
                await asyncio.sleep(0)
        if granted:
            loser.cancel()  # its turn has come, but it has not run yet
        await asyncio.wait_for(winner, 1)
        with pytest.raises(asyncio.CancelledError):
            await loser

    asyncio.run(main())


async def _hold(scheduler):
    async with scheduler.lease(["x"], LeaseMode.SERVE):
        pass
