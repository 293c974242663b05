"""REINFORCE: the return itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from opentinker.credit.base import CreditResult, spread, stakes
from opentinker.types import Group


def reinforce(groups: Sequence[Group], state: Mapping[str, Any]) -> CreditResult:
    """Every turn gets its agent's whole return: `A = R`.

    Source: Williams (1992), without a baseline. Unbiased; of the highest variance. A group of one is like any other, and
    equal rewards give equal advantages that are not zero: nothing is compared, so nothing is warned of.

    Args:
        groups: episodes by task.
        state: not used.

    Returns:
        One advantage per turn; empty state.
    """
    warnings: Counter[str] = Counter()
    advantages = spread(groups, [(stake, stake.reward) for stake in stakes(groups, warnings)])
    return CreditResult(advantages, dict(warnings))
