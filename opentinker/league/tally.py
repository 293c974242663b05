"""What a number of games say, and how sure one can be of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from opentinker.types import AgentID, Episode, EpisodeStatus

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

Outcome = Literal["win", "draw", "loss"]

METHOD = (
    "95 %: Wilson's score interval for rates, each game one trial; Student's t for mean returns, over the games of a seat, "
    "overall over the means of the games that share an environment seed"
)
"""Which intervals these are, for whoever reads the figures."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of games, with Wilson's 95 % interval. Source: Wilson (1927), "Probable inference"."""

    count: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, with Student's 95 % interval; None for both ends where there are fewer than two values."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Tally:
    """The games of one player, failed ones left out of everything but their count."""

    games: int
    """Games that were played to an end."""
    failed: int
    """Games that the environment, the coordinator or a seat broke."""
    win: Rate | None
    """None, like the next two: one agent alone, or all agents share one reward, so that nobody beats anybody. None, like
    losses, where a team plays among itself: each win is its loss as well."""
    draw: Rate | None
    loss: Rate | None
    success: Rate | None
    """Games with a return of 1, where one agent plays alone and every return is 0 or 1."""
    mean_return: Mean
    """Of the world's rewards; penalties for form are not in it."""
    invalid_rate: float
    """Share of the player's decisions with a reply that was no legal action."""
    mean_length: float
    """Decisions a game, all agents together."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; rates and means as objects with their intervals."""
        rates = {"win": self.win, "draw": self.draw, "loss": self.loss, "success": self.success}
        shown = {name: data(rate) for name, rate in rates.items() if rate is not None}
        figures = {"return": data(self.mean_return), "invalid_rate": self.invalid_rate, "mean_length": self.mean_length}
        return {"games": self.games, "failed": self.failed, **shown, **figures}


def tally(played: Sequence[tuple[AgentID, Episode]], *, contest: bool) -> Tally:
    """Counts up games.

    Args:
        played: whose game it was, and the game; overall figures take an agent's games of all seats.
        contest: whether somebody can win: several agents that do not share one reward.
    """
    sound = [(agent, episode) for agent, episode in played if episode.status is not EpisodeStatus.FAILED]
    counts: dict[Outcome, int] = {"win": 0, "draw": 0, "loss": 0}
    if contest:
        for agent, episode in sound:
            counts[outcome_of(agent, episode)] += 1
    n = len(sound)
    own = [episode.rewards.get(agent, 0.0) for agent, episode in sound]
    by_seed: defaultdict[int, list[float]] = defaultdict(list)
    for (_, episode), value in zip(sound, own, strict=True):
        by_seed[episode.group].append(value)
    alone = all(len(episode.roles) == 1 for _, episode in sound)
    decisions = [_decisions(agent, episode) for agent, episode in sound]
    asked = sum(len(valid) for valid in decisions)
    return Tally(
        games=n,
        failed=len(played) - n,
        win=wilson(counts["win"], n) if contest else None,
        draw=wilson(counts["draw"], n) if contest else None,
        loss=wilson(counts["loss"], n) if contest else None,
        success=wilson(own.count(1.0), n) if alone and own and set(own) <= {0.0, 1.0} else None,
        mean_return=student([math.fsum(values) / len(values) for values in by_seed.values()]),
        invalid_rate=sum(not ok for valid in decisions for ok in valid.values()) / asked if asked else 0.0,
        mean_length=_mean([_length(episode) for _, episode in sound]),
    )


def among_themselves(doubled: Tally, agents: Sequence[AgentID], episodes: Sequence[Episode]) -> Tally:
    """The overall figures of games in which several seats are under test at once: every game is one trial.

    Args:
        doubled: `tally` over the games of every seat.
        agents: under test.
        episodes: each once; a game is drawn if nobody won and somebody drew.
    """
    sound = [episode for episode in episodes if episode.status is not EpisodeStatus.FAILED]
    outcomes = [{outcome_of(agent, episode) for agent in agents} for episode in sound]
    drawn = sum("draw" in found and "win" not in found for found in outcomes)
    draw = None if doubled.draw is None else wilson(drawn, len(sound))
    return replace(doubled, games=len(sound), failed=len(episodes) - len(sound), win=None, draw=draw, loss=None)


def outcome_of(agent: AgentID, episode: Episode) -> Outcome:
    """How a game went for a player.

    Whoever left before its end, by a reply that was no legal action or by its clock, has lost. Else the player's return
    counts against the best return among those who stayed: above it a win, equal a draw, below it a loss; and a win where
    nobody else stayed.
    """
    out = episode.outcome.get("out", {})
    if agent in out:
        return "loss"
    stayed = [episode.rewards.get(name, 0.0) for name in episode.roles if name != agent and name not in out]
    margin = episode.rewards.get(agent, 0.0) - max(stayed) if stayed else 1.0
    return "win" if margin > 0 else "loss" if margin < 0 else "draw"


def share_reward(episodes: Sequence[Episode]) -> bool:
    """Whether the agents seem to play together: equal returns for all in every game, and not the same in all games."""
    sound = [episode for episode in episodes if episode.status is not EpisodeStatus.FAILED]
    returns = [{episode.rewards.get(agent, 0.0) for agent in episode.roles} for episode in sound]
    return all(len(values) == 1 for values in returns) and len(set().union(*returns)) > 1


def wilson(count: int, n: int) -> Rate:
    """Wilson's 95 % interval of a binomial rate; [0, 1] where nothing was tried."""
    if n == 0:
        return Rate(0, 0.0, 0.0, 1.0)
    rate, z2 = count / n, Z95**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # rounding must not leave the rate outside
    return Rate(count, rate, min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half)))


def student(values: Sequence[float]) -> Mean:
    """The mean of independent values and its 95 % interval by Student's t."""
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    if n < 2:
        return Mean(mean, None, None)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = student_quantile(n - 1) * spread
    return Mean(mean, mean - half, mean + half)


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; exact for 1 and 2 degrees of freedom, within 0.2 % above.

    Source: Abramowitz and Stegun (1964), 26.7.5, an expansion around the normal quantile.
    """
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


def _decisions(agent: AgentID, episode: Episode) -> Mapping[int, bool]:
    """Whether all replies of each of the agent's decisions were valid, by the decision's index."""
    valid: dict[int, bool] = {}
    for turn in episode.turns:
        if turn.agent == agent:
            valid[turn.index] = valid.get(turn.index, True) and turn.valid
    return valid


def _length(episode: Episode) -> int:
    return len({(turn.agent, turn.index) for turn in episode.turns})


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def data(value: Rate | Mean) -> dict[str, Any]:
    """A figure with its interval as plain data."""
    return {name: getattr(value, name) for name in type(value).__slots__}
