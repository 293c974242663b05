import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from opentinker.config import EnvConfig
from opentinker.envs.registry import ENVS
from opentinker.errors import EnvError, UnknownId
from opentinker.pool import OPENING, EnvPool, aside
from opentinker.testing import SlowEnv


class Counted(SlowEnv):
    """Counts how many are being made at once, and how many are open."""

    making = most = made = closed = 0

    def __init__(self):
        super().__init__(0.0)
        Counted.making += 1
        Counted.most = max(Counted.most, Counted.making)
        time.sleep(0.05)
        Counted.making -= 1
        Counted.made += 1

    def close(self):
        Counted.closed += 1


@pytest.fixture
def counted():
    if "test_counted" not in ENVS:
        ENVS.register("test_counted", Counted)
    Counted.making = Counted.most = Counted.made = Counted.closed = 0
    return EnvConfig(id="test_counted", isolation="thread")


def test_environments_are_made_side_by_side_but_not_all_at_once(counted):
    async def main():
        pool = EnvPool(counted)
        envs = await asyncio.gather(*(pool.take() for _ in range(3 * OPENING)))
        assert len(set(map(id, envs))) == 3 * OPENING
        for env in envs:
            pool.put(env)
        await pool.close()

    asyncio.run(main())
    assert 1 < Counted.most <= OPENING
    assert Counted.made == Counted.closed == 3 * OPENING


def test_what_was_put_back_is_handed_out_again_and_what_was_dropped_is_not(counted):
    async def main():
        pool = EnvPool(counted)
        one, two = await pool.take(), await pool.take()
        pool.put(one)
        pool.drop(two)
        assert pool.idle == 1
        assert await pool.take() is one
        assert await pool.take() is not two
        while Counted.closed == 0:  # in the background, without being asked again
            await asyncio.sleep(0.01)
        assert pool._closing == set()
        await pool.close()

    asyncio.run(main())
    assert Counted.made == 3


def test_an_environment_whose_process_ended_while_it_waited_is_not_handed_out():
    async def main():
        pool = EnvPool(EnvConfig(id="opentinker.testing:SlowEnv", isolation="process"))
        env = await pool.take()
        pool.put(env)
        os.kill(env._remote._process.pid, signal.SIGKILL)
        env._remote._process.wait(10)
        other = await pool.take()
        assert other is not env and env.abandoned and pool.stats.abandoned == 1
        pool.drop(other)
        await pool.close()

    asyncio.run(main())


def test_an_abandoned_environment_is_not_kept(counted):
    async def main():
        pool = EnvPool(EnvConfig(id="opentinker.testing:HangingEnv", isolation="thread", step_timeout=0.05))
        env = await pool.take()
        await env.reset(1)
        with pytest.raises(EnvError, match="did not answer"):
            await env.step("go")
        pool.put(env)
        assert pool.idle == 0
        await pool.close()

    asyncio.run(main())


def test_an_id_that_is_none_is_told_as_it_is():
    async def main():
        await EnvPool(EnvConfig(id="kuhn_pokre")).take()

    with pytest.raises(UnknownId, match="did you mean 'kuhn_poker'"):
        asyncio.run(main())


def test_a_call_aside_gives_its_result_or_its_error_and_is_a_daemon():
    async def main():
        assert await aside(lambda: threading.current_thread().daemon) is True
        assert await aside(lambda: None) is None
        with pytest.raises(SystemExit):
            await aside(sys.exit)

    asyncio.run(main())


EXIT = """
import asyncio, time
from opentinker.pool import aside

async def main():
    await asyncio.wait_for(aside(lambda: time.sleep(3600)), 0.2)

try:
    asyncio.run(main())
except TimeoutError:
    print("over")
"""


def test_a_constructor_that_hangs_keeps_no_process_from_ending():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "over"), done.stderr
