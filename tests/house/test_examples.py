"""The examples run one after the other, in any folder, and print what they promise."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# one process, since torch and verl take seconds to import; each example is `__main__` in it, as on the command line
ALL = """
import contextlib, io, json, runpy, sys
import opentinker.run
sys.path[0] = sys.argv[1]
printed = {}
plot = opentinker.run.plot_curves
def plot_curves(*arguments):
    printed["loaded"] = "\\n".join(sys.modules)
    return plot(*arguments)
opentinker.run.plot_curves = plot_curves
for name in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(f"{sys.argv[1]}/{name}.py", run_name="__main__")
    printed[name] = out.getvalue()
print(json.dumps(printed))
"""


def python(folder, *command):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-W", "error::DeprecationWarning:__main__", *map(str, command)]
    done = subprocess.run(arguments, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each example prints when they run in their order in an empty folder."""
    names = [path.stem for path in EXAMPLES]
    return json.loads(python(tmp_path_factory.mktemp("elsewhere"), "-c", ALL, ROOT / "examples", *names).splitlines()[-1])


def test_they_are_numbered_and_each_is_one_screen_that_begins_with_what_it_is():
    assert [path.stem for path in EXAMPLES] == [
        "01_environment",
        "02_coordinator",
        "03_train",
        "04_read_run",
        "05_own_loop",
    ]
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 45, path
        assert ast.get_docstring(ast.parse(text)), path


def test_an_example_runs_by_its_path_from_any_folder(tmp_path):
    assert python(tmp_path, ROOT / "examples" / "01_environment.py").splitlines() == [
        "first light: red",
        "going pays: 0.0",
        "check: sound",
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_coordinator_is_played_without_a_model(printed):
    lines = printed["02_coordinator"].splitlines()
    assert lines[0] == "ann  saw green and said g: 1"
    assert lines[-1] == "terminated {'ann': 3.0, 'bob': 3.0, 'cleo': 3.0}"  # cleo is outvoted


def test_training_learns_the_lights(printed):
    means = [float(mean) for mean in re.findall(r"step +\d+: ([\d.]+) of 3", printed["03_train"])]
    assert means[0] < 2.2 and means[-1] > 2.7  # voting by chance: 1.5; other CPUs draw other tokens


def test_the_run_is_read_back(printed):
    text = printed["04_read_run"]
    assert "16 episodes were kept" in text  # eight of the first step, eight of the last
    assert text.count(" saw ") == 9  # three lights, three voters
    assert "step-000030/policies/voter/weights" in text


def test_a_loop_of_ones_own_learns_too(printed):
    found = re.findall(r"step +(\d+): ([\d.]+) of 3 lights, entropy ([\d.]+)", printed["05_own_loop"])
    assert [int(step) for step, *_ in found] == [5, 10, 15, 20]
    assert float(found[-1][1]) > 2.7
    assert float(found[-1][2]) < float(found[0][2])


def test_training_loads_no_library_that_it_does_not_need(printed):
    loaded = set(printed["loaded"].splitlines())
    assert {"torch", "verl", "opentinker.training.host"} <= loaded
    unneeded = {"matplotlib", "pygame", "tensorboard", "wandb", "pyspiel", "textarena", "reasoning_gym", "vllm", "IPython"}
    unneeded |= {"verl.trainer.main_ppo", "torch.utils.tensorboard", "opentinker.report.page", "opentinker.training.loggers"}
    unneeded |= {"opentinker.training.export", "opentinker.play", "opentinker.human"}
    assert unneeded & loaded == set()
