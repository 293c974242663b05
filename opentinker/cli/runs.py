"""`opentinker runs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opentinker.cli.app import app, out
from opentinker.cli.stopping import told_when_stopped
from opentinker.errors import ConfigError

if TYPE_CHECKING:
    from opentinker.runs.listing import RunSummary


@app.command()
@told_when_stopped()
def runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs lie.")] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="One JSON list, for programs.")] = False,
) -> None:
    """List the runs below FOLDER: state, step, key figure, age and size on disk.

    States: running; finished; interrupted by a signal; failed; killed (it never said that it ended); empty.
    """
    import json as text
    from dataclasses import asdict

    from opentinker.runs.listing import list_runs

    try:
        found = list_runs(folder)
    except OSError as error:
        raise ConfigError(f"cannot list runs in {str(folder)!r}: {error.strerror or error}") from error
    if json:
        print_json = text.dumps([asdict(run) for run in found], indent=1)
        out.print(print_json)
        return
    if not found:
        out.print(f"no runs in {folder}")
        return
    head = ("name", "state", "step", "figure", "age", "size", "(checkpoints)")
    for line in _columns([head, *(_row(run) for run in found)]):
        out.print(line)
    for run in found:
        if run.state == "failed" and run.error:
            out.print(f"{_printable(run.name)} failed: {_printable(run.error.splitlines()[0][:200])}")


def _row(run: RunSummary) -> tuple[str, ...]:
    from opentinker.runs.checkpoints import megabytes

    step = f"{'-' if run.step is None else run.step}/{'?' if run.steps is None else run.steps}"
    figure = "" if run.value is None else f"{run.figure.removeprefix('eval/').removeprefix('rollout/')} {run.value:.4g}"
    sizes = (megabytes(run.size), f"({megabytes(run.checkpoints_size)})")
    return _printable(run.name), run.state, step, _printable(figure), _ago(run.age_s), *sizes


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    from rich.cells import cell_len  # some characters take two columns

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = ([cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]
