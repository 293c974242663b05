"""The page of what was played holds what its command prints; and how that is put together."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opentinker.testing.played import Played, play_id, played

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments_played.md").read_text(encoding="utf-8")
PLAYED = ("kuhn_poker", "gymnasium/FrozenLake-v1", "pettingzoo/classic/tictactoe_v3", "pettingzoo/classic/rps_v2")
EXTRAS = {
    "mpe/simple_v3": "mpe2",
    "textarena/TicTacToe-v0": "textarena",
    "openspiel/kuhn_poker": "pyspiel",
    "reasoning/chain_sum": "reasoning_gym",
}
REFUSED = ("gymnasium/Humanoid-v5", "pettingzoo/atari/pong_v3")


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("played_program", ROOT / "benchmarks" / "played.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_holds_what_the_command_prints():
    """A few ids of each kind, played again: their rows are those of the page, letter by letter."""
    ids = [*PLAYED, *(id for id, package in EXTRAS.items() if importlib.util.find_spec(package))]
    printed = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "played.py", "--markdown", *ids, *REFUSED],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tables = [line for line in printed.splitlines() if line.startswith("| ")]
    on_page = PAGE.splitlines()
    for id in ids:
        (row,) = [line for line in tables if f"`{id}`" in line]
        assert row in on_page
    for id in REFUSED:
        (row,) = [line for line in tables if f"`{id}`" in line]
        reason = row.split(" | ")[0]
        assert [line for line in on_page if line.startswith(f"{reason} | ") and f"`{id}`" in line]
    for head in ("| id | kind | agents | games | turns |", "| refused, because | id |", "| family | played | refused |"):
        assert head in tables and head in on_page
    assert printed.split("\n\n")[:2] == PAGE.split("\n\n")[:2]  # the title and what it says


def test_the_page_counts_its_own_rows():
    summary, *sections = PAGE.split("\n## ")
    for section in sections:
        name, *lines = section.splitlines()
        played = sum(line.startswith("| `") for line in lines)
        refused = sum(line.count("`, `") + 1 for line in lines if line.endswith("` |"))
        assert f"| [{name}](#{name}) | {played} | {refused} |" in summary


def test_a_random_player_plays_to_the_end():
    assert play_id("bandit", games=3) == Played("bandit", "solo", 1, 3, 3)
    assert play_id("matrix_game", games=2, kwargs={"rounds": 3}) == Played("matrix_game", "parallel", 2, 2, 12)
    assert play_id("opentinker.testing.envs:SlowEnv", games=1, kwargs={"seconds": 0, "steps": 9}).turns == 9


def test_a_game_without_end_is_cut():
    endless = {"seconds": 0, "steps": 10**9}
    row = play_id("opentinker.testing.envs:SlowEnv", games=2, kwargs=endless, max_turns=5)
    assert (row.games, row.turns, row.cut, row.reason) == (2, 10, 2, "")


def test_what_is_not_played_says_why():
    raising = "opentinker.testing.envs:RaisingEnv"
    assert play_id(raising, games=2).games == 0
    assert play_id(raising, games=2).reason.endswith("the world broke")
    (row,) = played(["gymnasium/NoSuch-v0"])
    assert (row.kind, row.games) == ("", 0) and row.reason.startswith("unknown environment 'gymnasium/NoSuch-v0'")


def test_equal_reasons_stand_together(program):
    rows = [
        Played("a/x", "solo", 1, 2, 7),
        Played("a/y", "", 0, 0, 0, "a/y needs wood"),
        Played("a/z", "", 0, 0, 0, "a/z needs wood"),
        Played("w", "aec", 2, 3, 9, cut=1),
    ]
    assert program.page(rows).split("\n\n")[2:] == [
        "| family | played | refused |\n|---|---|---|\n| [a](#a) | 1 | 2 |\n| [opentinker](#opentinker) | 1 | 0 |",
        "## a",
        "| id | kind | agents | games | turns |\n|---|---|---|---|---|\n| `a/x` | solo | 1 | 2 | 7 |",
        "| refused, because | id |\n|---|---|\n| … needs wood | `a/y`, `a/z` |",
        "## opentinker",
        "| id | kind | agents | games | turns |\n|---|---|---|---|---|\n| `w` | aec | 2 | 3, 1 cut | 9 |",
    ]
