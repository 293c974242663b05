"""All of Gymnasium's toy_text and classic_control, played in words, against raw loops of the library."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest

from opentinker.config import load_config
from opentinker.coordinators import Solo, Table, play_episode
from opentinker.envs import TextCodec, check_env, env_ids, make_env, open_env
from opentinker.errors import ConfigError
from opentinker.rollout import Rollout
from opentinker.testing import CountingPace, FunctionSeat
from opentinker.types import EpisodeStatus

FAMILIES = ("gymnasium.envs.toy_text", "gymnasium.envs.classic_control")
TOYS = [name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(FAMILIES)]
LIMITS = {name: {} if gymnasium.spec(name).max_episode_steps else {"max_episode_steps": 150} for name in TOYS}
"""Games without a limit of their own get one."""

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date")  # CartPole-v0


class Nobody:
    """The host of a run without policies."""

    sampler = CountingPace()


def words(seed: int):
    """A player that knows nothing but what it reads: it draws an action, and says it."""
    numbers = itertools.count(seed)

    def answer(observation, space, mask):
        assert space.describe(mask).startswith("Answer with ")
        return space.render_action(space.sample(next(numbers), mask))

    return answer


def play(name: str, seed: int, **kwargs: Any):
    """An episode in words, and what the player saw."""
    seat = FunctionSeat("agent", words(seed), policy="learner", trainable=True)

    async def main():
        world = open_env(f"gymnasium/{name}", kwargs, isolation="inline")
        episode = await play_episode(Solo(), world, Table(world, lambda agent: seat, episode_id="1/0/0", seed=seed))
        await world.close()
        return episode

    return asyncio.run(main()), seat.seen


def raw(name: str, seed: int, actions: list[Any], **kwargs: Any):
    """What the library itself says to the same actions: observations, rewards, and how it ended."""
    env = gymnasium.make(name, **kwargs)
    observation, _ = env.reset(seed=seed)
    seen, rewards, over, late = [observation], [], False, False
    for action in actions:
        assert not (over or late)
        observation, reward, over, late, _ = env.step(action)
        seen.append(observation)
        rewards.append(float(reward))
    env.close()
    return seen, rewards, over, late


def test_there_are_as_many_as_the_library_documents():
    assert len(TOYS) == 12 and {"Taxi-v4", "Blackjack-v1", "Acrobot-v1", "Pendulum-v1", "FrozenLake8x8-v1"} <= set(TOYS)


@pytest.mark.parametrize("name", TOYS)
def test_in_words_it_pays_and_ends_as_the_library_does(name):
    for seed in (3, 4):
        episode, read = play(name, seed, **LIMITS[name])
        assert episode.status in (EpisodeStatus.TERMINATED, EpisodeStatus.TRUNCATED), episode.error
        seen, rewards, over, late = raw(name, seed, [turn.action for turn in episode.turns], **LIMITS[name])
        assert [turn.reward for turn in episode.turns] == rewards and episode.rewards == {"agent": sum(rewards)}
        assert over or late  # neither of the two went on alone
        assert episode.status is (EpisodeStatus.TERMINATED if over else EpisodeStatus.TRUNCATED)
        codec = TextCodec(make_env(f"gymnasium/{name}").observation_space, gymnasium.spaces.Discrete(2))
        assert read == [codec.render(observation) for observation in seen[:-1]]


@pytest.mark.parametrize("name", TOYS)
def test_the_checker_finds_nothing(name):
    assert check_env(f"gymnasium/{name}", max_steps=80) == []


@pytest.mark.parametrize("name", TOYS)
def test_e3_one_seed_gives_one_first_observation_and_one_episode(name):
    env = make_env(f"gymnasium/{name}")
    firsts = [env.reset(seed=5)[0] for _ in range(6)]
    assert all(np.array_equal(first, firsts[0]) for first in firsts)
    (episode, read), (_, again) = (play(name, 5, **LIMITS[name]) for _ in range(2))
    assert read == again and len(episode.turns) == len(read)


@pytest.mark.parametrize("name", TOYS)
def test_e3_two_with_one_seed_do_not_disturb_each_other(name):
    one, other = make_env(f"gymnasium/{name}"), make_env(f"gymnasium/{name}")
    actions = [one.action_space.sample() for _ in range(8)]
    alone = raw(name, 6, actions[: len_of(name, 6, actions)])
    told: list[list[Any]] = [[], []]
    for index, env in enumerate((one, other)):
        told[index].append(env.reset(seed=6)[0])
    for action in actions[: len_of(name, 6, actions)]:
        for index, env in enumerate((one, other)):
            told[index].append(env.step(action)[0])
    for seen in told:
        assert all(np.array_equal(a, b) for a, b in zip(seen, alone[0], strict=True))


def len_of(name: str, seed: int, actions: list[Any]) -> int:
    """How many of the actions a game takes before it is over."""
    env = gymnasium.make(name)
    env.reset(seed=seed)
    for number, action in enumerate(actions, 1):
        if any(env.step(action)[2:4]):
            return number
    return len(actions)


def collect(env: dict[str, Any], members: int):
    """Two groups of a run's episodes, played at random."""
    config = load_config(
        {
            "env": env,
            "coordinator": {"id": "solo"},
            "agents": {"*": {"player": "random_legal"}},
            "rollout": {"group_size": members},
        }
    )

    async def main():
        session = Rollout(config, Nobody())
        try:
            await session.check()
            return await session.collect(1, groups=2)
        finally:
            await session.close()

    return asyncio.run(main())


def test_e4_all_members_of_a_group_start_from_the_same_seed():
    groups = collect({"id": "gymnasium/CartPole-v1"}, 3)
    starts = [{episode.turns[0].observation for episode in group.episodes} for group in groups]
    assert [len(group.episodes) for group in groups] == [3, 3]
    assert [len(start) for start in starts] == [1, 1] and starts[0] != starts[1]
    for group, start in zip(groups, starts, strict=True):
        (seed,) = {episode.seed for episode in group.episodes}
        observation, _ = gymnasium.make("CartPole-v1").reset(seed=seed)
        assert start == {str([float(str(number)) for number in observation])}


@pytest.mark.parametrize("name", ["MountainCar-v0", "Pendulum-v1", "Taxi-v4", "CliffWalking-v1"])
def test_c7_a_truncated_episode_keeps_what_would_have_been_seen_next(name):
    episode, _ = play(name, 2, max_episode_steps=4)
    seen, _, over, late = raw(name, 2, [turn.action for turn in episode.turns], max_episode_steps=4)
    assert late and not over and episode.status is EpisodeStatus.TRUNCATED
    text = TextCodec(make_env(f"gymnasium/{name}").observation_space, gymnasium.spaces.Discrete(2)).render(seen[-1])
    assert "".join(map(chr, episode.final_prompts["agent"])) == text


def test_c7_a_terminated_one_keeps_nothing():
    for name in ("CartPole-v1", "Blackjack-v1", "FrozenLake-v1"):
        episode, _ = play(name, 2)
        assert episode.status is EpisodeStatus.TERMINATED and episode.final_prompts == {}


def test_all_the_others_are_made_or_refused_with_the_package_they_need():
    for id in env_ids("gymnasium"):
        try:
            make_env(id).close()
        except ConfigError as error:
            assert f"{id} needs a package that is not installed: " in str(error)


def test_what_gymnasium_cannot_make_is_told_as_a_mistake_in_the_configuration():
    with pytest.raises(ConfigError, match="gymnasium/CartPole-v1 cannot be made: .*vector_kwargs"):
        make_env("gymnasium/CartPole-v1", num_envs=2, vector_kwargs={"autoreset_mode": "SameStep"})


def test_units_of_a_configuration_reach_the_players():
    env = {"id": "gymnasium/MountainCarContinuous-v0", "kwargs": {"max_episode_steps": 2}}
    for group in collect({**env, "observation_units": ["m", "m/s"], "action_units": "N"}, 1):
        assert all(turn.observation.endswith(" m/s]") for turn in group.episodes[0].turns)


def test_units_of_an_author_are_what_the_players_read_and_may_say():
    units = {"observation_units": ["m", "m/s", "rad", "rad/s"]}
    world = open_env("gymnasium/CartPole-v1", isolation="inline", **units)
    observation, _ = asyncio.run(world.reset(1))
    parts = str([float(str(number)) for number in observation])[1:-1].split(", ")
    said = ", ".join(f"{part} {unit}" for part, unit in zip(parts, units["observation_units"], strict=True))
    assert world.codec("agent").render(observation) == f"[{said}]"
    pendulum = open_env("gymnasium/Pendulum-v1", isolation="inline", action_units="N m").codec("agent")
    assert pendulum.describe() == "Answer with 1 number from -2 to 2 N m."
    assert pendulum.parse("0.5 N m") == pendulum.parse("0.5") == np.float32(0.5)
