"""E8 and E11 in every API: slow environments take their time side by side, and one that hangs costs its episode only."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from opentinker.config import EnvConfig
from opentinker.coordinators import Simultaneous, Solo, Table, Turns, play_episode
from opentinker.envs import EnvHandle
from opentinker.envs.games.kuhn_poker import KuhnPoker
from opentinker.envs.games.matrix_game import MatrixGame
from opentinker.envs.tasks.bandit import Bandit
from opentinker.pool import EnvPool
from opentinker.testing import FunctionSeat
from opentinker.types import EpisodeStatus

SECONDS = 0.1
RELEASED = threading.Event()


def take_time(seed):
    """What a slow call does; in episodes of the seed 13 it hangs."""
    if seed == 13:
        RELEASED.wait(3600)
    time.sleep(SECONDS)


class SlowSolo(Bandit):
    def reset(self, *, seed=None, options=None):
        self.seed = seed
        take_time(None)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        take_time(self.seed)
        return super().step(action)


class SlowTurns(KuhnPoker):
    def reset(self, seed=None, options=None):
        self.seed = seed
        take_time(None)
        super().reset(seed=seed, options=options)

    def step(self, action):
        if action is not None:
            take_time(self.seed)
        super().step(action)


class SlowRounds(MatrixGame):
    def reset(self, seed=None, options=None):
        self.seed = seed
        take_time(None)
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        take_time(self.seed)
        return super().step(actions)


class SlowToMake(Bandit):
    def __init__(self):
        time.sleep(2 * SECONDS)
        super().__init__()


# the world, who plays it, what everybody says, and how many slow calls a game has
GAMES = [
    pytest.param(SlowSolo, Solo(), "c", 2, id="solo"),
    pytest.param(SlowTurns, Turns(), "p", 3, id="turns"),
    pytest.param(SlowRounds, Simultaneous(), "rock", 2, id="simultaneous"),
]


@pytest.fixture
def released():
    RELEASED.clear()
    yield
    RELEASED.set()


async def play_all(world, coordinator, said, seeds, **settings):
    """The episodes of all seeds, played side by side, and the seconds they took."""
    envs = [EnvHandle.wrap(world(), isolation="thread", **settings) for _ in seeds]

    def seat(agent):
        return FunctionSeat(agent, lambda observation, space, mask: said)

    tables = [Table(env, seat, episode_id=str(seed), seed=seed) for env, seed in zip(envs, seeds, strict=True)]
    start = time.monotonic()
    episodes = await asyncio.gather(
        *[play_episode(coordinator, env, table) for env, table in zip(envs, tables, strict=True)]
    )
    taken = time.monotonic() - start
    await asyncio.gather(*[env.close() for env in envs])
    return episodes, taken


@pytest.mark.parametrize(("world", "coordinator", "said", "calls"), GAMES)
def test_e11_sixteen_slow_games_take_the_time_of_one(world, coordinator, said, calls):
    def in_time():
        episodes, taken = asyncio.run(play_all(world, coordinator, said, range(100, 116)))
        assert all(episode.status is EpisodeStatus.TERMINATED for episode in episodes)
        assert taken >= calls * SECONDS
        return taken < 4 * calls * SECONDS  # one after another: sixteen times

    assert any(in_time() for _ in range(3))  # the machine may be busy


def test_e11_environments_that_are_slow_to_make_are_made_side_by_side():
    async def in_time():
        pool = EnvPool(EnvConfig(id=f"{__name__}:SlowToMake"))
        start = time.monotonic()
        envs = await asyncio.gather(*(pool.take() for _ in range(16)))
        taken = time.monotonic() - start
        for env in envs:
            pool.put(env)
        await pool.close()
        assert taken >= 2 * SECONDS
        return taken < 8 * SECONDS  # one after another: 32

    assert any(asyncio.run(in_time()) for _ in range(3))


@pytest.mark.parametrize(("world", "coordinator", "said", "calls"), GAMES)
def test_e8_a_hanging_step_ends_its_own_episode_only(world, coordinator, said, calls, released):
    seeds = [11, 12, 13, 14]
    episodes, taken = asyncio.run(play_all(world, coordinator, said, seeds, step_timeout=2.0))
    assert taken < 8
    for episode in episodes:
        if episode.seed == 13:
            assert episode.status is EpisodeStatus.FAILED
            assert f"environment {world.__name__} (seed 13) did not answer step" in episode.error
        else:
            assert episode.status is EpisodeStatus.TERMINATED and episode.rewards


@pytest.mark.parametrize(("world", "coordinator", "said", "calls"), GAMES)
def test_e8_the_episodes_deadline_names_the_hanging_environment(world, coordinator, said, calls, released):
    async def main():
        env = EnvHandle.wrap(world(), isolation="thread")
        table = Table(env, lambda agent: FunctionSeat(agent, lambda *asked: said), episode_id="1/0/0", seed=13)
        return await play_episode(coordinator, env, table, episode_timeout=1.0)

    episode = asyncio.run(main())
    assert episode.status is EpisodeStatus.TRUNCATED
    assert episode.outcome["deadline"] == (
        f"episode 1/0/0 of {world.__name__} (seed 13): overran its 1 s, waiting for env.step"
    )
