"""Results of `opentinker eval` as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from opentinker.report.runs import RunRecord

RATES = ("win", "draw", "loss", "success")


def evaluation_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    """A row for each opponent and seat of every result in `evaluations/`, newest first; what is no result is passed over.

    A figure is `[value, low, high]`, each None where it was not measured.
    """
    for name, result in record.evaluations():
        opponents = result.get("opponents")
        for opponent, tally in (opponents if isinstance(opponents, Mapping) else {}).items():
            seats = tally.get("seats") if isinstance(tally, Mapping) else None
            if not isinstance(seats, Mapping):
                continue
            parts = {**({"all seats": tally.get("overall")} if len(seats) > 1 else {}), **seats}
            for seat, figures in parts.items():
                if isinstance(figures, Mapping):
                    yield {
                        "file": name,
                        "step": _number(result.get("step")),
                        "weights": str(result.get("weights") or ""),
                        "opponent": opponent,
                        "seat": seat,
                        "games": _number(figures.get("games")),
                        **{rate: _interval(figures.get(rate), "rate") for rate in RATES},
                        "return": _interval(figures.get("return"), "mean"),
                        "invalid": _number(figures.get("invalid_rate")),
                    }


def _interval(value: Any, middle: str) -> list[float | None]:
    return [_number(value.get(name)) for name in (middle, "low", "high")] if isinstance(value, Mapping) else [None] * 3


def _number(value: Any) -> float | None:
    return float(f"{value:.6g}") if type(value) in (int, float) and abs(value) < 1e100 and math.isfinite(value) else None
