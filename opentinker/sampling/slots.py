"""Keys and values of growing rows side by side: position n of every row in column n, so that rows join and leave freely."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import Cache

from opentinker.sampling.lean import close
from opentinker.sampling.network import Network
from opentinker.sampling.prefixes import Piece

log = logging.getLogger(__name__)

_COLUMNS = 64
"""Columns are made in multiples of so many."""
_AHEAD = 256
"""Columns that are made at first for what will be drawn; few replies are as long as they may be."""


class Read(NamedTuple):
    """A prompt for the model to read."""

    ids: tuple[int, ...]
    pieces: Sequence[Piece]
    """What is known of its beginning; at least the last id has to be read."""

    @property
    def known(self) -> int:
        """Ids that need not be read."""
        return sum(piece.length for piece in self.pieces)


class _Place(NamedTuple):
    """Where a forward pass writes, and how far it looks back."""

    rows: slice
    width: int
    """Columns that it reads."""
    start: int | None
    """The column where all rows go on; None where each has its own."""
    into: tuple[torch.Tensor, torch.Tensor] | None
    """Row and column of each id, [n, w] or, for one id a row, [n]; None with `start`."""


class Slots(Cache):
    """The cache of a model's rows. Row r is in slot r; the rows that grow are the first slots without a gap.

    Unused columns hold zeros or what ended rows left; masks hide them.

    Args:
        network: of the model.
    """

    joins = True
    """Rows may be read while others grow."""

    def __init__(self, network: Network) -> None:
        super().__init__(layers=[])
        self.network = network
        self.lengths: list[int] = []
        """Ids in the cache, by row."""
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._size = (0, 0)
        self._place: _Place | None = None
        self._next: torch.Tensor | None = None
        self._all = torch.arange(0, device=network.device)

    @property
    def bytes_each(self) -> int:
        """What one id of one row takes."""
        return sum(side.shape[1] * side.shape[3] * side.element_size() for side in self._sides())

    def read(self, reads: Sequence[Read], columns: int) -> torch.Tensor:
        """Reads prompts into new rows behind those that are there.

        Args:
            reads: at least one.
            columns: ids that the longest of them may have in the end.

        Returns:
            The logits after each, [n, vocabulary].
        """
        first, n = len(self.lengths), len(reads)
        starts = [read.known for read in reads]
        lengths = [len(read.ids) for read in reads]
        rows, most = slice(first, first + n), max(lengths)
        self._reserve(first + n, min(columns, most + _AHEAD))
        width = max(length - start for length, start in zip(lengths, starts, strict=True))
        for row, read in enumerate(reads, first):
            self._fill(row, read.pieces)
        # padded with ids of the row's own: what a poisoned id makes of padding must not reach others
        ids = torch.tensor(
            [[read.ids[0]] * (width - length + start) + list(read.ids[start:])
             for read, length, start in zip(reads, lengths, starts, strict=True)],
            device=self.network.device,
        )  # fmt: skip
        end = torch.tensor(lengths, device=ids.device)
        position = end[:, None] - width + torch.arange(width, device=ids.device)
        aligned = len(set(starts)) == 1 and min(lengths) == most
        if aligned:
            self._place = _Place(rows, most, starts[0], None)
        else:
            begin = torch.tensor(starts, device=ids.device)
            # padding is written to the last column, which nobody reads
            column = torch.where(position < begin[:, None], self._size[1] - 1, position)
            into = torch.arange(first, first + n, device=ids.device)[:, None].expand_as(column)
            self._place = _Place(rows, most, None, (into, column))
        mask = None if aligned and starts[0] == 0 else self._mask(position.clamp_(min=0), most)
        logits = self.network.extend(ids, mask, position, self, most)
        self.lengths += lengths
        self._next = None
        return logits

    def step(self, ids: Sequence[int]) -> torch.Tensor:
        """Reads one more id of every row; the logits after it, [r, vocabulary]."""
        rows, most = len(self.lengths), max(self.lengths) + 1
        if most >= self._size[1]:
            self._reserve(rows, most + most // 2)
        device = self.network.device
        if self._next is None:
            self._next = torch.tensor(self.lengths, device=device)
            self._all = torch.arange(rows, device=device)
        position = self._next
        even = min(self.lengths) + 1 == most
        self._place = _Place(slice(0, rows), most, most - 1 if even else None, None if even else (self._all, position))
        column = position[:, None]
        mask = None if even else self._mask(column, most)
        logits = self.network.extend(torch.tensor(ids, device=device)[:, None], mask, column, self, most)
        self.lengths = [length + 1 for length in self.lengths]
        self._next = position + 1
        return logits

    def settle(self, sources: Sequence[int]) -> None:
        """Row t becomes what row `sources[t]` was; a row named twice is copied, one not named is gone."""
        moved = [(target, source) for target, source in enumerate(sources) if target != source]
        lengths = [self.lengths[source] for source in sources]
        if moved:
            self._reserve(len(sources), 0)
            width = max(lengths[target] for target, _ in moved)
            for side in self._sides():
                target, source = (torch.tensor(places, device=side.device) for places in zip(*moved, strict=True))
                side[target, :, :width] = side[source, :, :width]
        if moved or len(lengths) != len(self.lengths):
            self._next = None
        self.lengths = lengths

    def cut(self, row: int, start: int, stop: int) -> list[torch.Tensor]:
        """Copies of a row's keys and values from one position to another, [heads, stop - start, size] each."""
        return [side[row, :, start:stop].clone() for side in self._sides()]

    def wipe(self, row: int) -> None:
        """Overwrites a row whose values are no numbers: they would spread from under any mask, as NaN times 0 is NaN."""
        for side in self._sides():
            side[row].zero_()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by the model's layers: writes new keys and values; gives all of the rows', [n, heads, width, size]."""
        assert self._place is not None
        if layer_idx == len(self._keys):
            for sides, states in ((self._keys, key_states), (self._values, value_states)):
                sides.append(states.new_zeros(self._size[0], states.shape[1], self._size[1], states.shape[3]))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        rows, width, start, into = self._place
        for side, states in ((keys, key_states), (values, value_states)):
            if into is None:
                assert start is not None
                side[rows, :, start : start + states.shape[2]] = states
            else:
                row, column = into
                new = states[:, :, 0] if row.dim() == 1 else states.transpose(1, 2)
                side[row.to(side.device), :, column.to(side.device)] = new
        return keys[rows, :, :width], values[rows, :, :width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Ids that stand before those of the forward pass under way, where they are equally many."""
        return 0 if self._place is None or self._place.start is None else self._place.start

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns that the forward pass under way looks at, and the first of them."""
        assert self._place is not None
        return self._place.width, 0

    def _mask(self, position: torch.Tensor, width: int) -> torch.Tensor:
        """[n, 1, w, width]: each id, at its position [n, w], looks at itself and what stands before."""
        seen = torch.arange(width, device=position.device) <= position[:, :, None]
        return seen[:, None]

    def _fill(self, row: int, pieces: Sequence[Piece]) -> None:
        if pieces and not self._keys:
            made = [known.new_zeros(self._size[0], len(known), self._size[1], known.shape[2]) for known in pieces[0].tensors]
            self._keys, self._values = made[: len(made) // 2], made[len(made) // 2 :]
        for piece in pieces:
            stop = piece.start + piece.length
            for side, known in zip(self._sides(), piece.tensors, strict=True):
                side[row, :, piece.start : stop] = known[:, : piece.length]

    def _sides(self) -> list[torch.Tensor]:
        return self._keys + self._values

    def _reserve(self, rows: int, columns: int) -> None:
        """Makes room for so many rows, and ids in each, and a column for padding."""
        columns = max(columns + 1, self._size[1] if self.lengths else 0)
        columns += -columns % _COLUMNS
        has_rows, has_columns = self._size
        spare = not self.lengths and has_rows * has_columns > 4 * rows * columns
        if rows <= has_rows and columns <= has_columns and not spare:
            return
        # twice the rows, so that rows that come one by one are not copied each time
        size = max(rows, min(2 * has_rows, 2 * rows) if self.lengths else rows), columns
        used, width = len(self.lengths), max(self.lengths, default=0)
        self._size = size
        for sides in (self._keys, self._values):
            for layer, old in enumerate(sides):
                sides[layer] = old.new_zeros(size[0], old.shape[1], size[1], old.shape[3])
                sides[layer][:used, :, :width] = old[:used, :, :width]


def fits(network: Network) -> bool | None:
    """Whether a model reads rows from slots as it reads them alone, tried on a few ids; None: its weights are no numbers.

    Models that look back through a window, or keep more than keys and values, do not.
    """
    if not network.takes_masks or network.local:
        return False
    most = network.vocabulary - 1
    long, short = (tuple(at * 37 % most for at in range(first, first + n)) for first, n in ((1, 7), (9, 4)))
    wholes = [(*long, 1), (*short, 2), (*long[:5], 3, 4), (*long, 1, 5)]
    try:
        with network.plain():
            plain = torch.cat([network.prefill([whole], use_cache=False)[0] for whole in wholes]).float()
            slots = Slots(network)
            slots.read([Read(long, ()), Read(short, ())], 8)
            grown = slots.step([1, 2])
            slots.settle([1, 0])
            known = Piece(0, 5, slots.cut(1, 0, 5))
            joined = slots.read([Read(wholes[2], [known])], 9)
            slots.settle([1])
            ours = torch.cat([grown, joined, slots.step([5])]).float()
    except Exception as error:  # whatever a model raises that cannot be used so
        log.debug("%s does not read from slots: %s: %s", type(network.model).__name__, type(error).__name__, error)
        return False
    if not bool(torch.isfinite(plain).all()):
        return None
    return close(ours, plain, network.dtype)
