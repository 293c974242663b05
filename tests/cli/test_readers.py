"""`train` whose reader goes away, or whose log finds no room: a process of its own, with streams of the system."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from opentinker.runs.status import read_status

CONFIG = {
    "name": "run",
    "env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last"}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "rollout": {"groups": 2, "group_size": 4},
    "train": {"steps": 2, "checkpoint_every": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["| head -1", "| true", "> /dev/full", "> /dev/full 2>&1", "--quiet > /dev/full"])
def test_p5_a_run_that_nobody_reads_goes_on_to_its_end(tmp_path, streams):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    line = f"set -o pipefail; {sys.executable} -m opentinker.cli train config.yaml {streams}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("nobody reads the progress any more, the run goes on") == (0 if "2>&1" in streams else 1)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert read_status(tmp_path / "runs" / "run").state == "finished"
