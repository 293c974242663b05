"""What all credit functions share: who counts in a baseline, with whom, and how its value reaches the turns.

The unit that counts is a *stake*: one agent's part in one episode under one role, whatever its number of turns. Sums are
`math.fsum`, so the order of groups, members and turns changes no bit of a result.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from opentinker.errors import ConfigError, CreditError
from opentinker.types import Episode, EpisodeStatus, Group

Advantages: TypeAlias = Mapping[str, tuple[float, ...]]
"""Episode id to one advantage per turn of the episode, 0.0 where the turn is not trainable. Failed episodes are absent."""

CreditFn: TypeAlias = Callable[..., "CreditResult"]
"""`f(groups, state, *, settings...) -> CreditResult`. Must accept an empty sequence of groups."""

Baseline: TypeAlias = Literal["auto", "group", "batch"]
"""Who shares a baseline: the members of one group, or all groups of the same task in the call; per role either way.
`auto` is `group` where any group has more than one member, else `batch`."""

EQUAL = 1e-12
"""Values whose spread is below this share of the largest of them are equal: a mean of equal floats may be off by an ulp."""


@dataclass(frozen=True, slots=True)
class CreditResult:
    """What a credit function found."""

    advantages: Advantages
    warnings: Mapping[str, int] = field(default_factory=dict)
    """How often something made a signal vanish or a reward unusable: `group_of_one`, `zero_variance`, ..."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able; to be handed to the next call."""


@dataclass(frozen=True, slots=True)
class Stake:
    """One agent's part in one episode under one role."""

    group: int
    """Position of its group in the call."""
    task: str
    env: str
    role: str
    episode: str
    """The episode's id."""
    reward: float
    """The world's, of the whole episode."""
    turns: tuple[int, ...]
    """Positions of the agent's trainable turns under this role in `Episode.turns`; at least one."""


def playable(groups: Sequence[Group]) -> Iterable[tuple[int, Group, Episode]]:
    """All episodes that did not fail, each with its group and the group's position.

    Raises:
        CreditError: two episodes share an id.
    """
    seen: set[str] = set()
    for position, group in enumerate(groups):
        for episode in group.episodes:
            if episode.id in seen:
                raise CreditError(f"two episodes have the id {episode.id!r}; advantages are kept by id, give each its own")
            seen.add(episode.id)
            if episode.status is not EpisodeStatus.FAILED:
                yield position, group, episode


def stakes(groups: Sequence[Group], warnings: Counter[str]) -> list[Stake]:
    """Everything that counts in a baseline over whole episodes.

    An agent without a trainable turn has no stake. An agent the world never rewarded has reward 0 and counts `no_reward`;
    one whose reward is no finite number has no stake and counts `non_finite_reward`.
    """
    found = []
    for position, group, episode in playable(groups):
        places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, turn in enumerate(episode.turns):
            if turn.trainable:
                places[(turn.agent, turn.role)].append(place)
        for (agent, role), turns in places.items():
            if agent not in episode.rewards:
                warnings["no_reward"] += 1
            reward = float(episode.rewards.get(agent, 0.0))
            if not math.isfinite(reward):
                warnings["non_finite_reward"] += 1
                continue
            found.append(Stake(position, group.task, episode.env, role, episode.id, reward, tuple(turns)))
    return found


def pools(found: Iterable[Stake], groups: Sequence[Group], baseline: Baseline) -> list[list[Stake]]:
    """Stakes that share a baseline, by (group, role) or (task, role).

    Raises:
        ConfigError: `baseline` is none of its values.
    """
    if baseline not in get_args(Baseline):
        raise ConfigError(f"baseline is one of {', '.join(get_args(Baseline))}; {baseline!r} was given")
    if baseline == "auto":
        baseline = "group" if any(len(group.episodes) > 1 for group in groups) else "batch"
    shared: defaultdict[Hashable, list[Stake]] = defaultdict(list)
    for stake in found:
        shared[(stake.group if baseline == "group" else stake.task, stake.role)].append(stake)
    return list(shared.values())


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, independent of order."""
    return math.fsum(values) / len(values)


def equal(values: Sequence[float]) -> bool:
    """Whether values differ by rounding at most; a single one is equal to itself."""
    low, high = min(values), max(values)
    return high - low <= EQUAL * max(abs(low), abs(high))


def centred(values: Sequence[float], warnings: Counter[str], alone: str = "group_of_one") -> list[float]:
    """Values less their mean. One value, or values that are all equal, give exact zeros and a counted warning."""
    if equal(values):
        warnings[alone if len(values) == 1 else "zero_variance"] += 1
        return [0.0] * len(values)
    centre = mean(values)
    return [value - centre for value in values]


def spread(groups: Sequence[Group], found: Iterable[tuple[Stake, float]]) -> dict[str, tuple[float, ...]]:
    """One advantage per turn: each stake's value on all its turns, undivided, 0.0 on all others."""
    drafts = {episode.id: [0.0] * len(episode.turns) for _, _, episode in playable(groups)}
    for stake, value in found:
        draft = drafts[stake.episode]
        for place in stake.turns:
            draft[place] = value
    return {id: tuple(draft) for id, draft in drafts.items()}


def advantages_of(advantages: Advantages, episode: Episode) -> tuple[float, ...]:
    """The advantages of one episode, checked.

    Raises:
        CreditError: they are missing, not one per turn, or not finite.
    """
    if episode.id not in advantages:
        raise CreditError(f"no advantages for episode {episode.id!r}; give them for every one that did not fail")
    values = advantages[episode.id]
    if len(values) != len(episode.turns):
        raise CreditError(
            f"episode {episode.id!r} has {len(episode.turns)} turns but {len(values)} advantages; give one per turn"
        )
    if not all(map(math.isfinite, values)):
        raise CreditError(f"episode {episode.id!r} has advantages that are no finite numbers: {values}")
    return values
