"""What makes hundreds of threads cheap: few are woken at once, and one wake-up of the event loop brings many answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

import pytest

from opentinker.envs.thread import EnvThread, _Door, _Jobs, _Mailbox
from opentinker.envs.world import EnvStats


class World:
    """Answers with what it was asked; `wait` waits for the event."""

    def __init__(self):
        self.released = threading.Event()
        self.closed = threading.Event()

    def ask(self, op, args):
        if op == "wait":
            self.released.wait(60)
        if op == "close":
            self.closed.set()
        return args

    def kill(self):
        pass


class Loop:
    """Counts how often it is woken, and makes its calls when told to."""

    def __init__(self, closed=False):
        self.calls, self.closed, self.woken = deque(), closed, 0

    def call_soon_threadsafe(self, call):
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.woken += 1
        self.calls.append(call)

    def call_soon(self, call):
        self.calls.append(call)

    def run(self):
        while self.calls:
            self.calls.popleft()()


def letters(mailbox, count, read):
    for number in range(count):
        mailbox.put((lambda answer, outcome: read.append(outcome), None, (number, None)))


def test_many_answers_wake_the_loop_once():
    loop, read = Loop(), []
    mailbox = _Mailbox(loop)
    letters(mailbox, 100, read)
    assert loop.woken == 1 and read == []
    loop.run()
    assert read == [(number, None) for number in range(100)]
    letters(mailbox, 1, read)  # what comes later wakes it again
    assert loop.woken == 2
    loop.run()
    assert len(read) == 101


def test_a_loop_that_is_awake_is_not_woken():
    loop, read = Loop(), []
    mailbox = _Mailbox(loop)
    letters(mailbox, 1, read)
    loop.calls.popleft()()
    letters(mailbox, 5, read)  # while it does what the first answer brought about
    loop.run()
    assert loop.woken == 1 and len(read) == 6


def test_an_answer_that_comes_while_others_are_read_is_not_lost():
    loop, read = Loop(), []
    mailbox = _Mailbox(loop)

    def one_more(answer, outcome):
        read.append(outcome)
        letters(mailbox, 1, read)

    mailbox.put((one_more, None, ("first", None)))
    loop.run()
    assert read == [("first", None), (0, None)] and loop.woken == 1


def test_an_answer_that_comes_just_when_the_mailbox_was_found_empty_is_not_lost():
    loop, read = Loop(), []
    mailbox = _Mailbox(loop)

    class Late(deque):
        def __len__(self):
            found = super().__len__()
            if loop.woken == 1 and len(read) == 1 and not found:  # the look before it says that it will read no more
                letters(mailbox, 1, read)
            return found

    mailbox._letters = Late()
    letters(mailbox, 1, read)
    loop.run()
    assert len(read) == 2


def test_a_closed_loop_is_told_to_whoever_answers_and_keeps_nothing():
    mailbox = _Mailbox(Loop(closed=True))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            letters(mailbox, 1, [])
    assert not mailbox._letters


class Bell:
    """Stands for a thread: notes that it was woken."""

    def __init__(self, woken, name):
        self.bell, self._woken, self._name = self, woken, name

    def release(self):
        self._woken.append(self._name)


def test_a_door_wakes_a_few_at_a_time_and_each_once():
    woken, door = [], _Door(3)
    for name in range(10):
        door.ring(Bell(woken, name))
    assert woken == [0, 1, 2]
    for passed in range(1, 11):
        door.passed()
        assert woken == list(range(min(10, 3 + passed)))
    door.ring(Bell(woken, "late"))
    assert woken[-1] == "late"


def test_calls_from_many_threads_are_all_made_in_order_and_no_place_is_lost(monkeypatch):
    door = _Door(2)
    monkeypatch.setattr("opentinker.envs.thread._DOOR", door)
    made = {number: [] for number in range(20)}
    queues = {number: _Jobs() for number in made}

    def serve(number):
        while (job := queues[number].get()) is not None:
            made[number].append(job)
            if job % 7 == 0:
                time.sleep(0.0005)

    def ask(part):
        for job in range(50):
            for number in made:
                if number % 4 == part:
                    queues[number].put(job)
            if job % 9 == 0:
                time.sleep(0.001)

    threads = [threading.Thread(target=serve, args=(number,), daemon=True) for number in made]
    askers = [threading.Thread(target=ask, args=(part,), daemon=True) for part in range(4)]
    for thread in (*threads, *askers):
        thread.start()
    for thread in askers:
        thread.join(30)
    for jobs in queues.values():
        jobs.put(None)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert all(jobs == list(range(50)) for jobs in made.values())
    assert len(door._free) == 2 and not door._line


def test_a_call_that_comes_just_when_the_thread_lies_down_is_made_without_a_bell(monkeypatch):
    door = _Door(1)
    monkeypatch.setattr("opentinker.envs.thread._DOOR", door)
    jobs = _Jobs()

    class LyingDown(deque):
        def append(self, token):
            jobs._waiting.append("a call")  # by somebody who found the thread still awake
            super().append(token)

    jobs._asleep = LyingDown()
    assert jobs.get() == "a call"
    assert not jobs._asleep  # else the next call would ring for a thread that is busy
    assert len(door._free) == 1 and jobs.bell.locked()


def test_a_thread_that_is_busy_holds_no_place(monkeypatch):
    """However many hang, with calls behind them, others are woken."""
    monkeypatch.setattr("opentinker.envs.thread._DOOR", _Door(2))

    async def main():
        worlds = [World() for _ in range(10)]
        hanging = [EnvThread(world, "hanging", EnvStats()) for world in worlds]
        calls = [asyncio.ensure_future(thread.run(op, (), None)) for thread in hanging for op in ("wait", "behind it")]
        await asyncio.sleep(0.05)
        sound = EnvThread(World(), "sound", EnvStats())
        answers = [await asyncio.wait_for(sound.run("echo", (number,), None), 10) for number in range(20)]
        assert answers == [((number,), None) for number in range(20)]
        for world in worlds:
            world.released.set()
        assert await asyncio.gather(*calls) == [((), None)] * 20
        for thread in (*hanging, sound):
            thread.stop()

    asyncio.run(main())


def test_a_thread_that_was_told_to_stop_makes_the_calls_before_and_closes():
    world = World()
    thread = EnvThread(world, "one", EnvStats())
    assert thread.run_blocking("echo", (1,), 10) == ((1,), None)
    thread.stop()
    assert world.closed.wait(10)


def test_a_place_given_up_by_a_finalizer_in_the_middle_of_a_wake_up():
    """The garbage collector may end an environment's thread while another is being woken, in the same thread."""
    woken = []
    door = _Door(1)

    class Collecting(deque):
        def popleft(self):
            if len(woken) == 0:
                woken.append("collected")
                door.ring(Bell(woken, "finalized"))
            return super().popleft()

    door._line = Collecting()
    door.ring(Bell(woken, "first"))
    door.passed()
    door.passed()
    assert woken == ["collected", "first", "finalized"] and len(door._free) == 1
