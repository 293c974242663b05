from __future__ import annotations

import math

import pytest

from opentinker.credit import form_penalty, legal_entropy, make_credit
from opentinker.errors import CreditError
from opentinker.types import Group


def test_a_penalty_falls_on_its_own_turn_only(build):
    turns = [build.turn(), build.turn(index=1, penalty=-2.0, valid=False), build.turn("b", penalty=-1.0, trainable=False)]
    groups = [Group("task", (build.episode("0", turns, {"a": 0.0, "b": 0.0}),))]
    assert form_penalty(groups, {"0": (0.5, 0.5, 0.0)}) == {"0": (0.5, -1.5, 0.0)}


@pytest.mark.parametrize("id", ["reinforce", "grpo", "dr_grpo", "rae", "state_baseline"])
def test_no_baseline_contains_a_penalty(build, id):
    def groups(penalty):
        turns = [build.turn(reward=1.0, penalty=penalty), build.turn(reward=3.0)]
        return [Group("task", tuple(build.episode(f"{i}", [t], {"a": t.reward}) for i, t in enumerate(turns)))]

    assert make_credit(id)(groups(-100.0), {}) == make_credit(id)(groups(0.0), {})


def test_legal_entropy_by_hand(build):
    """Two ids with log-probabilities -0.25 and -0.5, three legal actions: 0.5 * (0.75 - log 3)."""
    turns = [
        build.turn(logprobs=(-0.25, -0.5), n_legal=3),
        build.turn(valid=False),
        build.turn(n_legal=None),
        build.turn(logprobs=()),
        build.turn(trainable=False),
    ]
    groups = [Group("task", (build.episode("0", turns, {"a": 0.0}),))]
    shaped = legal_entropy(groups, {"0": (1.0, 1.0, 1.0, 1.0, 0.0)}, 0.5)
    assert shaped == {"0": (pytest.approx(1 + 0.5 * (0.75 - math.log(3))), 1.0, 1.0, 1.0, 0.0)}


def test_the_mean_of_the_entropy_term_is_the_entropy_less_that_of_uniform_play(build):
    probabilities = (0.5, 0.25, 0.25)
    turns = [build.turn(logprobs=(math.log(p),), n_legal=3) for p in probabilities]
    groups = [Group("task", (build.episode("0", turns, {"a": 0.0}),))]
    terms = legal_entropy(groups, {"0": (0.0, 0.0, 0.0)}, 1.0)["0"]
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert sum(p * term for p, term in zip(probabilities, terms, strict=True)) == pytest.approx(entropy - math.log(3))


def test_the_self_play_recipe_with_groups_of_one(build):
    """Reward less the mean of the role, -2 for an invalid reply, an entropy term on valid ones.

    In the second game p1 answers nonsense: p0's turn of that game is dropped, p1's world reward is 0. p0: 1 and -1, mean 0.
    p1: -1, 0 and 1, mean 0.
    """
    lost = [build.turn("p0", trainable=False), build.turn("p1", valid=False, penalty=-2.0)]
    groups = build.duels((1, -1), (-1, 1)) + [Group("duel", (build.episode("bad", lost, {"p0": 0.0, "p1": 0.0}),))]
    result = make_credit("dr_grpo")(groups, {})
    shaped = legal_entropy(groups, form_penalty(groups, result.advantages), 0.1)
    bonus = 0.1 * (0.5 - math.log(2))
    expected = {"0/0": (1 + bonus, -1 + bonus), "1/0": (-1 + bonus, 1 + bonus), "bad": (0.0, -2.0)}
    assert shaped == {id: pytest.approx(values) for id, values in expected.items()}


@pytest.mark.parametrize(
    ("advantages", "message"),
    [
        ({}, "no advantages for episode '0/0'"),
        ({"0/0": (1.0, 2.0)}, "has 1 turns but 2 advantages"),
        ({"0/0": (math.nan,)}, "no finite numbers"),
    ],
)
def test_advantages_that_do_not_fit_are_refused(build, advantages, message):
    with pytest.raises(CreditError, match=message):
        form_penalty(build.solo([1.0]), advantages)
