"""`opentinker eval`."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opentinker.cli.app import app, out
from opentinker.cli.stopping import told_when_stopped

if TYPE_CHECKING:
    from opentinker.evaluate import Evaluation
    from opentinker.league.tally import Mean, Rate

log = logging.getLogger(__name__)


@app.command("eval")
@told_when_stopped()
def evaluate(
    run: Annotated[str, typer.Argument(help="RUN or RUN@VERSION: a step, latest, best or ema.", metavar="RUN")],
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="random, minimax, greedy, alphabeta:DEPTH, RUN@VERSION, ...; again for more."),
    ] = None,
    games: Annotated[int | None, typer.Option("--games", min=1, help="Games for each opponent and seat.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of the games; default: the run's.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, help="Of its policies; 0: greedy. Default: evaluate.temperature.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    file: Annotated[Path | None, typer.Option("--out", help="Write the JSON object to this file, too.")] = None,
) -> None:
    """Play RUN against opponents, each seat in turn, on seeds that no training draws from.

    Without --against everybody plays its own seat: for one agent alone that measures its returns.
    """
    import json as encoder

    from opentinker.evaluate import evaluate_run
    from opentinker.runs.writing import write_whole

    found = evaluate_run(run, against or (), games=games, seed=seed, temperature=temperature)
    text = encoder.dumps(found.to_json(), indent=1)
    saved: Path | None = None
    try:
        saved = found.save()
    except OSError as error:  # another's run, on a disk that is not ours to write on
        log.warning("nothing is written into the run's folder: %s", error)
    if file is not None:
        write_whole(file, text + "\n")
    if json:
        out.print(text)
        return
    shown = "" if found.temperature is None else f", temperature {found.temperature:g}"
    what = f"{found.weights} weights{shown}, {found.games} games a seat, seed {found.seed}"
    out.print(f"{found.run} at step {found.step}, {what}")
    out.print(_table(found))
    for line in _forfeits(found):
        out.print(line)
    out.print("below each figure its 95 % interval: Wilson's for rates, Student's t for returns")
    if saved is not None:
        out.print(f"figures:  {saved}\nepisodes: {saved.with_suffix('.jsonl')}")


def _forfeits(found: Evaluation) -> Iterator[str]:
    """Games that an opponent ended by itself say little of the run."""
    for label, match in found.matches.items():
        lost = sum(not episode.opponents.keys().isdisjoint(episode.outcome.get("out", ())) for episode in match.episodes)
        if lost:
            yield f"note: {label} left {lost} of {len(match.episodes)} games before they were over (invalid replies, mostly)"


def _table(found: Evaluation) -> str:
    """A row for each opponent and seat, and one for all seats together; as wide as it needs to be."""
    from rich.console import Console
    from rich.table import Table

    rows = [
        (label, seat, tally)
        for label, match in found.matches.items()
        for seat, tally in [*(match.seats.items() if len(match.seats) > 1 else ()), ("all", match.overall)]
    ]
    tallies = [tally for _, _, tally in rows]
    columns = {
        "against": [label for label, _, _ in rows],
        "seat": [seat for _, seat, _ in rows],
        "games": [str(tally.games) for tally in tallies],
        "win": [_rate(tally.win) for tally in tallies],
        "draw": [_rate(tally.draw) for tally in tallies],
        "loss": [_rate(tally.loss) for tally in tallies],
        "success": [_rate(tally.success) for tally in tallies],
        "return": [_mean(tally.mean_return) for tally in tallies],
        "invalid": [f"{tally.invalid_rate:.1%}" for tally in tallies],
        "length": [f"{tally.mean_length:.1f}" for tally in tallies],
        "failed": [str(tally.failed or "") for tally in tallies],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in shown:
        table.add_column(name, justify="left" if name in ("against", "seat") else "right", no_wrap=True)
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    text = io.StringIO()
    Console(file=text, width=1000, markup=False, emoji=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())


def _rate(rate: Rate | None) -> str:
    return "" if rate is None else f"{rate.rate:.1%}\n{100 * rate.low:.0f}-{rate.high:.0%}"


def _mean(mean: Mean) -> str:
    ends = "" if mean.low is None or mean.high is None else f"\n{mean.low:.2f} to {mean.high:.2f}"
    return f"{mean.mean:.3f}{ends}"
