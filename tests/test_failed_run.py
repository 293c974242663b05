"""A run that its environments stop: what the command says and leaves, and how it goes on when they are cured."""

from __future__ import annotations

import json
import textwrap

import pytest
import yaml

from opentinker.cli import main
from opentinker.report.record import episode_from_json
from opentinker.types import EpisodeStatus

pytestmark = pytest.mark.slow  # verl

WORLD = '''
from pathlib import Path
from opentinker.testing import SlowEnv

class World(SlowEnv):
    """Good for as many games as its file says."""

    played = 0

    def __init__(self, file):
        super().__init__(0.0)
        self.file = Path(file)

    def work(self):
        if self._step:
            World.played += 1
            if World.played > int(self.file.read_text()):
                raise OSError("the licence has run out")
'''


def command(capsys, *arguments):
    """Exit code and both outputs of the command."""
    try:
        main(["train", *map(str, arguments)])
        code = 0
    except SystemExit as stop:
        code = stop.code
    seen = capsys.readouterr()
    return code, seen.out, seen.err


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "world_that_ends.py").write_text(textwrap.dedent(WORLD))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "games").write_text("11")  # two steps of four games and three of the third
    config = {
        "name": "ends",
        "env": {"id": "world_that_ends:World", "kwargs": {"file": str(tmp_path / "games")}},
        "coordinator": {"id": "solo"},
        "agents": {"agent": {"policy": "learner", "memory": "last"}},
        "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 2}}},
        "rollout": {"groups": 4, "max_failed_fraction": 0.25, "record_every": 100},
        "train": {"steps": 5, "checkpoint_every": 1, "optim": {"lr": 1e-4}},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def episodes(folder, step):
    lines = (folder / "episodes" / f"step-{step:06d}.jsonl").read_text().splitlines()
    return [episode_from_json(json.loads(line)) for line in lines]


def test_too_many_failures_stop_a_run_with_the_reason_and_it_goes_on_when_they_are_cured(run, capsys):
    code, out, err = command(capsys, "run.yaml")
    assert code == 1 and "next:" not in out
    # one in four was borne in step 3; in step 4 all of them failed
    assert "4 of 4 episodes failed, more than rollout.max_failed_fraction=0.25 allows" in err
    assert "the first: episode 000004/0000/00 of world_that_ends:World (seed " in err
    assert "OSError: the licence has run out" in err and "world_that_ends.py" in err and "in work" in err
    folder = run / "runs" / "ends"
    assert [row["step"] for row in rows(folder)] == [0, 1, 2, 3]
    assert [row["rollout/all/failed"] for row in rows(folder)[1:]] == [0, 0, 1]
    (borne,) = episodes(folder, 3)
    failed = episodes(folder, 4)
    assert len(failed) == 4 and {episode.status for episode in [borne, *failed]} == {EpisodeStatus.FAILED}
    assert all("Traceback" in episode.error and "has run out" in episode.error for episode in failed)

    code, _, err = command(capsys, "run.yaml", "--resume")  # not cured: the same again, and nothing is lost
    assert code == 1 and "failed" in err

    (run / "games").write_text("1000000")
    code, _, err = command(capsys, "run.yaml", "--resume")
    assert code == 0, err
    assert [row["step"] for row in rows(folder)] == [0, 1, 2, 3, 4, 5]
    assert [row["rollout/all/failed"] for row in rows(folder)[1:]] == [0, 0, 1, 0, 0]
    assert not [e for step in (4, 5) for e in _recorded(folder, step) if e.status is EpisodeStatus.FAILED]
    assert len(episodes(folder, 3)) == 1  # what was borne stays on record


def _recorded(folder, step):
    return episodes(folder, step) if (folder / "episodes" / f"step-{step:06d}.jsonl").exists() else []
