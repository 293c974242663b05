"""Group-relative advantages, with and without division by the group's spread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from opentinker.credit.base import Baseline, CreditResult, Stake, centred, pools, spread, stakes
from opentinker.errors import ConfigError
from opentinker.types import Group


def grpo(
    groups: Sequence[Group], state: Mapping[str, Any], *, baseline: Baseline = "auto", epsilon: float = 1e-6
) -> CreditResult:
    """Return less the pool's mean, over the pool's sample standard deviation: `A = (R - mean) / (std + epsilon)`.

    A pool is one role in one group, or one role in all groups of a task (see `Baseline`). Every turn of an agent gets the
    same value, whatever their number. Source: Shao et al. (2024), arXiv 2402.03300, outcome supervision. Biased: a return
    stands in its own mean (a factor (n-1)/n), and pools of small spread weigh as much as those of large. A pool of one
    (`group_of_one`) and a pool of equal returns (`zero_variance`) give zeros and are counted.

    Args:
        groups: episodes by task.
        state: not used.
        baseline: who shares a mean: `group`, `batch` or `auto`.
        epsilon: added to the standard deviation, in units of reward; > 0.

    Returns:
        One advantage per turn; empty state.

    Raises:
        ConfigError: a setting is out of range.
    """
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon of grpo is a number above 0; {epsilon!r} was given")
    return _relative(groups, baseline, epsilon)


def dr_grpo(groups: Sequence[Group], state: Mapping[str, Any], *, baseline: Baseline = "auto") -> CreditResult:
    """Return less the pool's mean: `A = R - mean`.

    Source: Liu et al. (2025), arXiv 2503.20783. Biased only by the factor (n-1)/n, since a return stands in its own mean.
    With groups of one, `auto` pools the whole call: the recipe for self-play, reward less the mean of the role. A pool of
    one (`group_of_one`) and a pool of equal returns (`zero_variance`) give zeros and are counted.

    Args:
        groups: episodes by task.
        state: not used.
        baseline: who shares a mean: `group`, `batch` or `auto`.

    Returns:
        One advantage per turn; empty state.

    Raises:
        ConfigError: a setting is out of range.
    """
    return _relative(groups, baseline, None)


def _relative(groups: Sequence[Group], baseline: Baseline, epsilon: float | None) -> CreditResult:
    warnings: Counter[str] = Counter()
    values: list[tuple[Stake, float]] = []
    for pool in pools(stakes(groups, warnings), groups, baseline):
        deviations = centred([stake.reward for stake in pool], warnings)
        if epsilon is not None and any(deviations):
            std = math.sqrt(math.fsum(deviation**2 for deviation in deviations) / (len(pool) - 1))
            deviations = [deviation / (std + epsilon) for deviation in deviations]
        values.extend(zip(pool, deviations, strict=True))
    return CreditResult(spread(groups, values), dict(warnings))
