"""The application that every command hangs on, and the entry point around it."""

from __future__ import annotations

import gc
import io
import logging
import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console

from opentinker.errors import ConfigError, DuplicateId, Interrupted, MissingExtra, OpenTinkerError, RunExists, UnknownId

BAD_INPUT = (ConfigError, UnknownId, DuplicateId, RunExists, MissingExtra)

app = typer.Typer(
    help="Train teams of language-model agents in any Gymnasium or PettingZoo environment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)


def _version(wanted: bool) -> None:
    if wanted:
        from opentinker import __version__

        out.print(f"opentinker {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logging.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    shown = "%(levelname)s %(name)s: %(message)s" if debug else "%(levelname)s: %(message)s"
    logging.basicConfig(level=logging.WARNING, format=shown, stream=sys.stderr)
    if debug:
        logging.getLogger("opentinker").setLevel(logging.DEBUG)


def command() -> str:
    """How the user can call this command again from here."""
    return "opentinker" if shutil.which("opentinker") else f"{sys.executable} -m opentinker.cli"


def key_values(items: list[str]) -> dict[str, Any]:
    """Arguments of the form key=value, the values read as YAML.

    Raises:
        ConfigError: one has no `=`.
    """
    from opentinker.config import parse_yaml

    result = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} is not of the form key=value")
        result[key] = parse_yaml(text, item)
    return result


def exit_code(error: BaseException) -> int:
    """1 for a failure, 2 for bad input, 128 + signal where one stopped it."""
    if isinstance(error, Interrupted):
        return 128 + error.signum
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    return 2 if isinstance(error, BAD_INPUT) else 1


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `opentinker` command. Exit codes: 0, 1 failure, 2 bad input, 128 + signal when stopped."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments
    # accept --debug anywhere: people add it at the end of the line that failed
    arguments = (["--debug"] if debug else []) + [item for item in arguments if item != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no run
    with suppress(FileNotFoundError):  # somebody removed the folder one stands in
        sys.path.insert(0, os.getcwd())  # package.module:Class of the folder one stands in, as `python -m` does
    try:
        app(args=arguments, prog_name="opentinker")
    except Interrupted as stop:
        out.print(str(stop), markup=False)
        raise SystemExit(exit_code(stop)) from None
    except (OpenTinkerError, OSError) as error:  # OSError: a full disk, a folder without rights, ...
        if debug:
            raise
        Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(f"error: {error}", markup=False)
        raise SystemExit(exit_code(error)) from None
    finally:
        if argv is None:
            gc.freeze()  # the process ends, and its last collections of what torch and transformers hold took seconds
