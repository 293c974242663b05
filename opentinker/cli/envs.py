"""`opentinker envs list` and `opentinker envs check`."""

from __future__ import annotations

from typing import Annotated

import typer

from opentinker.cli.app import app, key_values, out
from opentinker.cli.stopping import told_when_stopped

envs_app = typer.Typer(help="Environments: what there is, and whether yours is sound.", no_args_is_help=True)
app.add_typer(envs_app, name="envs")


@envs_app.command("list")
@told_when_stopped()
def envs_list() -> None:
    """List our own environments and the families that others bring."""
    from opentinker.envs import env_ids

    for id in env_ids():
        out.print(id, markup=False)
    out.print("gymnasium/ID        any registered Gymnasium environment, e.g. gymnasium/FrozenLake-v1", markup=False)
    out.print("pettingzoo/FAMILY/ID  e.g. pettingzoo/classic/tictactoe_v3", markup=False)
    out.print("mpe/ID              particle worlds, e.g. mpe/simple_spread_v3 (extra: mpe)", markup=False)
    out.print("openspiel/ID        OpenSpiel's games, e.g. openspiel/leduc_poker (extra: openspiel)", markup=False)
    out.print("reasoning/ID        reasoning-gym's tasks, e.g. reasoning/chain_sum (extra: reasoning)", markup=False)
    out.print("textarena/ID        TextArena's games, e.g. textarena/TicTacToe-v0 (extra: textarena)", markup=False)
    out.print("package.module:Class  your own", markup=False)


@envs_app.command("check")
@told_when_stopped()
def envs_check(
    id: Annotated[str, typer.Argument(help="An environment id.")],
    kwargs: Annotated[list[str] | None, typer.Argument(help="key=value for its constructor.")] = None,
    render: Annotated[str | None, typer.Option(help="package.module:function, observation to text.")] = None,
    parse: Annotated[str | None, typer.Option(help="package.module:function, text to action.")] = None,
    slowest: Annotated[float | None, typer.Option(metavar="SECONDS", help="A step that takes longer is a finding.")] = None,
) -> None:
    """Check an environment against the contract: API, seeds, text both ways. Exit code 1 if something is found."""
    from opentinker.envs import check_env

    findings = check_env(id, kwargs=key_values(kwargs or []), render=render, parse=parse, slowest=slowest)
    for finding in findings:
        out.print(f"{finding.rule}: {finding.message}", markup=False)
    out.print(f"{id}: {'sound' if not findings else f'{len(findings)} finding(s)'}", markup=False)
    if findings:
        raise typer.Exit(1)
