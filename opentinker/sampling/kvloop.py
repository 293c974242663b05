"""The decoding loop: many completions at once over one key-value cache, each prompt read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from opentinker.sampling.draws import Bools, Drawn, Ints, Knobs, draw, uniforms
from opentinker.sampling.network import Network, Prefix
from opentinker.sampling.text import Reader
from opentinker.types import FinishReason, SamplingParams

_SHRINK = 0.75
"""Rows that ended leave the cache once no more than this share is alive: copying costs about one step."""


class Row(NamedTuple):
    """One completion to draw."""

    prompt: int
    """Its place among the distinct prompts."""
    limit: int
    """Ids to draw at most, >= 1: `params.max_tokens`, or less where the model has no more room."""
    params: SamplingParams
    seed: int
    """In [0, 2**64)."""


@dataclass(slots=True)
class Draft:
    """What was drawn for a row."""

    ids: list[int]
    logprobs: list[float]
    reason: FinishReason | None = None
    """None where the model's output was no distribution: the row failed."""


def generate(network: Network, reader: Reader, prompts: Sequence[tuple[int, ...]], rows: Sequence[Row]) -> list[Draft]:
    """Draws a completion for every row; a draft for each, in order.

    Prompts are read once. Rows then get copies of their prompt's cache and grow together; those that ended drop out. A
    row's ids depend on its own prompt, settings and seed, and on the other rows only through rounding.

    Args:
        network: the model.
        reader: says which ids and strings end a completion.
        prompts: distinct, readable by the model, each used by some row.
        rows: at least one.
    """
    loop = _Loop(reader, rows)
    with torch.inference_mode():
        logits, prefix = network.prefill(prompts, use_cache=any(row.limit > 1 for row in rows))
        source = np.array([row.prompt for row in rows], dtype=np.int64)
        while True:
            goes_on = loop.advance(logits, source)
            if not len(loop.alive) or prefix is None:
                return loop.drafts
            source = loop.shrink(prefix, source[goes_on])
            logits = network.step(prefix, loop.inputs())


class _Loop:
    """Where every row stands. `alive` names the rows that still grow, `held` those that the cache holds, in its order."""

    def __init__(self, reader: Reader, rows: Sequence[Row]) -> None:
        self.drafts = [Draft([], []) for _ in rows]
        self.alive = np.arange(len(rows))
        self.held: Ints = np.empty(0, np.int64)
        self.position = 0
        self._rows = rows
        self._reader = reader
        self._knobs = Knobs.of([row.params for row in rows])
        self._seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        self._limits = np.array([row.limit for row in rows])
        self._stopping = np.array([bool(row.params.stop) for row in rows])
        self._eos = np.array(sorted(reader.eos_ids), dtype=np.int64)

    def advance(self, logits: torch.Tensor, source: Ints) -> Bools:
        """Draws one id for every living row and says which of them go on."""
        drawn = draw(logits, source, self._knobs, self.alive, uniforms(self._seeds[self.alive], self.position))
        self._write(drawn)
        self.position += 1
        eos = (drawn.ids[:, None] == self._eos).any(axis=1)
        full = self._limits[self.alive] <= self.position
        stopped = self._stopped(~eos)
        ends = eos | full | stopped | ~drawn.ok
        for at in np.flatnonzero(ends & drawn.ok).tolist():
            row = int(self.alive[at])
            self.drafts[row].reason = (
                FinishReason.EOS if eos[at] else FinishReason.STOP if stopped[at] else self._full_reason(row)
            )
        self.alive = self.alive[~ends]
        return ~ends  # type: ignore[no-any-return]

    def shrink(self, prefix: Prefix, source: Ints) -> Ints:
        """Fits the cache to the living rows where that pays; where each of them stands in it."""
        if len(self.held) and len(self.alive) > _SHRINK * len(self.held):
            return source
        prefix.select(torch.from_numpy(source))
        self.held = self.alive
        return np.arange(len(self.alive))

    def inputs(self) -> torch.Tensor:
        """The last id of each row that the cache holds; rows that ended repeat theirs to no effect."""
        return torch.tensor([self.drafts[row].ids[-1] for row in self.held.tolist()])

    def _write(self, drawn: Drawn) -> None:
        for row, id, logprob in zip(self.alive.tolist(), drawn.ids.tolist(), drawn.logprobs.tolist(), strict=True):
            draft = self.drafts[row]
            draft.ids.append(id)
            draft.logprobs.append(logprob)

    def _stopped(self, candidates: Bools) -> Bools:
        stopped = np.zeros(len(self.alive), np.bool_)
        for at in np.flatnonzero(candidates & self._stopping[self.alive]).tolist():
            row = int(self.alive[at])
            stopped[at] = self._reader.stops(self.drafts[row].ids, self._rows[row].params.stop)
        return stopped

    def _full_reason(self, row: int) -> FinishReason:
        wanted = self._rows[row].params.max_tokens
        return FinishReason.LENGTH if self._rows[row].limit >= wanted else FinishReason.CONTEXT
