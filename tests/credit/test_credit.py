"""The registry and what all credit functions share."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from opentinker.credit import CREDIT, CreditResult, make_credit
from opentinker.errors import ConfigError, CreditError, UnknownId
from opentinker.types import EpisodeStatus, Group

ALL = ["dr_grpo", "grpo", "rae", "reinforce", "state_baseline"]


def constant(groups: Sequence[Group], state: Mapping[str, Any], *, value: float = 1.0) -> CreditResult:
    """A credit function of somebody else's."""
    return CreditResult({e.id: (value,) * len(e.turns) for g in groups for e in g.episodes})


def test_the_menu():
    assert list(CREDIT) == ALL


def test_settings_are_bound():
    assert make_credit("grpo", epsilon=1.0)([], {}) == CreditResult({})


def test_unknown_id_suggests_a_near_one():
    with pytest.raises(UnknownId, match="did you mean 'dr_grpo'"):
        make_credit("drgrpo")


def test_unknown_setting_suggests_a_near_one():
    with pytest.raises(ConfigError, match=r"'rae' has no setting 'decoy'; did you mean 'decay'\?"):
        make_credit("rae", decoy=0.5)


@pytest.mark.parametrize(
    ("id", "setting", "value"),
    [
        ("grpo", "epsilon", 0.0),
        ("grpo", "baseline", "role"),
        ("dr_grpo", "baseline", "off"),
        ("rae", "decay", 1.0),
        ("state_baseline", "gamma", 1.1),
        ("state_baseline", "gamma", math.nan),
    ],
)
def test_settings_out_of_range_fail_before_the_first_rollout(id, setting, value):
    with pytest.raises(ConfigError, match=f"{setting}.* {value!r} was given"):
        make_credit(id, **{setting: value})


def test_a_function_by_its_module(build, monkeypatch):
    module = ModuleType("my_credit")
    module.constant = constant
    monkeypatch.setitem(sys.modules, "my_credit", module)
    assert make_credit("my_credit:constant", value=2.0)(build.solo([5.0]), {}).advantages == {"0/0": (2.0,)}


def raises(groups, state):
    raise IndexError("no groups")


def needs_more(groups, state, *, epsilon):
    return CreditResult({})


WRONG = {
    "builtins:len": "credit function 'builtins:len' cannot be used: .*too many positional arguments",
    "builtins:input": "credit function 'builtins:input' cannot be used: .*too many positional arguments",
    "builtins:print": "credit function 'builtins:print' returns a NoneType; it must return a CreditResult",
    "builtins:dict": "'builtins:dict' is no credit function: no signature",
    "math:pi": "'math:pi' is no credit function: 3.14.* is not a callable object",
    "my_credit:raises": "credit function 'my_credit:raises' cannot be used: without groups it raises IndexError: no groups",
    "my_credit:needs_more": "'my_credit:needs_more' cannot be used: .* missing a required argument: 'epsilon'",
}


@pytest.mark.parametrize(("id", "message"), WRONG.items(), ids=WRONG)
def test_what_is_no_credit_function_is_told_with_its_name(id, message, monkeypatch):
    module = ModuleType("my_credit")
    module.raises, module.needs_more = raises, needs_more
    monkeypatch.setitem(sys.modules, "my_credit", module)
    with pytest.raises(ConfigError, match=message):
        make_credit(id)


@pytest.mark.parametrize("id", ALL)
def test_nothing_gives_nothing(id):
    assert make_credit(id)([], {}) == CreditResult({})


@pytest.mark.parametrize("id", ALL)
def test_failed_episodes_have_no_advantages_and_count_nowhere(build, id):
    """Rewards 0 and 2, and a failed episode with 100."""

    def groups(*failed):
        turns = [build.turn(reward=0.0)]
        return [
            Group("task", (
                build.episode("bad", [build.turn(reward=100.0)], {"a": 100.0}, status=EpisodeStatus.FAILED, error="boom"),
                build.episode("low", turns, {"a": 0.0}),
                build.episode("high", [build.turn(reward=2.0)], {"a": 2.0}),
            )[0 if failed else 1:])
        ]  # fmt: skip

    credit = make_credit(id)
    with_failed, without = credit(groups("bad"), {}), credit(groups(), {})
    assert with_failed == without
    assert set(with_failed.advantages) == {"low", "high"}


@pytest.mark.parametrize("id", ALL)
def test_turns_that_are_not_trainable_get_zero_and_count_nowhere(build, id):
    """`b` plays in every episode but is frozen; in the last one `a`'s own turn was dropped after a forfeit."""

    def groups(dropped):
        found = []
        for member, reward in enumerate([0.0, 2.0] + [50.0] * dropped):
            trainable = member < 2
            turns = [
                build.turn("b", role="a", trainable=False, reward=-9.0),
                build.turn("a", trainable=trainable, reward=reward),
            ]
            found.append(build.episode(f"{member}", turns, {"a": reward, "b": -9.0}))
        return [Group("task", tuple(found))]

    credit = make_credit(id)
    result = credit(groups(dropped=1), {})
    assert result.advantages["2"] == (0.0, 0.0)
    assert {k: v for k, v in result.advantages.items() if k != "2"} == credit(groups(dropped=0), {}).advantages
    assert all(values[0] == 0.0 for values in result.advantages.values())
    assert result.advantages["1"][1] > result.advantages["0"][1]


@pytest.mark.parametrize("id", ALL)
def test_a_reward_that_is_no_number_harms_nobody_else(build, id):
    def groups(*rewards):
        return [Group("task", tuple(build.episode(f"{r}", [build.turn(reward=r)], {"a": r}) for r in rewards))]

    credit = make_credit(id)
    result = credit(groups(0.0, math.nan, 2.0, math.inf), {})
    assert result.warnings["non_finite_reward"] == 2
    assert result.advantages["nan"] == result.advantages["inf"] == (0.0,)
    clean = credit(groups(0.0, 2.0), {}).advantages
    assert {id: result.advantages[id] for id in clean} == clean


def test_an_agent_the_world_never_rewarded_is_counted(build):
    groups = [Group("task", (build.episode("0", [build.turn()], {}), build.episode("1", [build.turn()], {"a": 2.0})))]
    result = make_credit("dr_grpo")(groups, {})
    assert result.advantages == {"0": (-1.0,), "1": (1.0,)}
    assert result.warnings == {"no_reward": 1}


@pytest.mark.parametrize("id", ALL)
def test_two_episodes_of_one_id_are_refused(build, id):
    with pytest.raises(CreditError, match="two episodes have the id '0/0'"):
        make_credit(id)([*build.solo([1.0]), *build.solo([2.0])], {})
