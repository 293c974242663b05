"""Curves of a run as one PNG."""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

PANELS = (
    ("exploitability", "eval/exploitability/", ""),
    ("return", "rollout/", "/return_mean"),
    ("invalid replies", "rollout/", "/invalid_rate"),
    ("entropy (nats a token)", "rollout/", "/entropy"),
)
"""Title, and how the keys of the figures start and end."""

UNDRAWABLE = ("Cc", "Cs", "Cn", "Co", "Zl", "Zp")
"""Categories of Unicode: control, surrogate, unassigned, private, line and paragraph ends."""

LONGEST = 100
"""Characters of a name that are shown."""

BOUND = 1e100
"""Of figures that are drawn."""

Points = list[tuple[int, float]]


def plot_curves(rows: Sequence[Mapping[str, Any]], file: Path, title: str) -> Path:
    """Draws what `metrics.jsonl` holds over the steps: exploitability where measured, returns, invalid replies, entropy.

    Args:
        rows: the lines of `metrics.jsonl`.
        file: where to write the PNG; its folder is made.
        title: above the panels.

    Characters that cannot be drawn are replaced, figures beyond 1e100 left out; a file that cannot be written is logged:
    the run behind it is finished all the same.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [(name, curves) for name, start, end in PANELS if (curves := _curves(rows, start, end))]
    figure = Figure(figsize=(4.2 * max(len(panels), 1), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_drawable(title))
    for place, (name, curves) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        for key, points in curves.items():
            marker = "o" if len(points) == 1 else ""  # a line through one point is invisible
            axes.plot(*zip(*points, strict=True), label=_label(key), linewidth=1.2, marker=marker)
        if name == "exploitability":
            axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # a glyph that the font lacks becomes a box; a layout that does not fit is drawn without one
            warnings.simplefilter("ignore", UserWarning)
            figure.savefig(file, dpi=120)
    except OSError as error:
        log.warning("cannot write the curves to %s: %s", file, error)
    return file


def _curves(rows: Sequence[Mapping[str, Any]], start: str, end: str) -> dict[str, Points]:
    curves: defaultdict[str, Points] = defaultdict(list)
    for row in rows:
        for key, value in row.items():
            if key.startswith(start) and key.endswith(end) and _is_drawable(value):
                curves[key].append((row["step"], value))
    return dict(sorted(curves.items()))


def _label(key: str) -> str:
    parts = key.split("/")
    name = parts[-1] if parts[0] == "eval" else "/".join(parts[1:-1])
    # matplotlib leaves names that start with _ out of the legend
    return ("\u200a" if name.startswith("_") else "") + _drawable(name)


def _drawable(text: str) -> str:
    shown = "".join("\ufffd" if unicodedata.category(mark) in UNDRAWABLE else mark for mark in text[:LONGEST])
    return shown.replace("$", r"\$")  # which matplotlib reads as mathematics


def _is_drawable(value: Any) -> bool:
    # beyond the bound the axes' own sums overflow; also false for NaN
    return isinstance(value, (int, float)) and abs(value) < BOUND
