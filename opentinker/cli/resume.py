"""`opentinker resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opentinker.cli.app import app, command
from opentinker.cli.stopping import told_when_stopped
from opentinker.cli.train import Json, Quiet, run_with_progress, say
from opentinker.errors import ConfigError

if TYPE_CHECKING:
    from opentinker.config import RunConfig
    from opentinker.result import RunResult


@app.command()
@told_when_stopped()
def resume(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name below runs/.", metavar="RUN")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value: what may change, e.g. train.steps.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with RUN from its last checkpoint, with the configuration that lies in its folder.

    A finished run is lengthened with train.steps=N. What else may change is said when something may not.
    """
    run_with_progress(lambda: _configuration(run, overrides or [], quiet), [], resume=True, json=json, quiet=quiet)


def _configuration(run: str, overrides: list[str], quiet: bool) -> RunConfig | RunResult:
    from opentinker.config import load_config
    from opentinker.result import read_run
    from opentinker.runs.folder import RunFolder, find_run
    from opentinker.runs.reading import read_config

    folder = find_run(run).resolve()
    held = read_config(folder)
    if not overrides and _is_finished(folder, held.train.steps):
        more = f"{command()} resume {run} train.steps={2 * held.train.steps}"
        if not quiet:
            say(
                f"{folder.name!r} is finished: all {held.train.steps} steps are done. To lengthen it, for example:\n  {more}"
            )
        return read_run(folder)
    config = load_config(folder / "config.yaml", overrides)
    for key in ("name", "runs_dir"):
        if getattr(config, key) != getattr(held, key):
            raise ConfigError(f"{key}: it follows the folder, which is {folder}; move that, or start another run")
    config = config.model_copy(update={"name": folder.name, "runs_dir": str(folder.parent)})
    RunFolder.check(config, resume=True)
    return config


def _is_finished(folder: Path, steps: int) -> bool:
    from opentinker.runs.checkpoints import CheckpointStore
    from opentinker.runs.status import read_status

    status, saved = read_status(folder), CheckpointStore(folder / "checkpoints").steps()
    return status is not None and status.state == "finished" and saved[-1:] == [steps]
