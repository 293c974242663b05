"""Return-to-go per turn, less its mean over all turns that saw the same prompt."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from opentinker.credit.base import CreditResult, centred, playable
from opentinker.errors import ConfigError
from opentinker.types import Episode, Group, Turn

_State: TypeAlias = tuple[str | None, str, tuple[int, ...]]
"""(policy, role, prompt ids)"""
_Decision: TypeAlias = tuple[str, str, int]
"""(episode, agent, index)"""


def state_baseline(groups: Sequence[Group], state: Mapping[str, Any], *, gamma: float = 1.0) -> CreditResult:
    """Return-to-go less the mean of the state: `A_t = G_t - mean(G | prompt)`, `G_t = r_t + gamma * G_(t+1)`.

    A state is a policy, a role and the exact prompt ids; it is pooled over all groups of the call, since the policy cannot
    tell them apart. What counts once is a decision: the attempts of one decision share its return, and an episode that
    comes back to a state counts once for each visit, so the advantages of a state sum to zero and neither long nor short
    episodes are preferred. No division by any spread. Meant for seats whose memory is `last`.

    Source: the sample-mean form of a state-value baseline (Sutton and Barto, section 13.4); the grouping is that of GiGPO's
    anchor states (arXiv 2505.10978). Biased: a return stands in its own mean. A state seen by one decision
    (`state_of_one`) and one whose returns are all equal (`zero_variance`) give zeros and are counted. An agent with a reward
    that is no finite number is left out and counts `non_finite_reward`.

    Args:
        groups: episodes by task.
        state: not used.
        gamma: discount per decision, in [0, 1].

    Returns:
        One advantage per turn; empty state.

    Raises:
        ConfigError: `gamma` is out of range.
    """
    if not 0 <= gamma <= 1:
        raise ConfigError(f"gamma of state_baseline is a number in [0, 1]; {gamma!r} was given")
    warnings: Counter[str] = Counter()
    drafts: dict[str, list[float]] = {}
    visits: defaultdict[_State, dict[_Decision, tuple[float, list[int]]]] = defaultdict(dict)
    for _, _, episode in playable(groups):
        drafts[episode.id] = [0.0] * len(episode.turns)
        for place, value in _returns_to_go(episode, gamma, warnings).items():
            turn = episode.turns[place]
            decision = (episode.id, turn.agent, turn.index)
            cell = visits[(turn.policy, turn.role, turn.prompt_ids)]
            cell.setdefault(decision, (value, []))[1].append(place)
    for cell in visits.values():
        deviations = centred([value for value, _ in cell.values()], warnings, alone="state_of_one")
        for ((id, _, _), (_, places)), deviation in zip(cell.items(), deviations, strict=True):
            for place in places:
                drafts[id][place] = deviation
    return CreditResult({id: tuple(draft) for id, draft in drafts.items()}, dict(warnings))


def _returns_to_go(episode: Episode, gamma: float, warnings: Counter[str]) -> dict[int, float]:
    """The discounted return from each trainable turn on, by place."""
    by_agent: defaultdict[str, list[int]] = defaultdict(list)
    for place, turn in enumerate(episode.turns):
        by_agent[turn.agent].append(place)
    found: dict[int, float] = {}
    for places in by_agent.values():
        turns = [episode.turns[place] for place in places]
        if not any(turn.trainable for turn in turns):
            continue
        if not all(math.isfinite(turn.reward) for turn in turns):
            warnings["non_finite_reward"] += 1
            continue
        for place, turn, value in zip(places, turns, _discounted(turns, gamma), strict=True):
            if turn.trainable:
                found[place] = value
    return found


def _discounted(turns: Sequence[Turn], gamma: float) -> list[float]:
    values = [0.0] * len(turns)
    ahead, index = 0.0, None
    for position in range(len(turns) - 1, -1, -1):
        turn = turns[position]
        # the attempts of one decision happen at one time: no discount between them
        steps = 0 if index is None else index - turn.index
        ahead = turn.reward + gamma**steps * ahead
        values[position], index = ahead, turn.index
    return values
