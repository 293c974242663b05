"""Every benchmark runs, and its last line is one JSON object."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SLOW = {"learning", "memory", "sampling", "startup", "training_step"}
"""They train or draw a lot, which takes half a minute and more even in short."""


PATHS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
]


@pytest.mark.parametrize("path", PATHS)
def test_the_quick_run_ends_in_one_json_object(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path, "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(figures, dict) and figures
