"""Every code block of the documentation is checked, and every file it names is there.

| block | what is done with it |
|---|---|
| python | executed, page by page in one scope, in an empty folder where the README's first block has left a run |
| yaml | loaded as a configuration; a part of one is put into a whole one first |
| bash | quick commands are executed, all others parsed: options, arguments, files, configurations with their overrides |
| no language | what the block before it prints |

A page that shows a block which cannot be checked so says why in a comment before it: `<!-- not run: ... -->`.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from opentinker.cli.app import app
from opentinker.config import load_config, parse_yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
LANGUAGES = {"python", "yaml", "bash", ""}

QUICK = ("opentinker config", "opentinker envs list", "opentinker envs check", "opentinker --help")
"""Commands that are executed here; those that train or need a run are run by tests of their own."""

BASE = {
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {"*": {"policy": "learner"}},
    "policies": {"learner": {"model": "tiny"}},
}


def blocks(page, language):
    """The fenced blocks of a page in a language, those left out by a comment excepted."""
    found = re.findall(r"^(<!-- not run: .+? -->\n)?```(\w*)\n(.*?)^```$", TEXTS[page], re.DOTALL | re.MULTILINE)
    return [text for excuse, named, text in found if named == language and not excuse]


def numbered(language):
    """All blocks in a language as parameters."""
    return [
        pytest.param(page, text, id=f"{page}-{number}")
        for page in TEXTS
        for number, text in enumerate(blocks(page, language), start=1)
    ]


def commands():
    """Every line of the bash blocks, and every indented line that is a command."""
    for page in TEXTS:
        lines = [line for text in blocks(page, "bash") for line in text.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"^    ((?:python|opentinker|scripts/).*)$", TEXTS[page], re.MULTILINE)
        for line in lines:
            if shlex.split(line, comments=True):
                yield pytest.param(line, id=f"{page}: {line.split('#')[0].strip()}")


def test_blocks_are_in_languages_that_are_checked():
    fence = re.compile(r"^```(\w*)\n.*?^```$", re.DOTALL | re.MULTILINE)
    assert {named for text in TEXTS.values() for named in fence.findall(text)} <= LANGUAGES


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder where the README's first block ran, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("docs"), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(blocks("README.md", "python")[0], "README.md", "exec"), {})
    return folder, printed.getvalue()


def test_the_ten_lines_print_what_is_shown(trained):
    shown = [line.split() for line in blocks("README.md", "")[0].splitlines()]
    found = [line.split() for line in trained[1].splitlines()]
    assert [step for step, _ in found] == [step for step, _ in shown]
    for (_, seen), (_, promised) in zip(found, shown, strict=True):
        assert float(seen) == pytest.approx(float(promised), abs=0.15)  # other CPUs draw other tokens
    assert float(found[-1][1]) > float(found[0][1])


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "python")])
def test_python_blocks_run(page, trained):
    scope = {"__name__": "__main__"}
    with contextlib.chdir(trained[0]), contextlib.redirect_stdout(io.StringIO()):
        for number, text in enumerate(blocks(page, "python")):
            if page != "README.md" or number:  # that one has run
                exec(compile(text, f"{page}, block {number + 1}", "exec"), scope)


def test_the_coordinator_of_the_readme_plays_a_game():
    from opentinker.testing import play_game

    scope = {}
    exec(compile(blocks("README.md", "python")[1], "README.md", "exec"), scope)
    episode = play_game("bandit", scope["Rounds"](), lambda *asked: "b", seed=1, means=[0.0, 1.0])
    assert (episode.status.value, dict(episode.rewards)) == ("terminated", {"ann": 1.0, "bob": 1.0})


def test_the_environment_of_the_docs_is_sound():
    from opentinker import check_env

    scope = {}
    exec(compile(blocks("docs/environments.md", "python")[0], "environments.md", "exec"), scope)
    env = scope["Guess"]()
    assert check_env(env) == []
    env.reset(seed=0)
    assert env.step(str(env.number)) == ("Right.", 1.0, True, False, {})


@pytest.mark.parametrize(("page", "text"), numbered("yaml"))
def test_yaml_blocks_are_configurations(page, text):
    given = parse_yaml(text)
    base = {key: value for key, value in BASE.items() if key not in given}
    if "agents" in given and "policies" not in given:
        base["policies"] = {seat["policy"]: {"model": "tiny"} for seat in given["agents"].values() if "policy" in seat}
    if "policies" in given and "agents" not in given:
        base["agents"] = {f"agent_{name}": {"policy": name} for name in given["policies"]}
    assert load_config({**base, **given})


@pytest.mark.parametrize("line", list(commands()))
def test_commands_are_as_the_programs_take_them(line, tmp_path, monkeypatch):
    words = shlex.split(line, comments=True)
    while "=" in words[0]:  # an environment variable
        words.pop(0)
    program, *arguments = words
    if program == "opentinker":
        parse(arguments)
        if line.startswith(QUICK):
            monkeypatch.chdir(tmp_path)
            assert CliRunner().invoke(app, arguments).exit_code == 0
    elif program == "python":
        path = ROOT / arguments[0]
        assert path.is_file(), arguments[0]
        known = path.read_text(encoding="utf-8")
        assert [word for word in arguments[1:] if word.startswith("--") and f'"{word}"' not in known] == []
        configs = [word for word in arguments[1:] if (ROOT / "configs" / f"{word}.yaml").is_file()]
        overrides = [word for word in arguments[1:] if "=" in word]
        for name in configs:
            load_config(ROOT / "configs" / f"{name}.yaml", overrides)
    else:
        assert (ROOT / program).is_file(), f"{program}: no such program; what checks this line?"


def parse(arguments):
    """Parses the arguments of `opentinker` as it does, and runs nothing."""
    command, rest = typer.main.get_command(app), list(arguments)
    while hasattr(command, "commands"):  # a group
        if rest[0] == "--help":
            return
        command = command.commands[rest.pop(0)]
    found = command.make_context("opentinker", rest).params
    if str(found.get("config", "")).endswith(".yaml"):
        load_config(ROOT / found["config"], found["overrides"] or [])


@pytest.mark.parametrize(
    "line",
    [
        "train configs/kuhn_selfplay.yaml --resum",
        "train configs/kuhn_selfplay.yaml train.step=1",
        "train configs/kuhn_selfpaly.yaml",
        "evaluate short",
        "envs lst",
        "eval short --games 0",
        "export short",
    ],
)
def test_commands_that_would_fail_are_found(line):
    with pytest.raises(Exception):  # noqa: B017  # of several kinds; what counts is that none passes
        parse(line.split())


RUN_ALL = """
import io, json, shlex, sys
from opentinker.cli import main
ends = {}
for line in sys.stdin.read().splitlines():
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "train":
        words += ["train.steps=3", "warm_start.steps=2", "rollout.groups=8", "evaluate.every=3"]
    if words[0] == "eval":
        words += ["--games", "4"]
    sys.stdin = io.StringIO("p\\n" * 5)  # what the human says
    try:
        main(words)
        ends[line] = 0
    except SystemExit as end:
        ends[line] = end.code
print(json.dumps(ends))
"""


@pytest.mark.slow
def test_the_commands_of_the_readme_run_one_after_the_other(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (block,) = (text for text in blocks("README.md", "bash") if "opentinker" in text)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN_ALL]
    done = subprocess.run(command, input=block, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert len(ends) == len(block.splitlines())
    assert {line: end for line, end in ends.items() if end not in (0, None)} == {}, done.stdout + done.stderr
    assert (tmp_path / "exported" / "model.safetensors").is_file()


LINKS = [(page, link) for page, text in TEXTS.items() for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]


@pytest.mark.parametrize(("page", "link"), sorted(set(LINKS)))
def test_links_lead_somewhere(page, link):
    assert ((ROOT / page).parent / link).exists()


FOLDERS = "opentinker|envs|coordinators|configs|benchmarks|examples|tests|scripts|docs"
NAMED = [(page, name) for page, text in TEXTS.items() for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text)]


@pytest.mark.parametrize(("page", "name"), sorted(set(NAMED)))
def test_files_that_are_named_are_there(page, name):
    assert (ROOT / name).exists()
