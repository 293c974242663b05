import threading
import time

import pytest
from gymnasium.utils.env_checker import check_env

from opentinker.testing import BirthsEnv, HangingEnv, OffTurnDeathEnv, RaisingEnv, SlowEnv


@pytest.mark.filterwarnings("ignore")  # of the checkers: advice on pictures and on spaces
def test_they_keep_the_apis_of_gymnasium_and_pettingzoo(capsys):
    from pettingzoo.test import api_test, parallel_api_test  # its import warns of a PettingZoo deprecation of its own

    check_env(SlowEnv(0), skip_render_check=True)
    api_test(OffTurnDeathEnv(3), num_cycles=50)
    api_test(OffTurnDeathEnv(2, rounds=1), num_cycles=20)
    parallel_api_test(BirthsEnv(), num_cycles=50)


def test_a_slow_environment_takes_its_time():
    env = SlowEnv(0.03, steps=2)
    env.reset(seed=1)
    start = time.perf_counter()
    assert env.step("go") == ("step 1 of 2", 1.0, False, False, {})
    assert time.perf_counter() - start >= 0.03
    assert env.step("go")[2] is True


@pytest.mark.parametrize("at", [0, 2])
def test_a_raising_environment_raises_there(at):
    env = RaisingEnv(at=at)
    if at:
        env.reset()
        env.step("go")
    with pytest.raises(RuntimeError, match="the world broke"):
        env.step("go") if at else env.reset()


def test_a_raising_environment_may_spare_other_seeds():
    env = RaisingEnv(at=1, only_seed=5)
    env.reset(seed=4)
    env.step("go")
    env.reset(seed=5)
    with pytest.raises(RuntimeError):
        env.step("go")


def test_a_hanging_environment_hangs_until_it_is_released():
    env = HangingEnv(at=1)
    env.reset()
    thread = threading.Thread(target=env.step, args=("go",), daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    env.release()
    thread.join(5)
    assert not thread.is_alive()


def test_the_victim_has_its_last_turn_out_of_order():
    env = OffTurnDeathEnv(3)
    env.reset(seed=1)
    env.step("shoot")
    assert (env.agent_selection, env.last()[1:4]) == ("player_1", (-1.0, True, False))
    env.step(None)
    assert (env.agents, env.agent_selection) == (["player_0", "player_2"], "player_2")
    env.step("wait")
    assert (env.agent_selection, env.last()[1:4]) == ("player_0", (1.0, False, False))


def test_births():
    env = BirthsEnv(most=2)
    observations, _ = env.reset(seed=1)
    assert list(observations) == ["worker_0"]
    observations, rewards, *_ = env.step({"worker_0": "spawn"})
    assert list(observations) == ["worker_0", "worker_1"] and rewards == {"worker_0": 0.0, "worker_1": 0.0}
    _, rewards, terminated, truncated, _ = env.step({"worker_0": "spawn", "worker_1": "quit"})  # nobody is left to be born
    assert terminated == {"worker_0": False, "worker_1": True} and env.agents == ["worker_0"]
    _, rewards, terminated, truncated, _ = env.step({"worker_0": "work"})
    assert rewards == {"worker_0": 1.0} and truncated == {"worker_0": True} and env.agents == []
