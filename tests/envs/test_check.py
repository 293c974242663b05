import random
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode
from pettingzoo.classic.rps import rps
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

from opentinker.envs import Finding, TextSpace, check_env, env_ids
from opentinker.envs.check import CURES
from opentinker.envs.games.kuhn_poker import KuhnPoker
from opentinker.envs.games.matrix_game import MatrixGame
from opentinker.envs.menu import MenuSpace
from opentinker.envs.probe import same_action
from opentinker.envs.registry import ENVS
from opentinker.errors import ConfigError, UnknownId
from opentinker.testing.broken import BROKEN, SLEEP, SOUND, SharedStateEnv, SoundAECEnv, SoundEnv
from opentinker.testing.envs import BirthsEnv, OffTurnDeathEnv, RaisingEnv
from opentinker.testing.lifecycles import LifecycleAEC, LifecycleParallel

TOY_TEXT = ["Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4"]
CLASSIC_CONTROL = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
PETTINGZOO = [("tictactoe_v3", "aec"), ("rps_v2", "aec"), ("rps_v2", "parallel"), ("connect_four_v3", "aec")]
CORPORA = {
    "mpe/simple_spread_v3": "mpe2",
    "textarena/TicTacToe-v0": "textarena",
    "openspiel/kuhn_poker": "pyspiel",
    "openspiel/goofspiel": "pyspiel",
    "reasoning/chain_sum": "reasoning_gym",
}

SEEN = {
    "global_random": "^an episode drew from or seeded the global generator of Python's random; draw from",
    "shared_state": r"^an object plays differently while another one plays: event \d+ was .* said.* said.*; keep what",
    "seed": "^two (episodes|objects) with one seed and the same actions differ: event 0 was .*card.*card.*; let",
    "after_end": "^(the last step of ann, who had ended, added 1 to bob's reward|ann had ended and was later given the "
    "reward 1); pay everything with",
    "mask": "^when (agent|bob|ann) is to act, the action mask leaves no legal action; .*given: .0, 0.; leave an agent",
    "parse": "^action '.*', drawn from its own space, cannot be written: .* is not in TextSpace.8.[^;]*; `parse`",
    "text": r"^\w+'s observation 'card 0.\d{4}\.+' is not in TextSpace.40.; raise the space's",
    "slow": r"^step \d took 0\.\d+ s, more than 0.025 s; do the work once",
}
"""What a finding's message begins with, up to where its cure begins."""

FAULTS = [pytest.param(rule, make, id=make.__name__) for rule, all_made in BROKEN.items() for make in all_made]


class GlobalNumpy(SoundEnv):
    def chance(self):
        return np.random.random()


class GlobalTorch(SoundEnv):
    def chance(self):
        return __import__("torch").rand(()).item()


class GlobalConstructor(SoundEnv):
    def __init__(self):
        super().__init__()
        random.random()


class FourTuple(SoundEnv):
    def step(self, action):
        return super().step(action)[:4]


class TextFlag(SoundEnv):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, "no", info


class ListInfo(SoundEnv):
    def info(self):
        return ["nothing"]


class HugeReward(SoundEnv):
    def pay(self, action):
        return 10**400


class Speechless(SoundEnv):
    class Fault(Exception):
        def __str__(self):
            raise ValueError

    def step(self, action):
        raise self.Fault


class ShortMask(SoundEnv):
    def info(self):
        return {"action_mask": [1]}


class Clock:
    """Every look at it takes half a second, and every third step of the environments below five more."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.slept = 0
        monkeypatch.setattr("opentinker.envs.probe.perf_counter", self.look)
        monkeypatch.setattr("opentinker.testing.broken.time", self)

    def look(self):
        self.now += 0.5
        return self.now

    def sleep(self, seconds):
        assert seconds == SLEEP
        self.slept += 1
        self.now += 5


class Numbers(SoundEnv):
    actions = Discrete(2)


def rules(env, **options):
    return [finding.rule for finding in check_env(env, **options)]


@pytest.mark.parametrize("id", [*env_ids(), *(f"gymnasium/{name}" for name in TOY_TEXT + CLASSIC_CONTROL)])
def test_sound_environments_have_no_findings(id):
    assert check_env(id, slowest=10) == []


@pytest.mark.parametrize(("name", "api"), PETTINGZOO)
def test_nor_have_games_of_pettingzoo(name, api):
    assert check_env(f"pettingzoo/classic/{name}", kwargs={"api": api}, slowest=10) == []


@pytest.mark.parametrize(("id", "package"), CORPORA.items())
def test_nor_have_games_and_tasks_of_the_extras(id, package):
    pytest.importorskip(package)
    assert check_env(id, slowest=10) == []


@pytest.mark.parametrize("make", [*SOUND, lambda: MatrixGame(rounds=2), OffTurnDeathEnv, BirthsEnv])
def test_nor_have_classes_functions_and_live_objects(make):
    assert check_env(make, slowest=10) == []
    assert check_env(make()) == []


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("make", [LifecycleAEC, LifecycleParallel])
def test_nor_have_worlds_whose_agents_come_and_go(make, numbers):
    for seed in range(5):
        assert check_env(make, kwargs={"numbers": numbers}, seed=seed) == []


@pytest.mark.parametrize("mode", AutoresetMode)
def test_nor_have_vector_environments(mode):
    def make():
        options = {"autoreset_mode": mode}
        return gymnasium.make_vec("FrozenLake-v1", num_envs=3, vectorization_mode="sync", vector_kwargs=options)

    assert check_env(make) == []


def test_nor_have_conversions_of_pettingzoo():
    assert check_env(lambda: parallel_to_aec(rps.parallel_env(max_cycles=4))) == []
    assert check_env(lambda: aec_to_parallel(rps.raw_env(max_cycles=4))) == []


def test_arguments_are_for_what_makes_an_environment():
    assert check_env(OffTurnDeathEnv, kwargs={"players": 5}) == []
    with pytest.raises(ConfigError, match="kwargs are for an environment's id; OffTurnDeathEnv is made already"):
        check_env(OffTurnDeathEnv(), kwargs={"players": 5})


def test_an_object_keeps_no_trace_of_the_upstream_test():
    env = MatrixGame()
    check_env(env)
    assert not hasattr(env, "max_cycles")


@pytest.mark.parametrize(("rule", "make"), FAULTS)
def test_each_fault_is_found_in_each_api_and_told_with_its_cure(rule, make):
    (message,) = [found.message for found in check_env(make, slowest=SLEEP / 2) if found.rule == rule]
    assert re.search(SEEN[rule], message, re.DOTALL)
    assert message.endswith(f"; {CURES[rule]}")


@pytest.mark.parametrize(("rule", "make"), FAULTS)
def test_nothing_else_is_found_but_what_follows_from_it(rule, make):
    follows = {"global_random": {"shared_state"}}.get(rule, set())
    bound = SLEEP / 2 if rule == "slow" else None
    assert {*rules(make, slowest=bound)} - {rule, "api"} == follows


def test_the_faults_are_of_all_three_apis():
    for rule, made in BROKEN.items():
        apis = {next(base for base in SOUND if issubclass(make, base)) for make in made}
        assert apis == {*SOUND} - ({SoundEnv} if rule == "after_end" else set())


@pytest.mark.parametrize("id", ["Taxi-v4", "CliffWalking-v1"])
def test_why_single_agents_are_not_stepped_after_their_end(id):
    """Gymnasium's own, which are sound, still pay -1 a step."""
    env = gymnasium.make(id).unwrapped
    env.reset(seed=0)
    env.s = int(np.flatnonzero([any(over for *_, over in env.P[s][a]) for s in env.P for a in range(env.action_space.n)])[0])
    env.s //= env.action_space.n
    ends = [action for action in range(env.action_space.n) if any(over for *_, over in env.P[env.s][action])]
    assert env.step(ends[0])[2] is True
    assert env.step(ends[0])[1] < 0


@pytest.mark.parametrize(
    ("make", "who"),
    [
        (GlobalNumpy, "an episode drew from or seeded the global generator of numpy.random;"),
        (GlobalTorch, "an episode drew from or seeded the global generator of torch;"),
        (GlobalConstructor, "its constructor drew from or seeded the global generator of Python's random;"),
    ],
)
def test_every_global_generator_is_watched(make, who):
    import torch  # noqa: F401  # watched where something has loaded it

    (message,) = [found.message for found in check_env(make) if found.rule == "global_random"]
    assert message.startswith(who)


@pytest.mark.parametrize(("make", "rule"), [(FourTuple, "play"), (lambda: RaisingEnv(at=1), "play"), (ShortMask, "mask")])
def test_other_mistakes_are_found(make, rule):
    assert rule in rules(make())


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (MultiDiscrete([2, 3]), ([1, 1], [0, 0, 0])),
        (MultiBinary(2), [3, 2]),
        (Discrete(2), np.zeros(2, np.int8)),
        (Tuple([Discrete(2), Discrete(2)]), ([1, 0], [0, 0])),
        (MenuSpace(8), []),
    ],
)
def test_masks_of_every_kind_leave_something(space, mask):
    class Stuck(SoundEnv):
        actions = space

        def info(self):
            return {"action_mask": mask}

    (finding,) = (found for found in check_env(Stuck) if found.rule == "mask")
    assert finding.message.startswith("when agent is to act, ") and finding.message.endswith(f"; {CURES['mask']}")


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


def test_what_needs_two_objects_needs_something_to_make_them_with(monkeypatch):
    monkeypatch.setattr(ENVS, "_entries", {**ENVS._entries, "one_for_all": SharedStateEnv})
    for given in ("one_for_all", SharedStateEnv, "opentinker.testing.broken:SharedStateEnv"):
        assert rules(given) == ["shared_state"]
    assert rules(SharedStateEnv()) == []


@pytest.mark.parametrize("make", BROKEN["slow"])
def test_a_step_is_slow_by_the_bound(make, monkeypatch):
    Clock(monkeypatch)
    (finding,) = check_env(make, slowest=5.4)
    assert finding.message.startswith("step 3 took 5.5 s, more than 5.4 s; do the work once")
    assert check_env(make, slowest=5.5) == check_env(make) == []


def test_a_step_that_was_slow_only_once_met_a_busy_machine(monkeypatch):
    class OnceSlow(BROKEN["slow"][0]):
        def go_on(self, *actions):
            if not clock.slept:
                clock.sleep(SLEEP)
            return SoundEnv.go_on(self, *actions)

    clock = Clock(monkeypatch)
    assert check_env(OnceSlow, slowest=1) == []
    assert clock.slept == 1


@pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
def test_a_bound_is_above_nothing(bound):
    with pytest.raises(ConfigError, match=f"slowest must be above 0 seconds, or None for any time; given: {bound}"):
        check_env(SoundEnv, slowest=bound)


def test_a_space_without_a_text_form_is_found():
    env = SoundEnv()
    env.action_space = Graph(Discrete(2), None)
    (finding,) = [finding for finding in check_env(env) if finding.rule == "play"]
    assert "no text form" in finding.message


def test_a_parse_function_that_does_not_read_what_is_written_is_found():
    def says(seen):
        return [Finding("parse", f"{seen}; {CURES['parse']}")]

    assert check_env(Numbers, action_names=["left", "right"]) == []
    assert check_env(Numbers, parse=int) == []
    assert check_env(Numbers, parse=lambda text: 0) == says("action 1 is written '1', which is read as 0")
    (finding,) = check_env(Numbers, parse=lambda text: {"0": 0}[text])
    assert finding.message.startswith("action 1 is written '1', which is not read back: ")


def test_nested_actions_are_read_back_part_by_part():
    class Nested(SoundEnv):
        actions = Dict({"at": Box(-1, 1, (2,), np.float32), "say": Tuple([Discrete(3), TextSpace(5)])})

        def info(self):
            return {}

    assert check_env(Nested, action_units={"at": "m"}) == []
    (finding,) = check_env(Nested, parse=lambda text: {"at": np.zeros(2, np.float32), "say": (0, "")})
    assert finding.rule == "parse" and "which is read as {'at': array([0., 0.], dtype=float32)" in finding.message


def test_units_are_for_spaces_with_numbers():
    (finding,) = (found for found in check_env(SoundEnv, observation_units="m") if found.rule == "play")
    assert finding.message.startswith("ConfigError: the units 'm' do not fit TextSpace(40)")


def test_findings_are_values_and_say_what_was_seen():
    findings = check_env(BROKEN["seed"][0])
    assert findings[0] == Finding("seed", findings[0].message) and "event 0 was ('agent', 'card 0." in findings[0].message


def test_an_unknown_id_is_no_finding():
    with pytest.raises(UnknownId):
        check_env("kuhn_pokr")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, np.int64(1), True),
        (1, 2, False),
        ("a", "a", True),
        ("a", "b", False),
        ((1, np.array([1.0, 2.0])), (1, np.array([1.0, 2.0])), True),
        ((1, np.array([1.0, 2.0])), (1, np.array([1.0, 3.0])), False),
        ((1,), (1, 2), False),
        ({"a": (1, np.zeros(2))}, {"a": [1, np.zeros(2)]}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, 1, False),
    ],
)
def test_actions_are_compared_through_dicts_and_tuples(one, other, same):
    assert same_action(one, other) is same


def test_the_early_end_of_one_agent_is_no_fault():
    class Quits(SoundAECEnv):
        def step(self, action):
            leaves = self.agent_selection == "ann" and not self.terminations["ann"]
            super().step(action)
            if leaves:
                self.terminations["ann"] = True
                self._deads_step_first()

    assert check_env(Quits) == [] and check_env(KuhnPoker()) == []
