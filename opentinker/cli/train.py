"""`opentinker train`, and what it shares with `opentinker resume`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from opentinker.cli.app import app, command, exit_code, out
from opentinker.cli.stopping import told_when_stopped
from opentinker.errors import OpenTinkerError

if TYPE_CHECKING:
    from opentinker.config import RunConfig
    from opentinker.report.progress import JsonProgress, LiveProgress
    from opentinker.result import RunResult

AnyProgress = TypeVar("AnyProgress", "JsonProgress", "LiveProgress")

Json = Annotated[bool, typer.Option("--json", help="Progress for programs: one JSON object a line on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing of the steps, only how it ended.")]


@app.command()
@told_when_stopped()
def train(
    config: Annotated[Path, typer.Argument(help="A YAML file, for example configs/kuhn_selfplay.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value, as many as you like.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of this name, or start it.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the policies of CONFIG."""
    result = run_with_progress(lambda: config, overrides or [], resume=resume, json=json, quiet=quiet)
    if result is not None and not quiet:
        again = f"{command()} train {config} name={_next_name(result.folder.name)} seed={result.seed + 1}"
        say(f"         {again}  # another run, with other settings as key.path=value")


def run_with_progress(
    find: Callable[[], Path | RunConfig | RunResult], overrides: Sequence[str], *, resume: bool, json: bool, quiet: bool
) -> RunResult | None:
    """Trains and says where things are. With `json` the last line on stdout says it, and None is returned.

    Args:
        find: gives the configuration, or a run that needs no training, or raises what is wrong; called before slow imports.
        overrides: of the configuration.
        resume: go on with the run of its name.
        json: progress as JSON lines.
        quiet: say nothing of the steps.

    Raises:
        SystemExit: with `json`, after the line that tells what went wrong.
    """
    from opentinker.report.progress import JsonProgress, LiveProgress
    from opentinker.result import RunResult

    def run(progress: JsonProgress | LiveProgress) -> RunResult:
        found = find()
        if isinstance(found, RunResult):
            return found
        if isinstance(progress, LiveProgress):
            progress.loading()
        from opentinker.run import train

        return train(found, *overrides, resume=resume, progress=progress)

    if json:
        lines = _leaves_at_once(JsonProgress(sys.stdout))
        with contextlib.redirect_stdout(sys.stderr), _told(lines):  # whatever else prints
            result = run(lines)
        lines.tell("end", **_places(result))
        return None
    with _leaves_at_once(LiveProgress(out, quiet)) as progress:
        result = run(progress)
    say(f"run:     {result.folder}")
    say(f"curves:  {result.curves}")
    say(f"figures: {result.folder / 'metrics.jsonl'}")
    say(f"weights: {result.folder / 'checkpoints'}/step-*/policies/NAME/weights (Hugging Face or PEFT layout)")
    if quiet:
        return result
    name = _typed(result.folder)
    say(f"next:    {command()} show {name}  # curves, settings and every recorded episode as one page")
    say(f"         {command()} eval {name}  # held-out games, with intervals; --against names opponents")
    say(f"         {command()} play {name}  # play one of its agents yourself")
    return result


def say(text: str) -> None:
    """A line on stdout, if anybody still reads that."""
    from opentinker.report.progress import unread

    with unread(out.file):
        out.print(text)


def _leaves_at_once(progress: AnyProgress) -> AnyProgress:
    """Makes a second signal end this process there and then: no clean-up of thousands of games, nothing that could hang.

    A run folder is whole whatever the instant at which its process ends.
    """
    tell = progress.leaving

    def leave(signum: int) -> None:
        try:
            tell(signum)
            sys.stderr.write("stopped at once; `opentinker resume RUN` goes on from the last checkpoint\n")
            sys.stderr.flush()
        finally:  # the signal may have come while the same stream was being written
            os._exit(128 + signum)

    progress.leaving = leave  # type: ignore[method-assign]
    return progress


def _places(result: RunResult) -> dict[str, Any]:
    folder = result.folder
    paths = {"curves": result.curves, "metrics": folder / "metrics.jsonl", "checkpoints": folder / "checkpoints"}
    return {"run": str(folder), **{name: str(path) for name, path in paths.items()}, "step": result.rows[-1]["step"]}


@contextlib.contextmanager
def _told(lines: JsonProgress) -> Iterator[None]:
    """Tells an error as one more line and ends with its exit code; one that is a bug also keeps its traceback on stderr."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        lines.tell("error", kind=type(error).__name__, error=str(error), exit_code=exit_code(error))
        if isinstance(error, (OpenTinkerError, OSError, KeyboardInterrupt)):
            raise SystemExit(exit_code(error)) from None
        raise


def _typed(folder: Path) -> str:
    """How a run is named on a command line from here."""
    here = folder.parent.name == "runs" and folder.parent.resolve() == Path("runs").resolve()
    return shlex.quote(folder.name if here else str(folder))


def _next_name(name: str) -> str:
    stem, _, number = name.rpartition("-")
    return f"{stem}-{int(number) + 1}" if stem and number.isdigit() else f"{name}-2"
