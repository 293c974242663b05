"""`opentinker show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opentinker.cli.app import app, out
from opentinker.cli.stopping import told_when_stopped


@app.command()
@told_when_stopped()
def show(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or names below runs/.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write into: RUN/report for one run, comparison for several."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=0, help="How many episodes the page holds at most.")] = 20_000,
) -> None:
    """Write one HTML page (curves, settings, every recorded episode, failures) and a PNG of the curves.

    The page is one file that needs no network. Several runs are drawn over each other.
    """
    from opentinker.report.curves import plot_runs
    from opentinker.report.page import write_page
    from opentinker.report.runs import read_runs
    from opentinker.runs.folder import find_run

    paths = [find_run(run) for run in runs]
    records = read_runs(paths)
    folder = to or (paths[0] / "report" if len(paths) == 1 else Path("comparison"))
    page = write_page(records, folder / "index.html", episodes)
    title = records[0].name if len(records) == 1 else f"{len(records)} runs"
    curves = plot_runs({record.name: record.rows for record in records}, folder / "curves.png", title)
    for record in records:
        if record.torn:
            out.print(f"{record.path}: {record.torn} line(s) of metrics.jsonl could not be read and are left out")
    out.print(f"page:   {page}")
    out.print(f"curves: {curves}")
