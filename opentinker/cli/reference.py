"""`opentinker config`."""

from __future__ import annotations

from typing import Annotated

import typer

from opentinker.cli.app import app, out


@app.command("config")
def config_reference(
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/configuration.md.")] = False,
) -> None:
    """Print every key of a configuration, with its default and meaning."""
    from opentinker.config import configuration_page, describe_config

    out.print((configuration_page() if markdown else describe_config() + "\n"), markup=False, end="")
