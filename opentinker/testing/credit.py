"""Credit that is wrong on purpose: what training must not do, to show that it would be noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentinker.credit.base import CreditResult
from opentinker.credit.grpo import dr_grpo
from opentinker.types import Episode, Group


def last_player(groups: Sequence[Group], state: Mapping[str, Any]) -> CreditResult:
    """`dr_grpo` in which every player's turns get the last player's reward.

    It is what happens where a trainer keeps one reward per episode. In a zero-sum game all other players learn to lose.
    """
    return dr_grpo([Group(group.task, tuple(map(_last_reward, group.episodes))) for group in groups], state)


def _last_reward(episode: Episode) -> Episode:
    if not episode.rewards:
        return episode
    last = list(episode.rewards.values())[-1]
    return replace(episode, rewards=dict.fromkeys(episode.rewards, last))
