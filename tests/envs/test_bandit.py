import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from opentinker.envs.tasks.bandit import Bandit
from opentinker.errors import ConfigError


def test_passes_gymnasium_s_checker():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not having a spec.*")  # it was not made by gymnasium.make
        check_env(Bandit())


def test_asks_pays_once_and_ends():
    env = Bandit(means=[0.0, 1.0])
    assert env.reset(seed=1) == ("Pull an arm: a/b?", {})
    assert env.action_space.choices == ("a", "b")
    assert env.step("b") == ("", 1.0, True, False, {})
    env.reset(seed=1)
    assert env.step("a")[1] == 0.0


def test_pays_with_the_arm_s_probability_by_its_own_generator():
    env = Bandit(means=[0.2, 0.8])

    def rewards(arm):
        paid = []
        for seed in range(500):
            env.reset(seed=seed)
            paid.append(env.step(arm)[1])
        return paid

    assert sum(rewards("a")) == pytest.approx(100, abs=36)  # four deviations of a binomial
    assert sum(rewards("b")) == pytest.approx(400, abs=36)
    assert rewards("a") == rewards("a")


@pytest.mark.parametrize(
    "means",
    [
        [],
        [0.5] * 27,
        [1.5],
        [-0.1],
        "abc",
        "",
        [[1]],
        [float("nan")],
        [float("inf")],
        ["0.5"],
        [None],
        [True],
        0.5,
        None,
        {0.5: 1},
        [10**400],
        np.array(0.5),
        np.array([[0.5]]),
    ],
)
def test_means_that_are_no_probabilities_are_refused(means):
    with pytest.raises(ConfigError, match="1 to 26 probabilities.*given: "):
        Bandit(means=means)


def test_means_may_be_an_array_or_whole_numbers():
    assert Bandit(np.array([0.25, 1.0])).action_space == Bandit((0, 1)).action_space


def test_an_arm_that_is_not_there_is_an_error():
    env = Bandit()
    env.reset(seed=1)
    with pytest.raises(ValueError, match="a, b, c, given: 'd'"):
        env.step("d")
