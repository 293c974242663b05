import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.coordinators.barrier import together
from opentinker.testing import CountingPace

# What a coroutine at the barrier does: give way so many times, then end in this way.
endings = st.sampled_from(["ends", "raises", "hangs", "rude", "deaf"])
behaviours = st.lists(st.tuples(st.integers(0, 3), endings), min_size=1, max_size=6)


async def behave(index, ticks, end, trace):
    try:
        for _ in range(ticks):
            await asyncio.sleep(0)
        if end == "raises":
            raise ValueError(f"number {index}")
        if end == "hangs":
            await asyncio.Event().wait()
        if end == "rude":  # an error of its own in place of the cancellation
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError(index) from None
        if end == "deaf":  # swallows the first cancellation and needs some more turns of the loop
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
    finally:
        trace.append(index)


@given(behaviours, st.none() | st.integers(0, 4), st.booleans())
def test_the_pace_is_exact_under_failures_and_cancellations(cases, cancel_after, twice):
    if cancel_after is None and not any(end == "raises" for _, end in cases):
        cancel_after = 4  # else what hangs would hang
    pace = CountingPace()
    pace.enter()  # the episode itself
    trace, seen = [], []

    async def meet():
        await together([behave(index, *case, trace) for index, case in enumerate(cases)], pace)

    async def main():
        barrier = asyncio.ensure_future(meet())
        for tick in range(60):
            if tick == cancel_after or (twice and cancel_after is not None and tick == cancel_after + 1):
                barrier.cancel()
            await asyncio.sleep(0)
            seen.append(pace.count)
        assert barrier.done()
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing acts after its barrier
        return barrier

    barrier = asyncio.run(main())
    assert pace.count == 1
    assert min(seen) >= 1 and pace.highest <= len(cases)
    # only the caller's cancellation or a coroutine's own error comes out
    assert barrier.cancelled() or barrier.exception() is None or isinstance(barrier.exception(), (ValueError, KeyError))
    if cancel_after is None:
        assert isinstance(barrier.exception(), ValueError)


def test_the_count_follows_each_coroutine_that_ends():
    pace = CountingPace()
    pace.enter()
    gates = []

    async def wait(index):
        await gates[index].wait()

    async def main():
        gates.extend(asyncio.Event() for _ in range(3))
        barrier = asyncio.ensure_future(together([wait(index) for index in range(3)], pace))
        counts = []
        for gate in [None, *gates]:
            if gate is not None:
                gate.set()
            for _ in range(4):
                await asyncio.sleep(0)
            counts.append(pace.count)
        await barrier
        return counts

    assert asyncio.run(main()) == [3, 2, 1, 1]  # the last one's place is the caller's


def test_the_first_error_in_time_is_raised():
    async def fail(ticks, name):
        for _ in range(ticks):
            await asyncio.sleep(0)
        raise ValueError(name)

    with pytest.raises(ValueError, match="early"):
        asyncio.run(together([fail(3, "late"), fail(1, "early")], None))


def test_a_cancellation_waits_for_the_tasks_and_is_raised():
    async def slow_to_end(ended):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            ended.append(True)

    async def main():
        ended = []
        barrier = asyncio.ensure_future(together([slow_to_end(ended), slow_to_end(ended)], None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        barrier.cancel()
        with pytest.raises(asyncio.CancelledError):
            await barrier
        return ended

    assert asyncio.run(main()) == [True, True]


def test_a_cancellation_while_a_failure_is_cleaned_up_is_raised_and_not_the_failure():
    async def slow_to_end():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(10)

    async def fail():
        raise ValueError

    async def main():
        barrier = asyncio.ensure_future(together([slow_to_end(), fail()], None))
        for _ in range(6):
            await asyncio.sleep(0)
        assert not barrier.done()
        barrier.cancel()
        with pytest.raises(asyncio.CancelledError):
            await barrier

    asyncio.run(main())


def test_an_interrupt_is_never_caught():
    async def interrupt():
        raise KeyboardInterrupt

    async def wait():
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(together([wait(), interrupt()], None))
