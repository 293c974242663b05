"""Role-conditioned advantages: a running mean per environment and role."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from opentinker.credit.base import CreditResult, Stake, equal, mean, spread, stakes
from opentinker.errors import ConfigError
from opentinker.types import Group


def rae(groups: Sequence[Group], state: Mapping[str, Any], *, decay: float = 0.95) -> CreditResult:
    """Return less a running mean of the role's returns: `A = R - b`, b kept per (environment, role) across calls.

    Source: Liu et al. (2025), arXiv 2506.24119, where each game moves the mean, `b <- decay * b + (1 - decay) * R`, before
    it is subtracted. The order of a step's games is arbitrary, so here n games of mean m move it at once, as n games of
    return m would have: `b <- decay^n * b + (1 - decay^n) * m`. The mean is normalised by the weight it has gathered, so it
    does not start from zero. Biased: a return stands in its own mean, with a weight of at most 1 - decay once that is warm.

    Equal returns give equal advantages, zero only where the running mean agrees, which `zero_variance` counts. A role that
    starts with a single game has advantage zero there and counts `group_of_one`.

    Args:
        groups: episodes by task.
        state: `{environment: {role: {"mean": b, "weight": w}}}`, w = 1 - decay^(games so far).
        decay: per game; in [0, 1).

    Returns:
        One advantage per turn; the running means of all roles seen so far.

    Raises:
        ConfigError: `decay` is out of range.
    """
    if not 0 <= decay < 1:
        raise ConfigError(f"decay of rae is a number in [0, 1); {decay!r} was given")
    warnings: Counter[str] = Counter()
    pools: defaultdict[tuple[str, str], list[Stake]] = defaultdict(list)
    for stake in stakes(groups, warnings):
        pools[(stake.env, stake.role)].append(stake)
    means = {env: {role: dict(entry) for role, entry in roles.items()} for env, roles in state.items()}
    values: list[tuple[Stake, float]] = []
    for (env, role), pool in pools.items():
        rewards = [stake.reward for stake in pool]
        before = means.get(env, {}).get(role)
        after = _moved(before, rewards, decay)
        means.setdefault(env, {})[role] = after
        if before is None and len(pool) == 1:
            warnings["group_of_one"] += 1
        elif equal([*rewards, after["mean"]]):
            warnings["zero_variance"] += 1
        else:
            values.extend((stake, stake.reward - after["mean"]) for stake in pool)
    return CreditResult(spread(groups, values), dict(warnings), means)


def _moved(before: Mapping[str, float] | None, rewards: Sequence[float], decay: float) -> dict[str, float]:
    kept = decay ** len(rewards)
    old = before["weight"] * kept if before is not None else 0.0
    weight = old + 1 - kept
    centre = before["mean"] if before is not None else 0.0
    return {"mean": (old * centre + (1 - kept) * mean(rewards)) / weight, "weight": weight}
