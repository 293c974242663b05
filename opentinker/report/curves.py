"""Curves of one or several runs as one PNG."""

from __future__ import annotations

import logging
import os
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from opentinker.errors import WriteFailed
from opentinker.report.figures import FAILED, Chart, charts
from opentinker.runs.writing import writing

log = logging.getLogger(__name__)

PANELS = 8
"""Pictures in a PNG at most; the page of a run has all."""

COLUMNS = 4

STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")

UNDRAWABLE = ("Cc", "Cs", "Cn", "Co", "Zl", "Zp")
"""Categories of Unicode: control, surrogate, unassigned, private, line and paragraph ends."""

LONGEST = 100
"""Characters of a name that are shown."""

BOUND = 1e100
"""Of figures that are drawn."""

Rows = Sequence[Mapping[str, Any]]


def plot_curves(rows: Rows, file: Path, title: str) -> Path:
    """Draws what `metrics.jsonl` holds over the steps: exploitability and matches where measured, returns, entropy, ...

    Args:
        rows: the lines of `metrics.jsonl`.
        file: where to write the PNG; its folder is made.
        title: above the panels.

    Characters that cannot be drawn are replaced, figures beyond 1e100 left out; a file that cannot be written is logged:
    the run behind it is finished all the same.
    """
    try:
        return plot_runs({"": rows}, file, title)
    except WriteFailed as error:
        log.warning("%s", error)
        return file


def plot_runs(runs: Mapping[str, Rows], file: Path, title: str) -> Path:
    """Draws several runs over each other: a colour for each run and a dash for each of its lines.

    Args:
        runs: the lines of `metrics.jsonl` of each run, by its name. A single one has a colour for each line.
        file: as for `plot_curves`.
        title: above the panels.

    Raises:
        WriteFailed: the file cannot be written; what was there before is untouched.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = _panels(runs)
    columns = min(max(len(panels), 1), COLUMNS)
    lines = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(4.2 * columns, 3.4 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_drawable(title))
    for place, chart in enumerate(panels, start=1):
        axes = figure.add_subplot(lines, columns, place)
        axes.set_title(chart.title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        _draw(axes, chart, runs)
        if chart.id == "eval/exploitability":
            axes.set_ylim(bottom=0)
    if len(runs) > 1:
        keys = [Line2D([], [], color=f"C{number}", label=_label(name)) for number, name in enumerate(runs)]
        figure.legend(handles=keys, loc="outside lower center", ncols=min(len(runs), 6), fontsize=8)
    aside = file.with_name(f".{os.getpid()}.{file.name}")
    with writing(file), warnings.catch_warnings():
        # a glyph that the font lacks becomes a box; a layout that does not fit is drawn without one
        warnings.simplefilter("ignore", UserWarning)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(aside, dpi=120)
            aside.replace(file)
        finally:
            with suppress(OSError):
                aside.unlink()
    return file


def _panels(runs: Mapping[str, Rows]) -> list[Chart]:
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for row in (row for rows in runs.values() for row in rows):
        for key, value in row.items():
            if _is_drawable(value):
                values[key].append(value)
    found = [chart for chart in charts(values) if chart.main]
    # failures are drawn where there are some
    return [chart for chart in found if chart.id != FAILED or any(any(values[key]) for key in chart.lines.values())][:PANELS]


def _draw(axes: Any, chart: Chart, runs: Mapping[str, Rows]) -> None:
    from matplotlib.lines import Line2D

    several = len(runs) > 1
    for part, (who, key) in enumerate(chart.lines.items()):
        style = STYLES[part % len(STYLES)] if several else "-"
        for number, rows in enumerate(runs.values()):
            points = [(row["step"], row[key]) for row in rows if _is_drawable(row.get(key))]
            if points:
                marker = "o" if len(points) == 1 else ""  # a line through one point is invisible
                look = {"color": f"C{number if several else part % 10}", "linestyle": style, "linewidth": 1.2}
                axes.plot(*zip(*points, strict=True), label=_label(who), marker=marker, **look)
    if not several:
        axes.legend(fontsize=7)
    elif len(chart.lines) > 1:
        styles = [
            Line2D([], [], color="grey", linestyle=STYLES[part % len(STYLES)], label=_label(who))
            for part, who in enumerate(chart.lines)
        ]
        axes.legend(handles=styles, fontsize=7)


def _label(name: str) -> str:
    # matplotlib leaves names that start with _ out of the legend
    return ("\u200a" if name.startswith("_") else "") + _drawable(name)


def _drawable(text: str) -> str:
    shown = "".join("\ufffd" if unicodedata.category(mark) in UNDRAWABLE else mark for mark in text[:LONGEST])
    return shown.replace("$", r"\$")  # which matplotlib reads as mathematics


def _is_drawable(value: Any) -> bool:
    # beyond the bound the axes' own sums overflow; also false for NaN
    return isinstance(value, (int, float)) and abs(value) < BOUND
