import random

import numpy as np
import pytest
from gymnasium.spaces import Discrete, MultiBinary

from opentinker.envs import Finding, TextEnv, TextSpace, check_env
from opentinker.envs.games.kuhn_poker import KuhnPoker
from opentinker.envs.games.matrix_game import MatrixGame
from opentinker.errors import UnknownId
from opentinker.testing.envs import OffTurnDeathEnv, RaisingEnv

SHARED = random.Random()


class Sound(TextEnv):
    """Two steps; each mistake below changes one thing."""

    def __init__(self):
        self.observation_space = TextSpace(8)
        self.action_space = TextSpace(choices=("x", "y"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self.look(), {}

    def step(self, action):
        self._steps += 1
        return self.look(), 0.0, self._steps == 2, False, {}

    def look(self):
        return f"{self.draw():.4f}"

    def draw(self):
        return self.np_random.random()


class OperatingSystem(Sound):
    def draw(self):
        return random.SystemRandom().random()


class GlobalPython(Sound):
    def reset(self, *, seed=None, options=None):
        random.seed(seed)
        return super().reset(seed=seed)

    def draw(self):
        return random.random()


class GlobalNumpy(Sound):
    def reset(self, *, seed=None, options=None):
        np.random.seed(seed)
        return super().reset(seed=seed)

    def draw(self):
        return np.random.random()


class OneForAll(Sound):
    def reset(self, *, seed=None, options=None):
        SHARED.seed(seed)
        return super().reset(seed=seed)

    def draw(self):
        return SHARED.random()


class TooLong(Sound):
    def look(self):
        return "far more than eight characters"


class FourTuple(Sound):
    def step(self, action):
        return super().step(action)[:4]


class TextFlag(Sound):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, "no", info


class ListInfo(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], ["nothing"]


class HugeReward(Sound):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 10**400, *rest


class Speechless(Sound):
    class Fault(Exception):
        def __str__(self):
            raise ValueError

    def step(self, action):
        raise self.Fault


def rules(env):
    return [finding.rule for finding in check_env(env)]


@pytest.mark.parametrize(
    "id",
    [
        "kuhn_poker",
        "matrix_game",
        "bandit",
        "gymnasium/FrozenLake-v1",
        "pettingzoo/classic/tictactoe_v3",
        "opentinker.testing.envs:OffTurnDeathEnv",
    ],
)
def test_sound_environments_have_no_findings(id):
    assert check_env(id) == []


@pytest.mark.parametrize("make", [Sound, KuhnPoker, lambda: MatrixGame(rounds=2), OffTurnDeathEnv])
def test_live_objects_too(make):
    assert check_env(make()) == []


def test_an_object_keeps_no_trace_of_the_upstream_test():
    env = MatrixGame()
    check_env(env)
    assert not hasattr(env, "max_cycles")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (OperatingSystem, "seed"),
        (GlobalPython, "global_random"),
        (GlobalNumpy, "global_random"),
        (TooLong, "text"),
        (FourTuple, "play"),
        (lambda: RaisingEnv(at=1), "play"),
    ],
)
def test_each_mistake_is_found(make, rule):
    assert rule in rules(make())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (TextFlag, "EnvError: 'TextFlag' gave agent as truncated 'no'; give True or False"),
        (ListInfo, "EnvError: 'ListInfo' gave a list as info: ['nothing']; give a dict"),
        (HugeReward, f"EnvError: 'HugeReward' gave agent the reward 1{'0' * 196}...; give a finite number"),
        (Speechless, "Fault: (its __str__ raised ValueError)"),
    ],
)
def test_answers_that_say_nothing_are_found_and_shown(make, said):
    assert Finding("play", said) in check_env(make())


def test_a_generator_shared_by_all_objects_is_found(monkeypatch):
    from opentinker.envs.registry import ENVS

    monkeypatch.setattr(ENVS, "_entries", {**ENVS._entries, "one_for_all": OneForAll})
    assert "shared_state" in rules("one_for_all")
    assert "seed" not in rules("one_for_all")


def test_a_space_without_a_text_form_is_found():
    env = Sound()
    env.action_space = MultiBinary(2)
    (finding,) = [finding for finding in check_env(env) if finding.rule == "play"]
    assert "no text form" in finding.message


def test_a_parse_function_that_does_not_read_what_is_written_is_found():
    class Numbers(Sound):
        def __init__(self):
            super().__init__()
            self.action_space = Discrete(2)

    assert check_env(Numbers(), action_names=["left", "right"]) == []
    assert check_env(Numbers(), parse=int) == []
    (finding,) = check_env(Numbers(), parse=lambda text: 0)
    assert finding == Finding("parse", "action 1 is written '1', which is read as 0")
    (finding,) = check_env(Numbers(), parse=lambda text: {"0": 0}[text])
    assert finding.rule == "parse" and "which is not read back" in finding.message


def test_findings_are_values_and_say_what_was_seen():
    findings = check_env(OperatingSystem())
    assert findings[0] == Finding("seed", findings[0].message) and "event 0 was ('agent', '0." in findings[0].message


def test_an_unknown_id_is_no_finding():
    with pytest.raises(UnknownId):
        check_env("kuhn_pokr")
