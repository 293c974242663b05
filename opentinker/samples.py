"""Episodes -> samples: rows of token ids in which only sampled ids carry loss.

One agent's turns become one row for as long as each prompt starts with all ids so far (`P` prompt, `c` sampled, `g` what the
renderer put between: a forced end of turn, the next observation, the header of the next answer):

    turn 0   prompt  P P P          sampled  c c
    turn 1   prompt  P P P c c g g  sampled  c c c
    row      ids     P P P c c g g c c c
             mask    0 0 0 1 1 0 0 1 1 1
             adv     . . . a a . . b b b       a, b: the advantages of turns 0 and 1

Where a prompt does not start so (a memory window, a template that drops earlier thinking), the row ends and another begins
with that prompt as it was:

    turn 1   prompt  P P Q          sampled  c c
    row 0    P P P c c                          mask 0 0 0 1 1
    row 1    P P Q c c                          mask 0 0 0 1 1

Either way each sampled id stands behind exactly the ids it was sampled behind, so its log-probability, and with it the
gradient of a sum over tokens, is the same however turns were merged or split. A mean over tokens is that sum over
`loss_tokens`, which neither merging turns, nor splitting, nor `merge_identical` changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import add

from opentinker.credit.base import Advantages, advantages_of, playable
from opentinker.errors import SamplerError
from opentinker.types import Completion, Episode, Group, Sample, Turn


@dataclass(frozen=True, slots=True)
class SampleStats:
    """What became of the turns."""

    turns: int
    """Trainable turns with at least one sampled id: those that are in the rows."""
    rows: int
    splits: int
    """How often a row ended because the agent's next prompt did not start with its ids."""
    empty: int
    """Trainable turns in which nothing was sampled: they are in no row."""
    tokens: int
    """Sampled ids that carry loss: the denominator of a mean over tokens."""


def to_samples(
    groups: Sequence[Group],
    advantages: Advantages,
    policies: Collection[str] | None = None,
    *,
    temperatures: Mapping[str, float] | None = None,
) -> tuple[list[Sample], SampleStats]:
    """Rows for the trainer, in the order of groups, members and each agent's first turn.

    Failed episodes, turns that are not trainable, seats without a policy and empty completions give no row. No id is decoded
    or encoded again.

    Args:
        groups: episodes by task.
        advantages: one per turn, by episode id; a turn's advantage stands on each of its sampled ids.
        policies: only turns of these; None: of all.
        temperatures: policy to the temperature its ids were sampled at; None or absent: what the completions say.

    Returns:
        The rows, and what became of the turns.

    Raises:
        CreditError: advantages do not fit the episodes.
        SamplerError: a completion has not one log-probability per id.
    """
    rows: list[_Row] = []
    empty = splits = turns = 0
    for _, _, episode in playable(groups):
        values = advantages_of(advantages, episode)
        last: dict[tuple[str, str], _Row] = {}
        for turn, advantage in zip(episode.turns, values, strict=True):
            if not turn.trainable or turn.policy is None or (policies is not None and turn.policy not in policies):
                continue
            if turn.completion is None or not turn.completion.token_ids:
                empty += 1
                continue
            turns += 1
            key = (turn.agent, turn.policy)
            row = last.get(key)
            if row is None or not row.extended_by(turn, turn.completion):
                splits += row is not None
                row = last[key] = _Row(
                    episode, turn.policy, turn.agent, turn.role, temperature=turn.completion.temperature
                )
                rows.append(row)
            row.add(turn.prompt_ids, turn.completion, advantage)
    samples = [row.freeze(temperatures or {}) for row in rows]
    return samples, SampleStats(turns, len(samples), splits, empty, loss_tokens(samples))


def merge_identical(samples: Iterable[Sample]) -> list[Sample]:
    """Equal rows once, their advantages summed and their `weight`s added, in the order of first appearance.

    Rows are equal if policy, agent, role, ids, mask and temperature are, and the log-probabilities to three decimals: the
    noise of batching does not keep rows apart, another version of the policy does. The first row's are kept. Rows with a
    critic's values or returns stay as they are. A row that stands for several episodes names none.

    The gradient is that of all rows if the loss is linear in the advantages at the sampled policy: one pass, one optimiser
    step on it, a policy-gradient loss (clipped or not: the ratio is 1), `token-sum`, or `token-mean` over `loss_tokens`, not
    over the tokens of the merged rows. Terms without an advantage (an entropy or KL coefficient) must be multiplied by
    `weight`. Further epochs, several mini-batches and means per sequence are not exact.
    """
    merged: dict[object, _Sum] = {}
    for position, sample in enumerate(samples):
        if sample.values or sample.returns:
            merged[position] = _Sum(sample, list(sample.advantages), sample.weight, sample.episode)
            continue
        key = (
            sample.policy,
            sample.agent,
            sample.role,
            sample.token_ids,
            sample.loss_mask,
            sample.temperature,
            tuple([round(logprob, 3) for logprob in compress(sample.logprobs, sample.loss_mask)]),
        )
        found = merged.get(key)
        if found is None:
            merged[key] = _Sum(sample, list(sample.advantages), sample.weight, sample.episode)
        else:
            found.add(sample)
    return [
        replace(found.first, advantages=tuple(found.advantages), weight=found.weight, episode=found.episode)
        for found in merged.values()
    ]


def loss_tokens(samples: Iterable[Sample]) -> int:
    """Sampled ids that the rows stand for: `sum(weight * sum(loss_mask))`, the denominator of a mean over tokens.

    A trainer that divides by the tokens of the rows themselves must multiply by `rows' tokens / loss_tokens`.
    """
    return sum(sample.weight * sum(sample.loss_mask) for sample in samples)


@dataclass(slots=True)
class _Row:
    """A row as it grows."""

    episode: Episode
    policy: str
    agent: str
    role: str
    ids: tuple[int, ...] = ()
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    temperature: float = 1.0

    def extended_by(self, turn: Turn, completion: Completion) -> bool:
        alike = turn.role == self.role and completion.temperature == self.temperature
        return alike and turn.prompt_ids[: len(self.ids)] == self.ids

    def add(self, prompt: tuple[int, ...], completion: Completion, advantage: float) -> None:
        glue, sampled = len(prompt) - len(self.ids), len(completion.token_ids)
        if len(completion.logprobs) != sampled:
            raise SamplerError(
                f"a completion of {self.policy!r} in episode {self.episode.id!r} has {sampled} ids but "
                f"{len(completion.logprobs)} log-probabilities; a sampler gives one per id"
            )
        self.ids = prompt + completion.token_ids
        self.mask += [0] * glue + [1] * sampled
        self.logprobs += [0.0] * glue
        self.logprobs += completion.logprobs
        self.advantages += [0.0] * glue + [advantage] * sampled

    def freeze(self, temperatures: Mapping[str, float]) -> Sample:
        return Sample(
            policy=self.policy,
            agent=self.agent,
            role=self.role,
            token_ids=self.ids,
            loss_mask=tuple(self.mask),
            logprobs=tuple(self.logprobs),
            advantages=tuple(self.advantages),
            episode=self.episode.id,
            temperature=temperatures.get(self.policy, self.temperature),
        )


@dataclass(slots=True)
class _Sum:
    """Equal rows, added up."""

    first: Sample
    advantages: list[float]
    weight: int
    episode: str

    def add(self, sample: Sample) -> None:
        self.advantages = list(map(add, self.advantages, sample.advantages))
        self.weight += sample.weight
        self.episode = self.episode if self.episode == sample.episode else ""
