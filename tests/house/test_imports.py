"""Imports run one way, and heavy libraries stay in their rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = (
    ("types", "errors", "answers", "registry", "seeding", "collector"),
    ("envs",),
    ("coordinators",),
    (
        *("players", "experts", "perfect", "human", "seats"),
        *("formats", "encoding", "render", "dialogue", "sampling", "credit", "samples"),
    ),
    ("cast", "pool", "rollout", "runs"),
    ("training",),
    ("league",),
    ("report",),
    ("saved", "signals", "evaluate", "play", "result", "run"),
    ("service", "cli", "__main__"),
    ("testing",),
)
"""A part imports its own layer and those above it in this list."""

ASIDE = ("config", "scheduler")
"""They import the first layer and themselves; `rollout` and what follows may import them."""

ROOMS = {"verl": ("training",), "ray": ("training", "scheduler")}
"""Who may import a library."""

CLOSED = {"torch": ("envs", "coordinators"), "transformers": ("envs", "coordinators")}
"""Who may not."""

LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}


def sources() -> Iterator[tuple[str, str]]:
    """(module, text) of the whole package; links are walked by their targets, since rglob does not follow them."""
    for folder in ("opentinker", "envs", "coordinators"):
        package = "opentinker" if folder == "opentinker" else f"opentinker.{folder}"
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((package, *(part for part in parts if part != "__init__"))), path.read_text(encoding="utf-8")


def imported(text: str) -> Iterator[str]:
    """Every module or `module.name` that a text imports, inside functions and `TYPE_CHECKING` too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(importer: str, target: str) -> bool:
    """Whether one part of the package may import another."""
    if importer == target or target in LAYERS[0]:
        return True
    if importer in ASIDE:
        return False
    if target in ASIDE:
        return LAYER[importer] >= LAYER["rollout"]
    return LAYER[importer] >= LAYER[target]


def faults(module: str, text: str) -> list[str]:
    """What a module imports and should not."""
    part = module.split(".")[1]
    if part not in LAYER and part not in ASIDE:
        return [f"{module} has no place in LAYERS: give it one here and in the design"]
    found = []
    for name in imported(text):
        library, *rest = name.split(".")
        if library == "opentinker":
            target = rest[0] if rest else ""
            if target != "__version__" and (target not in LAYER and target not in ASIDE or not allowed(part, target)):
                found.append(f"{module} imports {name}")
        elif part not in ROOMS.get(library, (part,)) or part in CLOSED.get(library, ()):
            found.append(f"{module} imports {name}")
    return found


def test_imports_run_one_way():
    assert [fault for module, text in sources() if "." in module for fault in faults(module, text)] == []


def test_the_walk_sees_the_linked_folders():
    modules = {module for module, _ in sources()}
    assert {"opentinker.types", "opentinker.envs", "opentinker.coordinators"} <= modules


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("opentinker.types", "from opentinker.errors import ConfigError"),
        ("opentinker.coordinators.base", "from opentinker.envs.handle import EnvHandle"),
        ("opentinker.rollout", "import opentinker.config"),
        ("opentinker.training.host", "import verl, ray, torch"),
        ("opentinker.runs.folder", "from opentinker import __version__"),
        ("opentinker.scheduler.client", "from opentinker.scheduler.state import State"),
    ],
)
def test_right_directions_pass(module, text):
    assert faults(module, text) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("opentinker.envs.text", "from opentinker.coordinators import Table"),
        ("opentinker.envs.text", "import torch.nn"),
        ("opentinker.coordinators.base", "def f():\n    from opentinker.seats import PolicySeat"),
        ("opentinker.seats", "from opentinker import rollout"),
        ("opentinker.seats", "from opentinker import make_env"),
        ("opentinker.credit.grpo", "from opentinker.config import TrainConfig"),
        ("opentinker.config", "import opentinker.credit"),
        ("opentinker.scheduler.decide", "from opentinker.run import train"),
        ("opentinker.run", "from verl.workers import engine"),
        ("opentinker.samples", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from opentinker.run import train"),
    ],
)
def test_wrong_directions_are_named(module, text):
    assert len(faults(module, text)) == 1
    assert faults(module, text)[0].startswith(f"{module} imports ")


def test_a_part_without_a_layer_is_named():
    assert faults("opentinker.helpers", "import os")[0].startswith("opentinker.helpers has no place")
