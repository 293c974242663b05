"""Terms added to advantages after the baseline, so that no baseline contains them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from opentinker.credit.base import Advantages, advantages_of, playable
from opentinker.types import Group, Turn


def form_penalty(groups: Sequence[Group], advantages: Advantages) -> dict[str, tuple[float, ...]]:
    """Adds each trainable turn's penalty for form to its own advantage, and to no other turn's.

    Args:
        groups: the episodes that were credited.
        advantages: one per turn, by episode id.

    Returns:
        New advantages of the same shape.

    Raises:
        CreditError: advantages do not fit the episodes.
    """
    return _added(groups, advantages, lambda turn: turn.penalty)


def legal_entropy(groups: Sequence[Group], advantages: Advantages, alpha: float) -> dict[str, tuple[float, ...]]:
    """Adds `alpha * (-sum(logp) - log(n_legal))` to each valid turn whose legal actions can be counted.

    The sum runs over the turn's sampled ids. Its expectation is alpha times the entropy less that of a uniform choice among
    the legal actions: the score-function form of an entropy bonus. Invalid turns get none, so the bonus never pays for
    leaving the legal actions.

    Args:
        groups: the episodes that were credited.
        advantages: one per turn, by episode id.
        alpha: weight, in units of reward per nat.

    Returns:
        New advantages of the same shape.

    Raises:
        CreditError: advantages do not fit the episodes.
    """

    def bonus(turn: Turn) -> float:
        if not turn.valid or not turn.n_legal or turn.completion is None or not turn.completion.token_ids:
            return 0.0
        return alpha * (-math.fsum(turn.completion.logprobs) - math.log(turn.n_legal))

    return _added(groups, advantages, bonus)


def _added(groups: Sequence[Group], advantages: Advantages, term: Callable[[Turn], float]) -> dict[str, tuple[float, ...]]:
    shaped: dict[str, tuple[float, ...]] = {}
    for _, _, episode in playable(groups):
        values = advantages_of(advantages, episode)
        shaped[episode.id] = tuple(
            value + term(turn) if turn.trainable else value for value, turn in zip(values, episode.turns, strict=True)
        )
    return shaped
