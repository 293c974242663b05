"""Draws for one model: rows are read, grow by one id a step, and leave, each in its own time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from opentinker.sampling.batching import Answer, Failure, Limits, Row, completions, passes, take
from opentinker.sampling.draws import Ints, Knobs, draw, uniforms
from opentinker.sampling.network import Network
from opentinker.sampling.policies import Served
from opentinker.sampling.prefixes import Prefixes
from opentinker.sampling.slots import Read, Slots, fits
from opentinker.sampling.stock import Stock
from opentinker.types import FinishReason

log = logging.getLogger(__name__)

SHORT = 64
"""Where all prompts have fewer ids and one id is wanted of each, nothing is remembered: reading them again is as fast."""

Prompt = tuple[Served, tuple[int, ...]]


class Engine:
    """Everything that one model draws, adapters on it included.

    Rows that are asked for join those that grow at the next step, within the limits and in the order they were put. A row's
    ids depend on its own prompt, settings and seed, and on the other rows only through rounding.

    Args:
        network: the model.
        limits: of the rows that grow together.
        prefixes: where what was read is remembered.
    """

    def __init__(self, network: Network, limits: Limits, prefixes: Prefixes) -> None:
        self._network = network
        self._limits = limits
        self._prefixes = prefixes
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._picks: _Picks | None = None
        self._cache: Slots | Stock | None = None

    @property
    def busy(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting or self._rows)

    def put(self, row: Row) -> None:
        """The row waits to be read."""
        self._waiting.append(row)

    def work(self) -> list[Answer]:
        """Reads what may join, or else lets every row grow by an id; the answers that are ready.

        What the model raises fails those it was at work for, and nobody else.
        """
        with torch.inference_mode():
            self._forget_cancelled()
            taken = take(self._waiting, self._rows, self._limits, joins=self._cache is None or self._cache.joins)
            if taken:
                try:
                    return self._read(taken)
                except Exception as error:
                    self._recover()
                    return _failed(taken, error)
            if not self._rows:
                return []
            try:
                return self._step()
            except Exception as error:
                return _failed(self.stop(), error)

    def stop(self) -> list[Row]:
        """Lets go of all rows that grow, unfinished."""
        rows, self._rows, self._cache = self._rows, [], None
        return rows

    def stop_all(self) -> list[Row]:
        """Lets go of everything, unfinished."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return self.stop() + waiting

    def _read(self, taken: list[Row]) -> list[Answer]:
        """Reads the rows' prompts, each once, and draws the first id of every row."""
        rows_of: dict[Prompt, list[Row]] = {}
        for row in taken:
            rows_of.setdefault((row.served, row.request.prompt), []).append(row)
        if any(len(ids) >= SHORT for _, ids in rows_of) or any(row.limit > 1 for row in taken):
            return self._read_into_cache(rows_of)
        answers: list[Answer] = []
        for part in passes(list(rows_of), lambda key: (len(key[1]), len(key[1]))):
            with self._network.using([served.adapter for served, _ in part]):
                logits, _ = self._network.prefill([ids for _, ids in part], use_cache=False)
            rows = [(row, place) for place, key in enumerate(part) for row in rows_of[key]]
            answers += completions(self._draw(rows, logits)[0])
        return answers

    def _read_into_cache(self, rows_of: dict[Prompt, list[Row]]) -> list[Answer]:
        if self._cache is None or self._network.suits_slots is None:
            self._cache = self._new_cache()
        cache = self._cache
        before = len(self._rows)
        reads = [(key, self._known(cache, key)) for key in rows_of]
        columns = max(row.width for rows in rows_of.values() for row in rows)
        order: list[Prompt] = []
        found: list[torch.Tensor] = []
        # a cache that takes no joining rows reads all at once
        parts = passes(reads, lambda read: (len(read[1].ids) - read[1].known, len(read[1].ids))) if cache.joins else [reads]
        for part in parts:
            with self._network.using([served.adapter for (served, _), _ in part]):
                found.append(cache.read([read for _, read in part], columns))
            order += [key for key, _ in part]
        logits = found[0] if len(found) == 1 else torch.cat(found)
        rows = [(row, place) for place, key in enumerate(order) for row in rows_of[key]]
        ended, growing = self._draw(rows, logits)
        sick = {(row.served, row.request.prompt) for row in ended if row.reason is None}
        for slot, (served, ids) in enumerate(order, before):
            if (served, ids) in sick:
                cache.wipe(slot)
            elif cache.joins:
                self._remember(cache, slot, served, ids)
        self._settle(cache, [*zip(self._rows, range(before), strict=True), *[(row, before + at) for row, at in growing]])
        return completions(ended)

    def _step(self) -> list[Answer]:
        """Every row grows by an id; those that ended leave."""
        cache, rows = self._cache, self._rows
        assert cache is not None
        with self._network.using([row.served.adapter for row in rows]):
            logits = cache.step([row.ids[-1] for row in rows])
        if self._picks is None:
            self._picks = _Picks(rows)
        ended = self._picks.draw(logits, np.arange(len(rows)))
        if any(ended):
            self._leave(cache, ended)
        return completions([row for row, ends in zip(rows, ended, strict=True) if ends])

    def _leave(self, cache: Slots | Stock, ended: Sequence[bool]) -> None:
        for slot, row in enumerate(self._rows):
            if ended[slot] and row.reason is None:
                cache.wipe(slot)
            elif ended[slot] and cache.joins:
                # the last id was drawn and never read
                self._remember(cache, slot, row.served, (*row.request.prompt, *row.ids[:-1]))
        self._settle(cache, [(row, slot) for slot, row in enumerate(self._rows) if not ended[slot]])

    def _draw(self, rows: list[tuple[Row, int]], logits: torch.Tensor) -> tuple[list[Row], list[tuple[Row, int]]]:
        """Draws the first id of rows, each from its place in the logits; those that ended, and those that grow."""
        ended = _Picks([row for row, _ in rows]).draw(logits, np.array([place for _, place in rows]))
        both = list(zip(rows, ended, strict=True))
        return [row for (row, _), ends in both if ends], [found for found, ends in both if not ends]

    def _settle(self, cache: Slots | Stock, staying: Sequence[tuple[Row, int]]) -> None:
        """Gives rows, each with the slot that holds it, the first slots; as few as can be are moved."""
        slots: list[tuple[Row, int] | None] = [None] * len(staying)
        moving: list[tuple[Row, int]] = []
        for row, slot in staying:
            if slot < len(slots) and slots[slot] is None:
                slots[slot] = row, slot
            else:
                moving.append((row, slot))
        into = iter(moving)
        settled = [found if found is not None else next(into) for found in slots]
        cache.settle([slot for _, slot in settled])
        self._rows = [row for row, _ in settled]
        self._picks = None

    def _known(self, cache: Slots | Stock, key: Prompt) -> Read:
        served, ids = key
        pieces = self._prefixes.match(served, ids[:-1]) if cache.joins else ()
        return Read(ids, pieces)

    def _remember(self, cache: Slots | Stock, slot: int, served: Served, ids: tuple[int, ...]) -> None:
        def cut(start: int, stop: int) -> Sequence[torch.Tensor]:
            return cache.cut(slot, start, stop)

        self._prefixes.store(served, ids, cache.bytes_each, cut)

    def _forget_cancelled(self) -> None:
        """Rows that nobody waits for any more leave."""
        if any(row.request.future.done() for row in self._waiting):
            self._waiting = deque(row for row in self._waiting if not row.request.future.done())
        if any(row.request.future.done() for row in self._rows):
            assert self._cache is not None
            kept = [(row, slot) for slot, row in enumerate(self._rows) if not row.request.future.done()]
            self._settle(self._cache, kept)

    def _new_cache(self) -> Slots | Stock:
        suits = fits(self._network) if self._network.suits_slots is None else self._network.suits_slots
        self._network.suits_slots = suits
        return Slots(self._network) if suits else Stock(self._network)

    def _recover(self) -> None:
        """Drops what a failed read left in the cache; rows that grew before go on."""
        if self._cache is not None and self._rows:
            self._cache.settle(range(len(self._rows)))
        else:
            self._cache = None


class _Picks:
    """Draws ids for rows and says which of them end."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._knobs = Knobs.of([row.request.params for row in rows])
        self._seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        self._places = np.arange(len(rows))
        self._length = np.array([len(row.ids) for row in rows])

    def draw(self, logits: torch.Tensor, source: Ints) -> list[bool]:
        """One id for each row, from its place in the logits; whether it ended."""
        drawn = draw(logits, source, self._knobs, self._places, uniforms(self._seeds, self._length))
        self._length += 1
        ended: list[bool] = []
        found = zip(self._rows, drawn.ids.tolist(), drawn.logprobs.tolist(), drawn.ok.tolist(), strict=True)
        for row, id, logprob, ok in found:
            row.ids.append(id)
            row.logprobs.append(logprob)
            if ok:
                row.reason = _end(row, id)
            ended.append(not ok or row.reason is not None)
        return ended


def _end(row: Row, id: int) -> FinishReason | None:
    """Why a row ends with the id it was just given, if it does."""
    reader, params = row.served.reader, row.request.params
    if id in reader.eos_ids:
        return FinishReason.EOS
    if params.stop and reader.stops(row.ids, params.stop):
        return FinishReason.STOP
    if len(row.ids) < row.limit:
        return None
    return FinishReason.LENGTH if row.limit >= params.max_tokens else FinishReason.CONTEXT


def _failed(rows: Sequence[Row], error: Exception) -> list[Answer]:
    """Whatever the model raised belongs to those who wait for it."""
    names = ", ".join(sorted({repr(str(row.request.ref)) for row in rows}))
    log.error("policy %s failed on a batch of %d requests", names, len(rows), exc_info=error)
    message = f"policy {names} failed on a batch of {len(rows)} requests: {type(error).__name__}: {error}"
    return [(row.request, Failure(message, error)) for row in rows]
