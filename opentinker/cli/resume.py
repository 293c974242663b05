"""`opentinker resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opentinker.cli.app import app
from opentinker.cli.train import Json, Quiet, run_with_progress
from opentinker.errors import ConfigError

if TYPE_CHECKING:
    from opentinker.config import RunConfig


@app.command()
def resume(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name below runs/.", metavar="RUN")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value: what may change, e.g. train.steps.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with RUN from its last checkpoint, with the configuration that lies in its folder.

    A finished run is lengthened with train.steps=N. What else may change is said when something may not.
    """
    run_with_progress(lambda: _configuration(run, overrides or []), [], resume=True, json=json, quiet=quiet)


def _configuration(run: str, overrides: list[str]) -> RunConfig:
    from opentinker.config import load_config
    from opentinker.runs.folder import find_run
    from opentinker.runs.reading import read_config

    folder = find_run(run).resolve()
    held = read_config(folder)
    config = load_config(folder / "config.yaml", overrides)
    for key in ("name", "runs_dir"):
        if getattr(config, key) != getattr(held, key):
            raise ConfigError(f"{key}: it follows the folder, which is {folder}; move that, or start another run")
    return config.model_copy(update={"name": folder.name, "runs_dir": str(folder.parent)})
