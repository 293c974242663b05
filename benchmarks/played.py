"""Every environment that is installed, played to its end by text players in all seats; and what is refused, and why.

    python benchmarks/played.py --markdown > docs/environments_played.md

Ids may be given, to play only those. It takes minutes, most of them TextArena's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import groupby

from opentinker.envs import env_ids
from opentinker.errors import MissingExtra
from opentinker.testing import played as plain
from opentinker.testing import played_openspiel, played_reasoning, played_textarena
from opentinker.testing.played import Played

GAMES = 2
OWN = "opentinker"
FAMILIES = {
    OWN: plain.played,
    "gymnasium": plain.played,
    "pettingzoo": plain.played,
    "mpe": plain.played,
    "textarena": played_textarena.played,
    "openspiel": played_openspiel.played,
    "reasoning": played_reasoning.played,
}
QUICK = (
    "kuhn_poker",
    "gymnasium/FrozenLake-v1",
    "gymnasium/CartPole-v1",
    "pettingzoo/classic/tictactoe_v3",
    "pettingzoo/classic/rps_v2",
    "mpe/simple_v3",
    "textarena/TicTacToe-v0",
    "openspiel/kuhn_poker",
    "reasoning/chain_sum",
)
HEAD = """# What was played

Written by `python benchmarks/played.py --markdown`: each environment, unchanged, from its first observation to its end, in
text. In every seat sits a player who draws among the legal actions and says them as the codec writes them; in TextArena,
whose games take any text, one who mostly repeats a move that the text shows. *Games* is how many were played, one after the
other on one object, with the seeds 0, 1, …; *turns*, how many decisions they took together. Games that may go on for as long
as nobody wins are cut; those that are made of other games are given small ones (`opentinker/testing/played_openspiel.py`).
Environments that cannot be played stand with the reason that OpenTinker gives whoever asks for one.
"""


def main() -> None:
    """Plays and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="play only these")
    parser.add_argument("--quick", action="store_true", help="one or two ids of each family")
    parser.add_argument("--markdown", action="store_true", help="print the page of the documentation")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # advice of the libraries to their own users
    with nothing_printed():
        rows = list(play(arguments.ids or (QUICK if arguments.quick else None)))
    if arguments.markdown:
        print(page(rows))
        return
    for row in rows:
        told = row.reason or f"{row.kind}, {row.agents} agents, {row.games} games, {row.turns} turns"
        print(f"{row.id:50} {told}")
    print(json.dumps({name: counts(own) for name, own in by_family(rows)}))


@contextlib.contextmanager
def nothing_printed() -> Iterator[None]:
    """What games print, in whatever language they are written, goes to standard error: the page is on standard output."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)


def play(ids: Iterable[str] | None) -> Iterator[Played]:
    """The rows of the ids, family by family; None: of everything there is."""
    for name, played in FAMILIES.items():
        known = all_ids(name) if ids is None else [id for id in ids if family(id) == name]
        for row in played(known, games=GAMES):
            print(row.id, row.reason or "played", file=sys.stderr)
            yield row


def all_ids(name: str) -> list[str]:
    """The ids of a family; none where its package is missing."""
    try:
        found = env_ids(None if name == OWN else name)
    except MissingExtra:
        found = []
    if not found:
        print(f"{name}: not installed, left out", file=sys.stderr)
    return found


def family(id: str) -> str:
    """Whose environment it is."""
    return id.partition("/")[0] if "/" in id else OWN


def by_family(rows: Iterable[Played]) -> Iterator[tuple[str, list[Played]]]:
    """The rows of each family."""
    for name, own in groupby(rows, lambda row: family(row.id)):
        yield name, list(own)


def counts(rows: Iterable[Played]) -> dict[str, int]:
    """How many were played and refused."""
    refused = [bool(row.reason) for row in rows]
    return {"played": refused.count(False), "refused": refused.count(True)}


def page(rows: Iterable[Played]) -> str:
    """The page of the documentation."""
    parts, summary = [], ["| family | played | refused |", "|---|---|---|"]
    for name, own in by_family(rows):
        told = counts(own)
        summary.append(f"| [{name}](#{name}) | {told['played']} | {told['refused']} |")
        parts += [f"## {name}", *tables(own)]
    return "\n\n".join([HEAD.strip(), "\n".join(summary), *parts])


def tables(rows: Iterable[Played]) -> Iterator[str]:
    """What was played, and, by reason, what was not."""
    played = [row for row in rows if not row.reason]
    if played:
        yield "\n".join(["| id | kind | agents | games | turns |", "|---|---|---|---|---|", *map(line, played)])
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            reasons.setdefault(general(row), []).append(f"`{row.id}`")
    if reasons:
        refused = [f"| {reason} | {', '.join(ids)} |" for reason, ids in reasons.items()]
        yield "\n".join(["| refused, because | id |", "|---|---|", *refused])


def line(row: Played) -> str:
    """A row of what was played."""
    games = f"{row.games}, {row.cut} cut" if row.cut else f"{row.games}"
    return f"| `{row.id}` | {row.kind} | {row.agents} | {games} | {row.turns} |"


def general(row: Played) -> str:
    """Why it was refused, without the environment's own name, so that equal reasons stand together."""
    names = (row.id, row.id.partition("/")[2], row.id.rpartition("/")[2])
    reason = row.reason
    for name in filter(None, names):
        reason = reason.replace(name, "…")
    return reason.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    main()
