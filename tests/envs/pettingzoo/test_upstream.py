"""PettingZoo's own tests on every text environment of ours, and what they leave out."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from pettingzoo import AECEnv

from opentinker.envs import TextAECEnv, TextCodec, TextParallelEnv, env_ids, make_env
from opentinker.errors import InvalidAction
from opentinker.testing import BirthsEnv, LifecycleAEC, LifecycleParallel, OffTurnDeathEnv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's tests import its games in a way that it is about to give up
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    from pettingzoo.test.api_test import test_action_mask as check_mask

ADVICE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
    "We recommend agents to be named in the format",
    "Agents have different observation space sizes",  # of texts: the longest there may be
    "This environment does not have possible_agents defined",
    "Environment has not defined a render() method",
    "No agents present",  # not all that are possible are born
    "Agent was given",  # who is born in a step is told
    "Live agent was not given",  # so it is with who is born in another one
)
"""What they say of texts, and of agents that come and go, without calling it a fault."""

OURS = {id: (lambda id=id: make_env(id)) for id in env_ids()}
OURS["gomoku"] = lambda: make_env("gomoku", size=7)
WORLDS = {
    **{id: make for id, make in OURS.items() if isinstance(make(), (TextAECEnv, TextParallelEnv))},
    "off-turn deaths": lambda: OffTurnDeathEnv(4, rounds=3),
    "births": BirthsEnv,
    "lifecycle": LifecycleAEC,
    "lifecycle, dead in order": lambda: LifecycleAEC(deads_first=False),
    "lifecycle, unannounced": lambda: LifecycleAEC(announced=False),
    "lifecycle at once": LifecycleParallel,
    "lifecycle at once, unannounced": lambda: LifecycleParallel(announced=False),
}
SEEDS = range(5)


def quietly(test, *args, **kwargs):
    """Runs a test of the library; of its warnings only advice is let through."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        test(*args, **kwargs)
    told = {str(warning.message) for warning in caught}
    assert [text for text in told if not text.startswith(ADVICE)] == []


@pytest.mark.parametrize("world", WORLDS)
def test_the_librarys_api_test(world, capsys):
    env = WORLDS[world]()
    quietly(api_test if isinstance(env, AECEnv) else parallel_api_test, env, num_cycles=60)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize("world", WORLDS)
def test_the_librarys_seed_test(world):
    aec = isinstance(WORLDS[world](), AECEnv)
    quietly(seed_test if aec else parallel_seed_test, WORLDS[world], num_cycles=60)


def whole(env, seed):
    """All that an episode shows to anybody, to the last leave-taking, by random legal actions."""
    told, numbers = [], np.random.default_rng(seed)

    def choose(agent, info):
        space, mask = env.action_space(agent), info.get("action_mask")
        if space.choices is None:
            return f"{int(numbers.integers(100))}"
        legal = [choice for place, choice in enumerate(space.choices) if mask is None or mask[place]]
        return legal[int(numbers.integers(len(legal)))]

    if isinstance(env, AECEnv):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            action = None if terminated or truncated else choose(agent, info)
            told.append(repr((agent, env.agents, observation, reward, terminated, truncated, info, action)))
            env.step(action)
        return told
    observations, infos = env.reset(seed=seed)
    told.append(repr((observations, infos)))
    while env.agents:
        actions = {agent: choose(agent, infos[agent]) for agent in env.agents}
        observations, *rest, infos = env.step(actions)
        told.append(repr((actions, observations, rest, infos, env.agents)))
    return told


def differences(make):
    """Seeds whose whole episodes differ: of two objects, of one object's first and second, with another one beside it."""
    found = []
    for seed in SEEDS:
        one, other = make(), make()
        first = whole(one, seed)
        whole(one, seed + 100)
        if not first == whole(one, seed) == whole(other, seed):
            found.append(seed)
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_whole_episodes_of_one_seed_are_equal(world):
    assert differences(WORLDS[world]) == []


class LateChance(BirthsEnv):
    """Its second step tells how many objects there have been, whatever the seed."""

    made = itertools.count()

    def __init__(self):
        super().__init__()
        self.number = next(self.made)

    def step(self, actions):
        observations, *rest = super().step(actions)
        if self._step > 1:
            observations = {agent: f"{text}, {self.number}" for agent, text in observations.items()}
        return observations, *rest


def test_the_librarys_parallel_seed_test_stops_after_a_step_and_ours_does_not():
    quietly(parallel_seed_test, LateChance)
    assert differences(LateChance) != []


def asked(env, seed):
    """(agent, info) of every question of an episode; actions by the spaces' own generators."""
    if isinstance(env, AECEnv):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            *_, terminated, truncated, info = env.last()
            action = None
            if not (terminated or truncated):
                yield agent, info
                action = env.action_space(agent).sample(info.get("action_mask"))
            env.step(action)
        return
    _, infos = env.reset(seed=seed)
    while env.agents:
        yield from [(agent, infos[agent]) for agent in env.agents]
        masks = {agent: infos[agent].get("action_mask") for agent in env.agents}
        *_, infos = env.step({agent: env.action_space(agent).sample(mask) for agent, mask in masks.items()})


@pytest.mark.parametrize("world", WORLDS)
def test_masks_are_what_the_library_takes_and_the_codec_keeps_to_them(world):
    env = WORLDS[world]()
    for seed in SEEDS:
        for agent, info in asked(env, seed):
            mask = info.get("action_mask")
            if mask is None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                check_mask(np.asarray(mask, np.int8))
            space = env.action_space(agent)
            codec = TextCodec(env.observation_space(agent), space)
            assert len(mask) == len(space.choices)
            for choice, legal in zip(space.choices, mask, strict=True):
                if legal:
                    assert codec.parse(choice, mask) == choice
                else:
                    with pytest.raises(InvalidAction, match="not legal now"):
                        codec.parse(choice, mask)


def test_every_kind_of_text_environment_is_among_them():
    assert {isinstance(make(), AECEnv) for make in WORLDS.values()} == {True, False}
    assert {"kuhn_poker", "matrix_game"} <= set(WORLDS)
