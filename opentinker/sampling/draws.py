"""Draws from many categorical distributions at once, each by its own seed and position. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from opentinker.types import SamplingParams

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_GOLDEN = 0x9E3779B97F4A7C15
_BLOCK = 1 << 23
"""Entries of one float64 table of distributions: 64 MiB."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """How each of n rows draws. Rows with equal settings share an entry of the tables."""

    setting: Ints
    """[n], index into the tables below."""
    temperature: Floats
    """[s]; 1 for greedy rows."""
    greedy: Bools
    """[s]"""
    top_p: Floats
    """[s]"""
    top_k: Ints
    """[s]; 0: no limit."""

    @property
    def limited(self) -> bool:
        """Whether some row draws from fewer than all ids."""
        return bool((self.top_k > 0).any() or (self.top_p < 1).any())

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> Knobs:
        """One row for each entry."""
        index: dict[tuple[float, float, int], int] = {}
        setting = [index.setdefault((p.temperature, p.top_p, p.top_k), len(index)) for p in params]
        table = np.array(list(index), dtype=np.float64).reshape(-1, 3)
        greedy = table[:, 0] == 0
        return cls(
            setting=np.array(setting, dtype=np.int64),
            temperature=np.where(greedy, 1.0, table[:, 0]),
            greedy=greedy,
            top_p=table[:, 1],
            top_k=table[:, 2].astype(np.int64),
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """One id for each of n rows."""

    ids: Ints
    """[n]"""
    logprobs: Floats
    """[n], float32 values: log-softmax of the logits over the temperature, over the full vocabulary."""
    ok: Bools
    """[n]; False where the logits are no distribution (NaN, +inf, or all -inf): the id then means nothing."""


def uniforms(seeds: npt.NDArray[np.uint64], position: int | Ints) -> Floats:
    """One number in [0, 1 - 2**-52] for each seed at a position of its stream.

    Counter-based, so that a draw depends on seed and position only and never on what else was drawn: SplitMix64 (Steele,
    Lea, Flood 2014, "Fast splittable pseudorandom number generators") started from the mixed seed, 52 bits of it.

    Args:
        seeds: [n].
        position: 0 for the first id of a completion; one for all, or [n].
    """
    # mixed first: otherwise seeds one golden ratio apart would share a shifted stream
    step = (np.atleast_1d(position) + 1).astype(np.uint64) * np.uint64(_GOLDEN)
    counter = _mix(seeds ^ np.uint64(0xD1B54A32D192ED03)) + step
    return (_mix(counter) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(logits: torch.Tensor, source: Ints, knobs: Knobs, rows: Ints, uniform: Floats) -> Drawn:
    """One id for each of n rows, by inverting the cumulative distribution in float64.

    Rows that share logits and settings share one table, so 256 draws from 12 prompts cost 12 tables.

    Args:
        logits: [l, vocabulary], any float type and device.
        source: [n], which of the logits each row draws from.
        knobs: of at least all rows named in `rows`.
        rows: [n], each row's place in `knobs`.
        uniform: [n], in [0, 1).
    """
    settings = len(knobs.temperature)
    if _is_range(source, len(logits)) and logits.numel() <= _BLOCK:
        # every row has logits of its own, as in all steps but the first
        return Drawn(*_draw_block(logits, knobs.setting[rows], knobs, source, uniform))
    pairs, place = np.unique(source * settings + knobs.setting[rows], return_inverse=True)
    drawn = Drawn(np.empty(len(rows), np.int64), np.empty(len(rows), np.float64), np.empty(len(rows), np.bool_))
    size = max(1, _BLOCK // logits.shape[-1])
    for start in range(0, len(pairs), size):
        block = pairs[start : start + size]
        inside = np.arange(len(rows)) if len(block) == len(pairs) else np.flatnonzero(place // size == start // size)
        table = logits if _is_range(block // settings, len(logits)) else logits[torch.from_numpy(block // settings)]
        ids, logprobs, ok = _draw_block(table, block % settings, knobs, place[inside] - start, uniform[inside])
        drawn.ids[inside], drawn.logprobs[inside], drawn.ok[inside] = ids, logprobs, ok
    return drawn


def _is_range(index: Ints, n: int) -> bool:
    return len(index) == n and bool((index == np.arange(n)).all())


def _draw_block(
    logits: torch.Tensor, setting: Ints, knobs: Knobs, place: Ints, uniform: Floats
) -> tuple[Ints, Floats, Bools]:
    """Draws for m values from t tables: logits [t, vocabulary], setting [t], place [m] in 0 .. t-1, uniform [m]."""
    logp_tv = logits.float()
    if len(knobs.temperature) > 1:
        logp_tv = logp_tv / torch.from_numpy(knobs.temperature[setting].astype(np.float32)).to(logits.device)[:, None]
    elif knobs.temperature[0] != 1:
        logp_tv = logp_tv / float(knobs.temperature[0])
    logp_tv = torch.log_softmax(logp_tv, dim=-1)
    weight_tv = logp_tv.double().exp()
    if knobs.limited:
        limited = np.flatnonzero((knobs.top_k[setting] > 0) | (knobs.top_p[setting] < 1))
        at = torch.from_numpy(limited).to(logits.device)
        top_k, top_p = knobs.top_k[setting][limited], knobs.top_p[setting][limited]
        weight_tv[at] = restrict(weight_tv[at], torch.from_numpy(top_k), torch.from_numpy(top_p))
    cumulative_tv = weight_tv.cumsum(dim=-1)
    total_t = cumulative_tv[:, -1:]
    if len(place) == len(setting) and _is_range(place, len(setting)):
        column, wanted = np.zeros(len(place), np.int64), uniform[:, None]
    else:
        column, width = _columns(place, len(setting))
        wanted = np.zeros((len(setting), width))
        wanted[place, column] = uniform
    # the first id whose cumulative weight is above the target: an id of weight 0 is never one
    target = torch.from_numpy(wanted).to(logits.device) * total_t
    found = torch.searchsorted(cumulative_tv, target, right=True).clamp_(max=logits.shape[-1] - 1)
    if knobs.greedy.any():
        best = logits.argmax(dim=-1, keepdim=True)
        found = torch.where(torch.from_numpy(knobs.greedy[setting]).to(logits.device)[:, None], best, found)
    chosen = logp_tv.gather(-1, found)
    total = total_t.cpu().numpy()[place, 0]
    ok = np.isfinite(total) & (total > 0)
    return found.cpu().numpy()[place, column], chosen.double().cpu().numpy()[place, column], ok


def _columns(place: Ints, tables: int) -> tuple[Ints, int]:
    """Numbers the values of each table from 0, and says how many the fullest has."""
    counts = np.bincount(place, minlength=tables)
    order = np.argsort(place, kind="stable")
    column = np.empty(len(place), np.int64)
    column[order] = np.arange(len(place)) - (counts.cumsum() - counts)[place[order]]
    return column, int(counts.max())


def restrict(weight_tv: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Sets to 0 what lies outside the k heaviest ids, and of those outside the smallest set that holds the share p.

    The share counts what the k left over; equal weights are ranked by id (Holtzman et al. 2020, arXiv:1904.09751).

    Args:
        weight_tv: [t, vocabulary], not negative; rows need not sum to 1.
        top_k: [t]; 0: no limit.
        top_p: [t], in (0, 1].
    """
    top_k, top_p = top_k.to(weight_tv.device), top_p.to(weight_tv.device)
    ordered, order = weight_tv.sort(dim=-1, descending=True, stable=True)
    size = weight_tv.shape[-1]
    rank = torch.arange(size, device=weight_tv.device)
    kept = ordered * (rank < torch.where(top_k > 0, top_k, size)[:, None])
    heavier = kept.cumsum(dim=-1) - kept
    kept = kept * (heavier < top_p[:, None] * kept.sum(dim=-1, keepdim=True))
    return torch.zeros_like(weight_tv).scatter_(-1, order, kept)
