import asyncio
import os
import signal
import subprocess
import sys
import time
import traceback

import pytest

from opentinker.envs import EnvStats, open_env, register_env
from opentinker.envs.registry import ENVS
from opentinker.errors import ConfigError, EnvError, EnvTimeout

MODULE = """
import os, subprocess, sys, time
from opentinker.envs.text import TextEnv, TextSpace

COUNT = 0

class Speechless(Exception):
    def __str__(self):
        raise ValueError

class Odd(TextEnv):
    observation_space = action_space = TextSpace()

    def reset(self, *, seed=None, options=None):
        global COUNT
        super().reset(seed=seed)
        COUNT += 1
        print("noise on standard output")
        return f"reset {COUNT}", {}

    def step(self, action):
        if action == "hang":
            time.sleep(3600)
        if action == "die":
            os._exit(7)
        if action == "leave":
            sys.exit(4)
        if action == "lambda":
            return lambda: 0
        if action == "raise":
            raise OSError("deep down")  # the very line
        if action == "mumble":
            raise Speechless  # the other line
        return action, 0.0, False, False, {}

    def pid(self):
        return os.getpid(), os.getsid(0)

    def child(self):
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]).pid
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """The id of an environment whose module this interpreter has not imported."""
    name = f"odd_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield f"{name}:Odd"
    assert name not in sys.modules


def gone(pid):
    """Whether a process ends within 10 s; a zombie has ended."""
    for _ in range(500):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_globals_are_private(odd):
    async def play():
        one, other = (open_env(odd, isolation="process") for _ in range(2))
        assert [(await env.reset(1))[0] for env in (one, one, other)] == ["reset 1", "reset 2", "reset 1"]
        pids = {(await env.call("pid"))[0] for env in (one, other)}
        assert len(pids | {os.getpid()}) == 3
        await asyncio.gather(one.close(), other.close())
        assert all(gone(pid) for pid in pids)

    asyncio.run(play())


def test_errors_keep_their_traceback_and_the_environment_goes_on(odd):
    async def play():
        env = open_env(odd, isolation="process")
        await env.reset(5)
        with pytest.raises(EnvError, match=r"\(seed 5\) raised in step: OSError: deep down") as error:
            await env.step("raise")
        assert 'raise OSError("deep down")  # the very line' in "".join(traceback.format_exception(error.value))
        with pytest.raises(EnvError, match=r"raised in step: Speechless: \(its __str__ raised ValueError\)") as error:
            await env.step("mumble")
        assert "raise Speechless  # the other line" in "".join(traceback.format_exception(error.value))
        with pytest.raises(EnvError, match="SystemExit: 4"):
            await env.step("leave")
        with pytest.raises(EnvError, match="ickl"):
            await env.step("lambda")
        with pytest.raises(EnvError, match="ickl"):
            await env.step(lambda: 0)
        assert (await env.step("fine"))[0] == "fine"
        assert env.stats == EnvStats(errors=5)
        await env.close()

    asyncio.run(play())


def test_an_overdue_one_is_killed_with_all_it_started(odd):
    async def play():
        env = open_env(odd, isolation="process", step_timeout=1.0)
        await env.reset(6)
        pid, session = await env.call("pid")
        child = await env.call("child")
        assert session == pid != os.getsid(0)  # out of reach of a Ctrl-C meant for the run
        start = time.monotonic()
        with pytest.raises(EnvTimeout, match=r"\(seed 6\) did not answer step within 1.0 s"):
            await env.step("hang")
        assert 1.0 <= time.monotonic() - start < 30.0
        assert gone(pid) and gone(child)
        assert env.abandoned and env.stats.abandoned == 1
        await env.close()

    asyncio.run(play())


def test_one_that_dies_says_so(odd):
    async def play():
        env = open_env(odd, isolation="process")
        await env.reset(1)
        with pytest.raises(EnvError, match="ended by itself with code 7"):
            await env.step("die")
        assert env.abandoned and env.stats == EnvStats(abandoned=1, errors=1)
        with pytest.raises(EnvError, match=r"\(seed 1\) is gone: its process has ended; open another one"):
            await env.reset(1)
        await env.close()
        assert env.stats == EnvStats(abandoned=1, errors=1)

    asyncio.run(play())


def test_one_that_dies_between_two_calls_is_known_to_be_gone(odd):
    async def play():
        env = open_env(odd, isolation="process")
        await env.reset(1)
        assert not env.abandoned
        os.kill((await env.call("pid"))[0], signal.SIGKILL)
        for _ in range(500):
            if env.abandoned:
                break
            await asyncio.sleep(0.02)
        assert env.abandoned and env.stats == EnvStats(abandoned=1)
        with pytest.raises(EnvError, match="is gone: its process has ended"):
            await env.step("fine")
        await env.close()

    asyncio.run(play())


def test_one_that_was_closed_is_not_given_up(odd):
    async def play():
        env = open_env(odd, isolation="process")
        await env.close()
        assert not env.abandoned and env.stats == EnvStats()

    asyncio.run(play())


def test_arguments_that_the_constructor_refuses_are_a_matter_of_configuration():
    with pytest.raises(
        ConfigError, match=r"'gymnasium/FrozenLake-v1' cannot be made with \{'map_name': 'zz'\}: KeyError: 'zz'"
    ):
        open_env("gymnasium/FrozenLake-v1", {"map_name": "zz"}, isolation="process")


def test_a_hanging_one_does_not_outlive_its_parent(odd, tmp_path):
    program = f"""
import asyncio, os
from opentinker.envs import open_env

async def main():
    env = open_env({odd!r}, isolation="process")
    await env.reset(1)
    print("pid", (await env.call("pid"))[0], flush=True)
    asyncio.ensure_future(env.step("hang"))
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    paths = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=paths)
    assert done.returncode == -9
    pid = int(next(line for line in done.stdout.splitlines() if line.startswith("pid")).split()[1])
    assert gone(pid)


def test_a_factory_that_cannot_be_named_is_refused(monkeypatch):
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS._entries))
    register_env("nameless", lambda: None)
    with pytest.raises(ConfigError, match="package.module:Class"):
        open_env("nameless", isolation="process")
    with pytest.raises(ConfigError, match="plain arguments"):
        open_env("bandit", {"means": (mean for mean in ())}, isolation="process")


def test_a_registered_class_is_found_in_the_new_process(monkeypatch):
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS._entries))
    register_env("registered", "opentinker.testing.envs:SlowEnv")

    async def play():
        env = open_env("registered", {"seconds": 0.0}, isolation="process")
        assert (await env.reset(1))[0] == "step 0 of 1"
        await env.close()

    asyncio.run(play())
