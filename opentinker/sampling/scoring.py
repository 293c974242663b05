"""Log-probabilities of given completions, by plain forward passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from opentinker.errors import ConfigError
from opentinker.sampling.base import check_temperature
from opentinker.sampling.batching import Limits
from opentinker.sampling.policies import Served

_LOGITS = 1 << 26
"""Most logits of one pass: 256 MiB of float32. A single row may exceed it."""

Pair = tuple[tuple[int, ...], int]
"""Prompt and completion joined, and the completion's length."""


def score_rows(
    served: Served,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float,
    limits: Limits,
) -> list[list[float]]:
    """One list for each row; equal rows are computed once.

    Raises:
        ConfigError: rows that do not pair up or that the model cannot read; a temperature that is not above 0.
    """
    check_temperature("the temperature to score at", temperature, greedy=False)
    if len(prompts) != len(completions):
        raise ConfigError(f"{len(prompts)} prompts but {len(completions)} completions: give one of each for a row")
    pairs = [_pair(served, row, *both) for row, both in enumerate(zip(prompts, completions, strict=True))]
    found: dict[Pair, list[float]] = {pair: [] for pair in pairs}
    network = served.network
    with torch.inference_mode(), network.using([served.adapter]):
        for part in _parts([pair for pair in found if pair[1]], network.vocabulary, limits):
            n = max(length for _, length in part)
            scores = network.score([ids for ids, _ in part], n, temperature)
            for pair, row in zip(part, scores.tolist(), strict=True):
                found[pair] = row[n - pair[1] :]
    return [list(found[pair]) for pair in pairs]


def _pair(served: Served, row: int, prompt: Sequence[int], completion: Sequence[int]) -> Pair:
    ids = (*prompt, *completion)
    if not prompt:
        raise ConfigError(f"row {row} has an empty prompt: its first id would have nothing to be predicted from")
    fault = served.network.fault(ids)
    if fault is None and served.context is not None and len(ids) > served.context:
        fault = f"it has {len(ids)} ids, the model reads {served.context}"
    if fault is not None:
        raise ConfigError(f"row {row} cannot be scored: {fault}")
    return ids, len(completion)


def _parts(pairs: Sequence[Pair], vocabulary: int, limits: Limits) -> Iterator[list[Pair]]:
    part: list[Pair] = []
    width = length = 0
    for pair in pairs:
        wide, long = max(width, len(pair[0])), max(length, pair[1])
        rows = len(part) + 1
        too_many = rows > limits.rows or rows * wide > limits.tokens or rows * (long + 1) * vocabulary > _LOGITS
        if part and too_many:
            yield part
            part, wide, long = [], len(pair[0]), pair[1]
        part.append(pair)
        width, length = wide, long
    if part:
        yield part
