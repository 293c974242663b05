"""The public names: pinned, loadable, and light to import."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import opentinker

ROOT = Path(__file__).parents[2]

PUBLIC = [
    "Completion",
    "ConfigError",
    "Coordinator",
    "Episode",
    "Group",
    "InvalidAction",
    "LocalHost",
    "OpenTinkerError",
    "PolicyRef",
    "Query",
    "Sample",
    "SamplingParams",
    "Seat",
    "SeatOut",
    "Table",
    "TextAECEnv",
    "TextCodec",
    "TextEnv",
    "TextParallelEnv",
    "TextSpace",
    "Turn",
    "__version__",
    "check_env",
    "evaluate_run",
    "load_config",
    "make_credit",
    "make_env",
    "read_run",
    "register_env",
    "rollout",
    "to_samples",
    "train",
]


def python(code: str) -> str:
    """What a fresh interpreter prints; warnings are errors in it."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_is_pinned():
    assert sorted(opentinker.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_loads(name):
    assert getattr(opentinker, name) is not None
    assert not inspect.ismodule(getattr(opentinker, name))
    assert name in dir(opentinker)


def test_type_checkers_see_what_the_interpreter_loads():
    tree = ast.parse(Path(opentinker.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == opentinker._LAZY


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'rolout'"):
        _ = opentinker.rolout


def test_importing_the_package_is_light():
    loaded = json.loads(python("import opentinker, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert "opentinker.types" in loaded
    heavy = {"torch", "ray", "verl", "transformers", "peft", "matplotlib", "pydantic", "gymnasium", "pettingzoo", "numpy"}
    assert heavy & set(loaded) == set()


HEAVY = {"torch", "transformers", "verl", "ray", "peft", "matplotlib", "scipy", "pandas", "pygame"}


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("--help", HEAVY | {"numpy", "gymnasium", "pettingzoo", "pydantic", "yaml", "opentinker.config"}),
        ("config", HEAVY | {"numpy", "gymnasium", "pettingzoo", "opentinker.run"}),
        ("envs list", HEAVY | {"yaml", "opentinker.config", "opentinker.run"}),
        ("runs .", HEAVY | {"numpy", "gymnasium", "pettingzoo", "opentinker.run"}),
        ("train configs/bandit.yaml train.stps=1", HEAVY),
    ],
)
def test_commands_load_no_library_that_they_do_not_need(command, unneeded):
    code = f"""
import contextlib, io, json, sys
from opentinker.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main({command.split()!r})
print(json.dumps(sorted(sys.modules)))
"""
    assert set(json.loads(python(code).splitlines()[-1])) & unneeded == set()


@pytest.mark.parametrize("name", ["envs", "coordinators"])
def test_environments_and_coordinators_need_no_torch(name):
    code = f"import opentinker.{name}, sys; print([m for m in ('torch', 'ray', 'verl', 'transformers') if m in sys.modules])"
    assert python(code) == "[]"


@pytest.mark.parametrize("before", ["", "import opentinker.rollout; ", "import opentinker.run; "])
def test_rollout_is_the_function_whatever_was_imported_before(before):
    code = "import opentinker; from opentinker import rollout; print(rollout.__name__, callable(opentinker.rollout))"
    assert python(before + code) == "rollout True"


@pytest.mark.parametrize("name", ["envs", "coordinators"])
def test_the_real_folders_refuse_to_be_imported_by_their_bare_names(name):
    code = f"""
try:
    import {name}
except ImportError as error:
    print(error)
"""
    assert f"opentinker.{name}" in python(code)
