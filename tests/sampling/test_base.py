import asyncio

import numpy as np
import pytest
import torch

from opentinker.errors import ConfigError, SamplerError
from opentinker.sampling.base import Request, WaitingRoom, check_key, check_params, prompt_of, request_seed
from opentinker.types import PolicyRef, SamplingParams


class Batches:
    """A room whose batches are noted; each request is answered with its key's group."""

    def __init__(self, *, in_step=True):
        self.seen = []
        self.room = WaitingRoom(self.take, in_step=in_step)

    def take(self, requests):
        self.seen.append(sorted(request.key[0] for request in requests))
        for request in requests:
            request.finish(request.key[0])

    async def ask(self, group):
        request = Request(PolicyRef("p"), (1,), SamplingParams(), 0, (group, 0, "a", 0, 0), self.room.loop().create_future())
        self.room.put(request)
        return await request.future


def test_in_step_a_batch_goes_when_all_who_entered_wait():
    batches = Batches()

    async def episode(group, pause):
        for _ in range(2):
            await asyncio.sleep(pause)
            assert await batches.ask(group) == group
        batches.room.leave()

    async def main():
        batches.room.enter(3)
        await asyncio.gather(*[episode(group, 0.01 * group) for group in range(3)])

    asyncio.run(main())
    assert batches.seen == [[0, 1, 2], [0, 1, 2]]
    assert batches.room.entered == 0


def test_those_who_wait_go_when_the_last_other_leaves():
    batches = Batches()

    async def leaves():
        await asyncio.sleep(0.02)
        assert batches.seen == []
        batches.room.leave()

    async def main():
        batches.room.enter(2)
        await asyncio.wait_for(asyncio.gather(batches.ask(0), leaves()), 5)

    asyncio.run(main())
    assert batches.seen == [[0]]


def test_a_cancelled_request_does_not_hold_the_batch_nor_stand_in_for_one_that_waits():
    batches = Batches()

    async def main():
        batches.room.enter(3)
        gone = asyncio.create_task(batches.ask(0))
        kept = asyncio.create_task(batches.ask(1))
        await asyncio.sleep(0.01)
        gone.cancel()
        late = asyncio.create_task(batches.ask(2))
        await asyncio.sleep(0.01)
        # two of three wait; the cancelled one may still ask again
        assert batches.seen == [] and batches.room.waiting == 2
        batches.room.leave()
        assert await asyncio.wait_for(asyncio.gather(kept, late), 5) == [1, 2]

    asyncio.run(main())
    assert batches.seen == [[1, 2]]


def test_cancelled_in_the_turn_in_which_the_batch_is_due():
    batches = Batches()

    async def main():
        batches.room.enter(2)
        gone = asyncio.create_task(batches.ask(0))
        await asyncio.sleep(0)
        kept = asyncio.create_task(batches.ask(1))
        await asyncio.sleep(0)  # both wait, the handing over is planned
        gone.cancel()
        await asyncio.sleep(0.01)
        assert batches.seen == []
        batches.room.leave()
        assert await asyncio.wait_for(kept, 5) == 1

    asyncio.run(main())
    assert batches.seen == [[1]]


def test_out_of_step_whatever_waits_goes_at_the_next_turn():
    batches = Batches(in_step=False)

    async def main():
        batches.room.enter(9)
        await asyncio.wait_for(asyncio.gather(batches.ask(0), batches.ask(1)), 5)

    asyncio.run(main())
    assert batches.seen == [[0, 1]]


def test_the_room_says_when_the_last_that_entered_has_left():
    left = []
    room = WaitingRoom(lambda requests: None, in_step=True, deserted=lambda: left.append(room.entered))
    room.enter(2)
    room.leave()
    assert left == []
    room.leave()
    room.leave(0)
    assert left == [0]


def test_who_never_entered_is_served():
    batches = Batches()
    assert asyncio.run(batches.ask(4)) == 4


def test_leaving_more_often_than_entering_is_an_error():
    room = Batches().room
    room.enter(1)
    with pytest.raises(RuntimeError, match="2 leave the sampler, but only 1 have entered"):
        room.leave(2)
    assert room.entered == 1


def test_what_a_broken_run_left_behind_does_not_block_the_next():
    batches = Batches()

    async def broken():
        batches.room.enter(5)
        raise ValueError("before anybody left")

    with pytest.raises(ValueError, match="before anybody"):
        asyncio.run(broken())
    assert asyncio.run(asyncio.wait_for(batches.ask(1), 5)) == 1


def test_entering_before_the_loop_runs_counts():
    batches = Batches()
    batches.room.enter(2)

    async def main():
        first = asyncio.create_task(batches.ask(0))
        await asyncio.sleep(0.01)
        assert batches.seen == []
        await asyncio.wait_for(asyncio.gather(first, batches.ask(1)), 5)

    asyncio.run(main())
    assert batches.seen == [[0, 1]]


def test_two_loops_at_once_are_refused():
    batches = Batches()
    other = asyncio.new_event_loop()

    async def main():
        batches.room.enter(1)

    other.run_until_complete(main())
    with pytest.raises(SamplerError, match="in use by another event loop"):
        asyncio.run(batches.ask(0))
    other.close()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SamplingParams(max_tokens=0), "max_tokens must be at least 1, given: 0"),
        (SamplingParams(temperature=-0.1), "temperature must be finite .* given: -0.1"),
        (SamplingParams(temperature=float("nan")), "temperature"),
        (SamplingParams(temperature=float("inf")), "temperature"),
        (SamplingParams(temperature=9e-7), r"at least 1e-06, or 0 \(greedy\), given: 9e-07"),
        (SamplingParams(temperature=1e-46), "given: 1e-46"),
        (SamplingParams(temperature="1"), "given: '1'"),
        (SamplingParams(max_tokens=2.5), "max_tokens must be an int, given: 2.5"),
        (SamplingParams(max_tokens=True), "max_tokens must be an int, given: True"),
        (SamplingParams(top_k=1.0), "top_k must be an int"),
        (SamplingParams(top_p="a"), "top_p must lie in"),
        (SamplingParams(seed=0.5), "seed must be an int"),
        (SamplingParams(stop="ab"), "stop must be a tuple of strings, given: 'ab'"),
        (SamplingParams(stop=(1,)), "stop must be a tuple of strings"),
        (SamplingParams(top_p=0.0), "top_p must lie in"),
        (SamplingParams(top_p=1.1), "top_p must lie in"),
        (SamplingParams(top_k=-1), "top_k must be at least 0"),
        (SamplingParams(stop=("a", "")), "empty stop string"),
    ],
)
def test_settings_that_cannot_be_drawn_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        check_params(params)


def test_temperatures_that_can_be_divided_by_are_taken():
    for temperature in (0.0, 0, 1, 1e-6, np.float32(0.5)):
        check_params(SamplingParams(temperature=temperature))


@pytest.mark.parametrize("ids", [[5, 6], (5, 6), range(5, 7), np.array([5, 6]), torch.tensor([5, 6]), [np.int64(5), 6]])
def test_a_prompt_is_a_tuple_of_plain_ints(ids):
    prompt = prompt_of(ids)
    assert prompt == (5, 6) and set(map(type, prompt)) == {int}


@pytest.mark.parametrize("ids", ["ab", [5.5], [None], [True], 7, None, [[5]], np.array([0.5]), ["5"]])
def test_prompts_of_other_things_are_refused(ids):
    with pytest.raises(ConfigError, match="a prompt must be a sequence of ints, given: "):
        prompt_of(ids)


@pytest.mark.parametrize("key", [("x",), (0, 0, 1, 0, 0), None, [0, 0, "a", 0, 0], (0, 0, "a", 0, None)])
def test_keys_that_do_not_compare_are_refused(key):
    with pytest.raises(ConfigError, match="a key must be"):
        check_key(key)


def test_seeds_of_any_size_are_taken_and_missing_ones_are_fresh():
    assert request_seed(SamplingParams(seed=5)) == 5
    assert request_seed(SamplingParams(seed=-1)) == 2**64 - 1
    assert request_seed(SamplingParams()) != request_seed(SamplingParams())
