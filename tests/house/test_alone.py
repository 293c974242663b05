"""Tests marked `alone` get the machine to themselves, also when two processes share the work."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import os, time, pytest

def stay(name):
    with open("spans", "a") as spans:
        start = time.time()
        time.sleep(0.4)
        spans.write(f"{name} {os.getpid()} {start} {time.time()}\\n")

@pytest.mark.parametrize("number", range(4))
def test_together(number):
    stay("together")

@pytest.mark.alone
def test_alone():
    stay("alone")

@pytest.mark.parametrize("number", range(4))
def test_later(number):
    stay("together")
"""


def overlap(one: list[str], other: list[str]) -> bool:
    return float(one[2]) < float(other[3]) and float(other[2]) < float(one[3])


def test_nothing_runs_beside_a_test_marked_alone(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['alone: by itself']\n")
    shutil.copy2(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_spans.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "load", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    spans = [line.split() for line in (tmp_path / "spans").read_text().splitlines()]
    (alone,) = (span for span in spans if span[0] == "alone")
    others = [span for span in spans if span[0] != "alone"]
    assert len({span[1] for span in spans}) == 2
    assert any(overlap(one, other) for one in others for other in others if one is not other), "nothing ran side by side"
    assert not any(overlap(alone, other) for other in others)
