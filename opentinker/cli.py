"""The command. Bad input ends with one clear message and exit code 2; `--debug` shows the traceback."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from opentinker.config import describe_config
from opentinker.errors import ConfigError, DuplicateId, Interrupted, MissingExtra, OpenTinkerError, RunExists, UnknownId

BAD_INPUT = (ConfigError, UnknownId, DuplicateId, RunExists, MissingExtra)

app = typer.Typer(
    help="Train teams of language-model agents in any Gymnasium or PettingZoo environment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
envs_app = typer.Typer(help="Environments: what there is, and whether yours is sound.", no_args_is_help=True)
app.add_typer(envs_app, name="envs")

out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logging.")] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if debug:
        logging.getLogger("opentinker").setLevel(logging.DEBUG)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A YAML file, for example configs/kuhn_selfplay.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value, as many as you like.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of this name, or start it.")] = False,
) -> None:
    """Train the policies of CONFIG."""
    from opentinker.report.progress import LiveProgress
    from opentinker.run import train as run

    with LiveProgress(out) as progress:
        result = run(config, *(overrides or []), resume=resume, progress=progress)
    out.print(f"run:     {result.folder}")
    out.print(f"curves:  {result.curves}")
    out.print(f"figures: {result.folder / 'metrics.jsonl'}")
    out.print(f"weights: {result.folder / 'checkpoints'}/step-*/policies/NAME/weights (Hugging Face layout)")
    again = f"{_command()} train {config} name={_next_name(result.folder.name)} seed={result.seed + 1}"
    out.print(f"next:    open the curves; another run, with other settings as key.path=value:\n         {again}")


def _command() -> str:
    """How the user can call this command again from here."""
    return "opentinker" if shutil.which("opentinker") else f"{sys.executable} -m opentinker.cli"


def _next_name(name: str) -> str:
    stem, _, number = name.rpartition("-")
    return f"{stem}-{int(number) + 1}" if stem and number.isdigit() else f"{name}-2"


@app.command("config")
def config_reference() -> None:
    """Print every key of a configuration, with its default and meaning."""
    out.print(describe_config(), markup=False)


@envs_app.command("list")
def envs_list() -> None:
    """List our own environments and the families that others bring."""
    from opentinker.envs import env_ids

    for id in env_ids():
        out.print(id, markup=False)
    out.print("gymnasium/ID        any registered Gymnasium environment, e.g. gymnasium/FrozenLake-v1", markup=False)
    out.print("pettingzoo/FAMILY/ID  e.g. pettingzoo/classic/tictactoe_v3", markup=False)
    out.print("package.module:Class  your own", markup=False)


@envs_app.command("check")
def envs_check(
    id: Annotated[str, typer.Argument(help="An environment id.")],
    kwargs: Annotated[list[str] | None, typer.Argument(help="key=value for its constructor.")] = None,
) -> None:
    """Check an environment against the contract: API, seeds, text both ways. Exit code 1 if something is found."""
    from opentinker.envs import check_env, make_env

    findings = check_env(make_env(id, **_kwargs(kwargs or [])))
    for finding in findings:
        out.print(f"{finding.rule}: {finding.message}", markup=False)
    out.print(f"{id}: {'sound' if not findings else f'{len(findings)} finding(s)'}", markup=False)
    if findings:
        raise typer.Exit(1)


def _kwargs(items: list[str]) -> dict[str, Any]:
    from opentinker.config import parse_yaml

    result = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} is not of the form key=value")
        result[key] = parse_yaml(text, item)
    return result


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `opentinker` command. Exit codes: 0, 1 failure, 2 bad input, 128 + signal when stopped."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments
    # accept --debug anywhere: people add it at the end of the line that failed
    arguments = (["--debug"] if debug else []) + [item for item in arguments if item != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no run
    sys.path.insert(0, os.getcwd())  # package.module:Class of the folder one stands in, as `python -m` does
    try:
        app(args=arguments, prog_name="opentinker")
    except Interrupted as stop:
        out.print(str(stop), markup=False)
        raise SystemExit(128 + stop.signum) from None
    except (OpenTinkerError, OSError) as error:  # OSError: a full disk, a folder without rights, ...
        if debug:
            raise
        Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(f"error: {error}", markup=False)
        raise SystemExit(2 if isinstance(error, BAD_INPUT) else 1) from None


if __name__ == "__main__":
    main()
