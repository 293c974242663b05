"""Growing rows on a model's own cache, for models that `slots` does not suit: all begin together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from opentinker.sampling.network import Network, Prefix
from opentinker.sampling.slots import Read


class Stock:
    """As `Slots`, with transformers' own cache; rows cannot join others, and nothing is remembered.

    Args:
        network: of the model.
    """

    joins = False
    bytes_each = 0

    def __init__(self, network: Network) -> None:
        self.network = network
        self.lengths: list[int] = []
        """Ids in the cache, by row."""
        self._prefix: Prefix | None = None

    def read(self, reads: Sequence[Read], columns: int) -> torch.Tensor:
        """See `Slots.read`; only where no rows are."""
        assert not self.lengths
        logits, self._prefix = self.network.prefill([read.ids for read in reads], use_cache=True)
        self.lengths = [len(read.ids) for read in reads]
        return logits

    def step(self, ids: Sequence[int]) -> torch.Tensor:
        """See `Slots.step`."""
        assert self._prefix is not None
        self.lengths = [length + 1 for length in self.lengths]
        return self.network.step(self._prefix, torch.tensor(ids))

    def settle(self, sources: Sequence[int]) -> None:
        """See `Slots.settle`."""
        if not sources:
            self._prefix = None
        elif self._prefix is not None and list(sources) != list(range(len(self.lengths))):
            self._prefix.select(torch.tensor(sources))
        self.lengths = [self.lengths[source] for source in sources]

    def cut(self, row: int, start: int, stop: int) -> list[torch.Tensor]:
        """Nothing."""
        return []

    def wipe(self, row: int) -> None:
        """Nothing: the row leaves, and its values with it."""
