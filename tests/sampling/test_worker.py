"""Drawing in a thread of its own: who joins when, who is answered when, and that nobody waits for ever."""

import asyncio
import threading
import time

import pytest
import torch

from opentinker.errors import SamplerError
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import PolicyRef, SamplingParams

LEARNER = PolicyRef("learner")


class Gate:
    """Counts the steps of a model and holds it before chosen ones."""

    def __init__(self, **settings):
        self.model, tokenizer = build_tiny(3)
        self.sampler = HFSampler(deterministic=False, **settings)
        self.sampler.add("learner", self.model, tokenizer, eos_ids=[])
        asyncio.run(asyncio.wait_for(self.ask(2, 0, (100, 101)), 20))  # what the model can do is tried at first use
        self.rows = []
        self.stops = {}
        self.error = None
        self.model.register_forward_pre_hook(self.step, with_kwargs=True)
        [network] = self.sampler._pool._engines
        network._lean = None  # the model itself is to be called

    def step(self, module, args, kwargs):
        at = len(self.rows)
        self.rows.append(tuple(args[0].shape))
        if at in self.stops:
            assert self.stops[at].wait(10)
        if self.error is not None:
            raise self.error

    def hold(self, at):
        self.stops[at] = threading.Event()
        return self.stops[at]

    async def reached(self, at):
        """The model is about to take this step."""
        while len(self.rows) <= at:
            await asyncio.sleep(0.001)

    def ask(self, n, number, prompt=(5, 6, 7), ref=LEARNER):
        return self.sampler.sample(ref, prompt, SamplingParams(max_tokens=n, seed=number), key=(number, 0, "a", 0, 0))


@pytest.fixture
def gate():
    made = Gate()
    yield made
    for event in made.stops.values():
        event.set()
    made.sampler.close()


def run(main):
    return asyncio.run(asyncio.wait_for(main, 20))


def test_who_comes_joins_at_the_next_step_and_who_is_done_leaves_at_once(gate):
    async def main():
        third, last = gate.hold(3), gate.hold(6)
        first = asyncio.create_task(gate.ask(6, 1))
        await gate.reached(3)  # the prompt, two ids, and now the third
        second = asyncio.create_task(gate.ask(2, 2, (9, 8)))
        await asyncio.sleep(0.02)
        third.set()
        found = await second
        assert not first.done()  # its last step is held
        last.set()
        return await first, found

    first, second = run(main())
    # the second's prompt is read alone, then both grow together once
    assert gate.rows == [(1, 3), (1, 1), (1, 1), (1, 1), (1, 2), (2, 1), (1, 1)]
    assert (len(first.token_ids), len(second.token_ids)) == (6, 2)


def test_joining_changes_nobodys_ids(gate):
    async def main():
        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(gate.ask(12 - number, number, tuple(range(10, 12 + 3 * number)))))
            await gate.reached(len(gate.rows))
        return await asyncio.gather(*tasks)

    async def alone(number):
        return await gate.ask(12 - number, number, tuple(range(10, 12 + 3 * number)))

    together = run(main())
    for number, found in enumerate(together):
        expected = run(alone(number))
        assert found.token_ids == expected.token_ids
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_load_lets_what_was_begun_finish_and_what_came_later_wait(gate, plain_logprobs):
    async def main():
        second = gate.hold(2)
        old = asyncio.create_task(gate.ask(5, 1))
        await gate.reached(2)
        loading = asyncio.create_task(asyncio.to_thread(gate.sampler.load, "learner", build_tiny(4)[0].state_dict(), 1))
        await asyncio.sleep(0.05)
        new = asyncio.create_task(gate.ask(5, 2))
        await asyncio.sleep(0.05)
        second.set()
        found = await asyncio.gather(old, new)
        await loading
        return found

    old, new = run(main())
    assert (old.version, new.version) == (0, 1)
    assert (2, 1) not in gate.rows
    assert old.logprobs == pytest.approx(plain_logprobs(build_tiny(3)[0], (5, 6, 7), old.token_ids, 1.0), abs=1e-5)
    # what was remembered of the old weights is not used with the new ones
    [[expected]] = [gate.sampler.score(LEARNER, [(5, 6, 7)], [new.token_ids])]
    assert new.logprobs == pytest.approx(expected, abs=1e-5)


def test_score_goes_between_two_steps(gate):
    async def main():
        slow = asyncio.create_task(gate.ask(300, 1))
        await gate.reached(3)
        [scored] = await asyncio.to_thread(gate.sampler.score, LEARNER, [(5, 6)], [(7,)])
        assert not slow.done()
        slow.cancel()
        return scored

    assert len(run(main())) == 1


def test_a_cancelled_request_leaves_at_the_next_step(gate):
    async def main():
        second = gate.hold(2)
        gone, kept = asyncio.create_task(gate.ask(50, 1)), asyncio.create_task(gate.ask(6, 2))
        await gate.reached(2)
        gone.cancel()
        await asyncio.sleep(0.02)
        second.set()
        return await kept

    assert len(run(main()).token_ids) == 6
    assert gate.rows == [(1, 3), (2, 1), (2, 1), (1, 1), (1, 1), (1, 1)]


def test_t5_a_model_that_fails_fails_those_it_was_at_work_for(gate, caplog):
    async def main():
        first = gate.hold(1)
        asked = [asyncio.create_task(gate.ask(5, number)) for number in range(3)]
        await gate.reached(1)
        gate.error = MemoryError("no room")
        later = asyncio.create_task(gate.ask(4, 7))
        first.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        gate.error = None
        return found, await asyncio.gather(later, gate.ask(4, 8), return_exceptions=True)

    found, (_, after) = run(main())
    assert all(isinstance(error, SamplerError) and "failed on a batch of 3 requests: MemoryError: no room" in str(error)
               for error in found)  # fmt: skip
    assert len(after.token_ids) == 4


def test_t5_a_prompt_that_cannot_be_read_does_not_stop_those_that_grow(gate, caplog):
    async def main():
        first = gate.hold(1)
        growing = asyncio.create_task(gate.ask(6, 1))
        await gate.reached(1)
        joining = asyncio.create_task(gate.ask(6, 2, (9, 9, 9, 9)))
        await asyncio.sleep(0.02)
        with_error = gate.model.register_forward_pre_hook(refuse_four_ids)
        first.set()
        with pytest.raises(SamplerError, match="ValueError: four ids"):
            await joining
        with_error.remove()
        return await growing

    def refuse_four_ids(module, args):
        if args[0].shape[1] == 4:
            raise ValueError("four ids")

    expected = run(gate.ask(6, 1))
    gate.rows.clear()
    found = run(main())
    assert found.token_ids == expected.token_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_closing_while_a_completion_is_drawn_fails_it_and_all_others(gate):
    async def main():
        second = gate.hold(2)
        growing = asyncio.create_task(gate.ask(50, 1))
        await gate.reached(2)
        waiting = asyncio.create_task(gate.ask(50, 2))
        await asyncio.sleep(0.02)
        gate.sampler.close()
        second.set()
        found = await asyncio.gather(growing, waiting, return_exceptions=True)
        assert all(isinstance(error, SamplerError) and "the sampler was closed" in str(error) for error in found)
        with pytest.raises(SamplerError, match="the sampler is closed"):
            await gate.ask(1, 3)

    run(main())


def test_event_loops_follow_one_another_and_one_that_dies_leaves_nothing_behind(gate):
    async def dies():
        asyncio.create_task(gate.ask(400, 1))
        await gate.reached(3)
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        run(dies())
    for number in range(3):
        assert len(run(gate.ask(3, number)).token_ids) == 3
    deadline = time.monotonic() + 5
    while gate.sampler._pool.busy and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not gate.sampler._pool.busy


def test_the_thread_ends_when_nothing_is_to_be_drawn_and_starts_again(gate, monkeypatch):
    monkeypatch.setattr("opentinker.sampling.worker._IDLE", 0.02)
    run(gate.ask(2, 1))
    deadline = time.monotonic() + 5
    while gate.sampler._worker._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gate.sampler._worker._thread is None
    gate.sampler.load("learner", build_tiny(4)[0].state_dict(), 1)
    assert run(gate.ask(2, 1)).version == 1


def test_a_fault_of_the_samplers_own_reaches_those_who_wait(gate, monkeypatch, caplog):
    def broken(*_):
        raise AssertionError("impossible")

    monkeypatch.setattr("opentinker.sampling.engine.Engine._forget_cancelled", broken)

    async def main():
        return await asyncio.gather(gate.ask(2, 1), gate.ask(2, 2), return_exceptions=True)

    assert all("the sampler failed: AssertionError: impossible" in str(error) for error in run(main()))
    monkeypatch.undo()
    assert len(run(gate.ask(2, 1)).token_ids) == 2


def test_nan_fails_one_of_those_that_grow_together(gate):
    with torch.no_grad():
        gate.model.get_input_embeddings().weight[50] = float("nan")

    async def main():
        asked = [gate.ask(6, 1, (5, 50, 6)), gate.ask(6, 2, (5, 6, 7))]
        return await asyncio.gather(*asked, return_exceptions=True)

    sick, healthy = run(main())
    assert "no distribution" in str(sick)
    assert len(healthy.token_ids) == 6
