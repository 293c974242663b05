"""Samples as the engine and verl's losses read them.

The forward pass and the loss see different things. The model reads ids, each distinct prefix once: all answers to one
prompt, and all equal dialogues, share a row. The loss reads sampled ids only, one after the other:

    samples                    forward rows        loss row
    [p0 p1 | a]                [p0 p1]             prompts         [.]
    [p0 p1 | b]                [q0 c g]            responses       [a b c d]
    [q0 | c  g  d]  g: glue                        old_log_probs, advantages, response_mask alike
                                                   loss_mask       [rest, w_a, w_b, w_c, w_d]

A token-level loss gets one row for the whole micro-batch, since it does not see rows and verl slices rows one by one in
Python; a loss that looks at whole sequences gets one row a sample. The one-id prompt is there because verl expects one.
`loss_mask` is nested because verl's `sft_loss` reads it so. Its sum is what verl divides by: it holds each sample's weight
on its sampled ids and, where nothing is predicted, what is missing to the denominator of the whole optimiser step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from tensordict import NonTensorData, TensorDict  # type: ignore[import-untyped]

from opentinker.types import Sample


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples cut into prompt and response, ready to be padded."""

    samples: tuple[Sample, ...]
    prompts: tuple[int, ...]
    """Ids before the first sampled one, per row."""
    ends: tuple[int, ...]
    """Ids up to and with the last sampled one, per row."""
    tokens: tuple[int, ...]
    """Sampled ids, per row."""
    temperature: float

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def denominator(self) -> float:
        """Sampled ids of the rows before equal ones were merged."""
        return float(sum(sample.weight * count for sample, count in zip(self.samples, self.tokens, strict=True)))

    @property
    def sequences(self) -> int:
        """Dialogues of an agent, however they were split into rows: what losses that average per sequence divide by."""
        named = {(sample.episode, sample.agent) for sample in self.samples if sample.episode}
        return len(named) + sum(sample.weight for sample in self.samples if not sample.episode)

    def take(self, indices: Sequence[int]) -> Rows:
        """The rows of these indices, in this order."""
        pick = list(indices)
        return Rows(
            tuple(self.samples[i] for i in pick),
            tuple(self.prompts[i] for i in pick),
            tuple(self.ends[i] for i in pick),
            tuple(self.tokens[i] for i in pick),
            self.temperature,
        )


def make_rows(samples: Sequence[Sample]) -> Rows:
    """Rows of the samples that have at least one sampled id.

    Args:
        samples: of one policy, all sampled at one temperature.

    Raises:
        ValueError: lengths differ, a sample has no prompt, or temperatures differ.
    """
    kept, prompts, ends, tokens = [], [], [], []
    for sample in samples:
        mask = sample.loss_mask
        if not len(mask) == len(sample.token_ids) == len(sample.logprobs) == len(sample.advantages):
            raise ValueError(f"a sample of agent {sample.agent!r} has sequences of different lengths; all follow token_ids")
        count = sum(mask)
        if not count:
            continue
        first = mask.index(1)
        if first == 0:
            raise ValueError(f"a sample of agent {sample.agent!r} starts with a sampled id; its prompt is missing")
        kept.append(sample)
        prompts.append(first)
        ends.append(len(mask) - mask[::-1].index(1))
        tokens.append(count)
    temperatures = {sample.temperature for sample in kept}
    if len(temperatures) > 1:
        raise ValueError(f"samples of temperatures {sorted(temperatures)} in one update; a policy has one temperature")
    temperature = temperatures.pop() if temperatures else 1.0
    # temperature 0 is greedy, and its log-probabilities are those of temperature 1
    return Rows(tuple(kept), tuple(prompts), tuple(ends), tuple(tokens), temperature or 1.0)


def split_micro(rows: Rows, budget: int) -> list[Rows]:
    """Micro-batches of at most `budget` padded tokens (rows times longest row); a row longer than that stands alone."""
    if not len(rows) or len(rows) * max(rows.ends) <= budget:
        return [rows] if len(rows) else []
    order = sorted(range(len(rows)), key=lambda i: (rows.ends[i], i))
    groups: list[list[int]] = [[]]
    for index in order:
        # sorted by length: the newest row is the longest
        if groups[-1] and (len(groups[-1]) + 1) * rows.ends[index] > budget:
            groups.append([])
        groups[-1].append(index)
    return [rows.take(group) for group in groups]


def split_mini(rows: Rows, parts: int, order: Sequence[int]) -> list[Rows]:
    """At most `parts` mini-batches over the rows in the given order, sizes differing by at most one; none is empty."""
    parts = min(parts, len(rows))
    edges = [len(order) * k // parts for k in range(parts + 1)] if parts else [0]
    return [rows.take(order[start:stop]) for start, stop in zip(edges, edges[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Forward:
    """What the model reads of a micro-batch of S sampled ids, and where their log-probabilities come from."""

    input_ids: torch.Tensor
    """(U, W) distinct prefixes, padded on the right, where a causal model does not look."""
    keep: torch.Tensor
    """(K,) positions at which logits are needed."""
    row: torch.Tensor
    """(C,) with `column`: the distinct places that predict a sampled id: row of `input_ids`."""
    column: torch.Tensor
    """(C,) index into `keep`."""
    place: torch.Tensor
    """(S,) index into `row` and `column` of each sampled id."""
    labels: torch.Tensor
    """(S,) the sampled ids."""
    packed: torch.Tensor
    """(S,) where each log-probability goes among the ids of the loss rows."""
    offsets: torch.Tensor
    """(G + 1,) where each of the G loss rows starts."""


def plan_forward(rows: Rows, counts: Sequence[int]) -> Forward:
    """The forward pass of a micro-batch.

    Args:
        rows: at least one.
        counts: sampled ids of each loss row, in the order of `rows`.
    """
    prefixes: dict[tuple[int, ...], int] = {}
    owners, befores, labels = [], [], []
    for sample, start, end in zip(rows.samples, rows.prompts, rows.ends, strict=True):
        owner = prefixes.setdefault(sample.token_ids[: end - 1], len(prefixes))
        places = [i for i in range(start, end) if sample.loss_mask[i]]
        owners += [owner] * len(places)
        befores += [i - 1 for i in places]
        labels += [sample.token_ids[i] for i in places]
    ids = np.zeros((len(prefixes), max(map(len, prefixes))), dtype=np.int64)
    for prefix, owner in prefixes.items():
        ids[owner, : len(prefix)] = prefix
    keep, columns = np.unique(np.asarray(befores), return_inverse=True)
    cells, place = np.unique(np.asarray(owners) * len(keep) + columns, return_inverse=True)
    # a loss row is its sampled ids and, at its end, one more that nothing predicts
    offsets = np.concatenate([[0], np.cumsum(np.asarray(counts) + 1)])
    packed = np.arange(len(labels)) + np.repeat(np.arange(len(counts)), counts)
    tensor = torch.from_numpy
    return Forward(
        input_ids=tensor(ids),
        keep=tensor(keep),
        row=tensor(cells // len(keep)),
        column=tensor(cells % len(keep)),
        place=tensor(place),
        labels=torch.tensor(labels),
        packed=tensor(packed),
        offsets=tensor(offsets),
    )


def to_batch(rows: Rows, *, denominator: float, sequences: int, by_row: bool) -> TensorDict:
    """A micro-batch for `TinkerTrainingWorker.forward_backward` or `infer_batch` on `CpuEngine`.

    Args:
        rows: at least one.
        denominator: what a mean over tokens divides by: the original sampled ids of the whole optimiser step.
        sequences: what a mean over sequences divides by.
        by_row: one loss row a sample instead of one for all.
    """
    counts = list(rows.tokens) if by_row else [sum(rows.tokens)]
    forward = plan_forward(rows, counts)
    weights = np.repeat(np.asarray([float(sample.weight) for sample in rows.samples]), rows.tokens)
    # verl shifts the mask by one against the log-probabilities, so the first of a row pairs with the last of the row before
    mask = np.zeros(int(forward.offsets[-1]))
    mask[forward.packed.numpy() + 1] = weights
    mask[0] = denominator - weights.sum()
    deep = max(counts)
    response_mask = torch.arange(deep) < torch.tensor(counts)[:, None]
    responses = torch.zeros(response_mask.shape, dtype=torch.int64)
    responses[response_mask] = forward.labels
    tensors = {
        "prompts": torch.zeros(len(counts), 1, dtype=torch.int64),
        "responses": responses,
        "attention_mask": torch.cat([torch.ones(len(counts), 1, dtype=torch.int64), response_mask.long()], dim=1),
        "response_mask": response_mask.long(),
        "old_log_probs": _scored(rows, "logprobs", response_mask),
        "advantages": _scored(rows, "advantages", response_mask),
        "loss_mask": torch.nested.nested_tensor_from_jagged(torch.from_numpy(mask), forward.offsets),
        # verl only looks at their length here
        "input_ids": responses,
    }
    settings = {
        "forward": forward,
        "temperature": rows.temperature,
        "global_batch_size": sequences,
        "use_dynamic_bsz": False,
        "micro_batch_size_per_gpu": len(counts),
    }
    batch = TensorDict(tensors, batch_size=[len(counts)])
    for key, value in settings.items():
        batch[key] = NonTensorData(value)
    return batch


def _scored(rows: Rows, name: Literal["logprobs", "advantages"], response_mask: torch.Tensor) -> torch.Tensor:
    """What a sample says of its sampled ids, as float32 of the shape of `response_mask`."""
    found: list[float] = []
    for sample, start, end in zip(rows.samples, rows.prompts, rows.ends, strict=True):
        values = sample.logprobs if name == "logprobs" else sample.advantages
        found += [values[i] for i in range(start, end) if sample.loss_mask[i]]
    padded = torch.zeros(response_mask.shape)
    padded[response_mask] = torch.tensor(found)
    return padded
