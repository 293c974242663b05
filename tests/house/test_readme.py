"""The README's Python runs and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for named, text in fenced if named == language]


def test_the_ten_lines_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_blocks("python")[0], "README.md", "exec"), {})
    shown = [line.split() for line in _blocks("")[0].splitlines()]
    found = [line.split() for line in printed.getvalue().splitlines()]
    assert [step for step, _ in found] == [step for step, _ in shown]
    for (_, seen), (_, promised) in zip(found, shown, strict=True):
        assert float(seen) == pytest.approx(float(promised), abs=0.15)  # other CPUs draw other tokens
    assert float(found[-1][1]) > float(found[0][1])


def test_the_coordinator_plays_a_game():
    import asyncio

    from opentinker.coordinators import Table, play_episode
    from opentinker.envs import open_env
    from opentinker.testing import FunctionSeat

    scope: dict = {}
    exec(compile(_blocks("python")[1], "README.md", "exec"), scope)

    async def main():
        env = open_env("bandit", {"means": [0.0, 1.0]})
        table = Table(env, lambda agent: FunctionSeat(agent, lambda *_: "b"), episode_id="x", seed=1)
        return await play_episode(scope["Rounds"](), env, table)

    episode = asyncio.run(main())
    assert (episode.status.value, dict(episode.rewards)) == ("terminated", {"ann": 1.0, "bob": 1.0})


def test_the_yaml_is_a_configuration():
    from opentinker.config import load_config, parse_yaml

    assert set(load_config(parse_yaml(_blocks("yaml")[0])).policies) == {"first", "second"}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_what_it_links_to_is_there(target):
    assert (ROOT / target).exists()
