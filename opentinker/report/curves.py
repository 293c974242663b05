"""Curves of a run as one PNG."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("exploitability", "eval/exploitability/", ""),
    ("return", "rollout/", "/return_mean"),
    ("invalid replies", "rollout/", "/invalid_rate"),
    ("entropy (nats a token)", "rollout/", "/entropy"),
)
"""Title, and how the keys of the figures start and end."""

Points = list[tuple[int, float]]


def plot_curves(rows: Sequence[Mapping[str, Any]], file: Path, title: str) -> Path:
    """Draws what `metrics.jsonl` holds over the steps: exploitability where measured, returns, invalid replies, entropy.

    Args:
        rows: the lines of `metrics.jsonl`.
        file: where to write the PNG; its folder is made.
        title: above the panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [(name, curves) for name, start, end in PANELS if (curves := _curves(rows, start, end))]
    figure = Figure(figsize=(4.2 * max(len(panels), 1), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
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
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


def _curves(rows: Sequence[Mapping[str, Any]], start: str, end: str) -> dict[str, Points]:
    curves: defaultdict[str, Points] = defaultdict(list)
    for row in rows:
        for key, value in row.items():
            if key.startswith(start) and key.endswith(end) and value is not None and math.isfinite(value):
                curves[key].append((row["step"], value))
    return dict(sorted(curves.items()))


def _label(key: str) -> str:
    parts = key.split("/")
    name = parts[-1] if parts[0] == "eval" else "/".join(parts[1:-1])
    # matplotlib reads $ as mathematics and leaves names that start with _ out of the legend
    return ("\u200a" if name.startswith("_") else "") + name.replace("$", r"\$")
