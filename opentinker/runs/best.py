"""The best checkpoint so far, told from the lines of metrics of the steps that have one: there is no state to lose."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from opentinker.config import KeepBest

log = logging.getLogger(__name__)


def is_finite(value: object) -> bool:
    """Whether a figure is a finite number; an integer that no float can hold is none."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


class Best:
    """Follows one figure.

    Args:
        settings: which figure, and whether less or more of it is better.
    """

    def __init__(self, settings: KeepBest) -> None:
        self.settings = settings
        self._values: dict[int, float] = {}
        self._keys: set[str] = set()
        self._warned = False

    def see(self, row: Mapping[str, Any]) -> None:
        """Takes in a line of metrics; a figure that is missing, null or no finite number does not count."""
        self._keys.update(row)
        value = row.get(self.settings.figure)
        if value is not None and is_finite(value):
            self._values[row["step"]] = float(value)

    def forget(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Starts again from these lines, after a rewind."""
        self._values.clear()
        for row in rows:
            self.see(row)

    def among(self, steps: Collection[int]) -> int | None:
        """The best of these steps, the earliest among equals; None where the figure is known of none."""
        sign = 1 if self.settings.goal == "min" else -1
        known = sorted(step for step in steps if step in self._values)
        return min(known, key=lambda step: sign * self._values[step], default=None)

    def warn_where_unknown(self, where: Path) -> None:
        """Says once that the figure was never seen although it was due; what it could be called is named."""
        figure = self.settings.figure
        if self._warned or self._values:
            return
        self._warned = True
        if figure in self._keys:
            log.warning("train.keep_best: %s was never a finite number so far (%s); every checkpoint is kept", figure, where)
            return
        near = difflib.get_close_matches(figure, self._keys, n=3, cutoff=0.5)
        names = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(sorted(self._keys))}"
        log.warning(
            "train.keep_best: %s has no figure %s, so every checkpoint is kept; %s "
            "(the run can go on with train.keep_best.figure=…)", where, figure, names,
        )  # fmt: skip
