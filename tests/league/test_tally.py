from __future__ import annotations

import pytest
from scipy import stats

from opentinker.league.tally import METHOD, outcome_of, share_reward, student, student_quantile, tally, wilson
from opentinker.types import Episode, EpisodeStatus, Turn


def turn(agent: str, index: int, valid: bool = True, attempt: int = 0) -> Turn:
    return Turn(agent, agent, None, None, index, attempt, "", (), None, "", "a", valid, None, False, 0.0, 0.0)


def game(rewards, *, group=0, status=EpisodeStatus.TERMINATED, turns=(), **outcome) -> Episode:
    roles = {agent: agent for agent in rewards}
    return Episode("id", "env", 0, group, 0, roles, {}, tuple(turns), (), {}, rewards, status, outcome=outcome)


@pytest.mark.parametrize(("count", "n"), [(0, 10), (5, 10), (10, 10), (3, 64), (1, 1), (637, 1000)])
def test_wilsons_interval_is_scipys(count, n):
    expected = stats.binomtest(count, n).proportion_ci(method="wilson")
    found = wilson(count, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert found.rate == count / n and found.low <= found.rate <= found.high


def test_nothing_tried_says_nothing():
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)
    assert student([]).low is None and student([3.0]).mean == 3 and student([3.0]).high is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 63, 10_000])
def test_the_quantile_of_students_t_is_scipys(freedom):
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-3)


def test_the_interval_of_a_mean():
    values = [1.0, -1.0, 0.0, 2.0, 1.0]
    expected = stats.t.interval(0.95, 4, loc=0.6, scale=stats.sem(values))
    found = student(values)
    assert found.mean == pytest.approx(0.6) and (found.low, found.high) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("rewards", "out", "expected"),
    [
        ({"a": 1, "b": -1}, {}, "win"),
        ({"a": 0, "b": 0}, {}, "draw"),
        ({"a": -1, "b": 1}, {}, "loss"),
        ({"a": 2, "b": 1, "c": 2}, {}, "draw"),  # as good as the best of the others
        ({"a": 2, "b": 1, "c": 3}, {}, "loss"),  # above their mean is not enough
        ({"a": 3, "b": 1, "c": 2}, {}, "win"),
        ({"a": 5, "b": 0}, {"a": "forfeit"}, "loss"),  # whatever was paid before
        ({"a": 0, "b": 0}, {"a": "truncate"}, "loss"),
        ({"a": -5, "b": 0}, {"b": "forfeit"}, "win"),
        ({"a": 0, "b": 9, "c": 0}, {"b": "forfeit"}, "draw"),  # with the one who stayed
        ({"a": 0, "b": 9, "c": 9}, {"b": "forfeit", "c": "timeout"}, "win"),
    ],
)
def test_who_has_won(rewards, out, expected):
    assert outcome_of("a", game(rewards, **({"out": out} if out else {}))) == expected


def test_games_are_counted_and_failed_ones_apart():
    games = [
        game({"a": 1, "b": -1}, group=0, turns=[turn("a", 0), turn("b", 0), turn("a", 1)]),
        game({"a": -1, "b": 1}, group=1, turns=[turn("a", 0, False), turn("a", 0, True, 1), turn("b", 0, False)]),
        game({"a": 0, "b": 0}, group=2, turns=[turn("a", 0)]),
        game({"a": 9, "b": 9}, group=3, status=EpisodeStatus.FAILED, turns=[turn("a", 0, False)]),
    ]
    found = tally([("a", episode) for episode in games], contest=True)
    assert (found.games, found.failed) == (3, 1)
    assert (found.win.count, found.draw.count, found.loss.count) == (1, 1, 1) and found.win.rate == pytest.approx(1 / 3)
    assert found.mean_return.mean == 0 and found.mean_return.high == pytest.approx(stats.t.ppf(0.975, 2) / 3**0.5)
    assert found.invalid_rate == 1 / 4  # of a's four decisions; a retry that succeeds does not undo the first reply
    assert found.mean_length == pytest.approx((3 + 2 + 1) / 3)
    assert found.to_json()["win"] == {"count": 1, "rate": found.win.rate, "low": found.win.low, "high": found.win.high}


def test_games_that_share_a_seed_count_once_in_the_overall_interval():
    """Two seats a seed: what one seat wins the other loses, so the means by seed do not vary at all."""
    games = [(agent, game({"a": gain, "b": -gain}, group=group)) for group, gain in enumerate([1, -1, 2]) for agent in "ab"]
    found = tally(games, contest=True).mean_return
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert "share an environment seed" in METHOD


def test_one_agent_alone_has_successes_where_returns_are_0_or_1():
    games = [("a", game({"a": value})) for value in (0.0, 1.0, 1.0, 1.0)]
    found = tally(games, contest=False)
    assert found.success.rate == 0.75 and found.win is None and "win" not in found.to_json()
    assert tally([*games, ("a", game({"a": 0.5}))], contest=False).success is None
    assert tally([("a", game({"a": 1.0, "b": 1.0}))], contest=False).success is None


def test_a_shared_reward_is_told_from_draws():
    assert share_reward([game({"a": 1, "b": 1}), game({"a": 0, "b": 0})])
    assert not share_reward([game({"a": 0, "b": 0}), game({"a": 0, "b": 0})])  # draws, for all one knows
    assert not share_reward([game({"a": 1, "b": 1}), game({"a": 0, "b": 1})])
    assert not share_reward([game({"a": 0, "b": 0}), game({"a": 5, "b": 5}, status=EpisodeStatus.FAILED)])
