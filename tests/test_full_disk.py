"""A disk that is really full: a small file system in memory, which only root may mount."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from opentinker.cli import main
from opentinker.errors import CheckpointError, ConfigError, WriteFailed
from opentinker.run import Silent, train
from opentinker.runs.status import read_status

CONFIG = {
    "name": "run",
    "seed": 5,
    "env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last"}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "rollout": {"groups": 2, "group_size": 4, "record_every": 1},
    "train": {"steps": 4, "checkpoint_every": 2, "optim": {"lr": 1e-3}, "ema": 0.9},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return figures(train(CONFIG, f"runs_dir={tmp_path_factory.mktemp('whole')}").rows)


def figures(rows):
    return [json.dumps({key: row[key] for key in sorted(row) if "time" not in key}) for row in rows]


@pytest.fixture
def disk(tmp_path):
    """Mounts a file system of a few MB; called again, it grows."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(size):
        nonlocal mounted
        options = f"{'remount,' if mounted else ''}size={size}k"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("only root may mount a file system")
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", place], check=False)


class Fill(Silent):
    """Leaves no byte free once a step is done."""

    def __init__(self, place, at, spare=0):
        self.ballast, self.at, self.spare = place / "ballast", at, spare

    def step(self, row):
        if row["step"] == self.at:
            free = os.statvfs(self.ballast.parent)
            with self.ballast.open("wb") as file:
                file.write(b"x" * (free.f_bavail * free.f_frsize - self.spare))


def go_on(place, whole):
    result = train(CONFIG, f"runs_dir={place}", resume=True)
    assert figures(result.rows) == whole
    assert read_status(result.folder).state == "finished"


def test_p5_a_full_disk_during_a_checkpoint_keeps_the_last_good_one(disk, whole):
    place = disk(2200)  # room for one checkpoint of two
    with pytest.raises(CheckpointError) as caught:
        train(CONFIG, f"runs_dir={place}")
    assert re.search(
        rf"cannot save step 2 in .*step-000002: .*[Nn]o space left .*\(file system {place}: [0-9.]+ MB free, the last "
        r"checkpoint took 0\.[0-9] MB\); the last good checkpoint is kept$",
        str(caught.value),
    )
    assert [path.name for path in (place / "run" / "checkpoints").iterdir()] == ["step-000000"]
    assert read_status(place / "run").state == "failed"
    with pytest.raises(CheckpointError, match="cannot save step 2"):  # still full: the same again
        train(CONFIG, f"runs_dir={place}", resume=True)
    disk(20_000)
    go_on(place, whole)


@pytest.mark.slow
@pytest.mark.parametrize("spare, file", [(0, "episodes/step-000002"), (1 << 20, "checkpoints/step-000002")])
def test_p5_a_disk_that_fills_up_between_two_steps_stops_the_run(disk, whole, spare, file):
    place = disk(12_000)
    with pytest.raises((WriteFailed, CheckpointError), match=file):
        train(CONFIG, f"runs_dir={place}", progress=Fill(place, 1, spare))
    (place / "ballast").unlink()
    go_on(place, whole)


@pytest.mark.slow
def test_p5_figures_that_find_no_room_stop_the_run(disk, whole):
    place = disk(12_000)
    long = {**CONFIG, "rollout": {**CONFIG["rollout"], "record": 0}, "train": {**CONFIG["train"], "steps": 400}}
    with pytest.raises(WriteFailed, match=r"cannot write .*metrics\.jsonl: No space left .*what the last checkpoint holds"):
        train(long, "train.checkpoint_every=1000", f"runs_dir={place}", progress=Fill(place, 1))
    with pytest.raises((WriteFailed, ConfigError), match="No space left"):
        train(CONFIG, f"runs_dir={place}", resume=True)
    (place / "ballast").unlink()
    go_on(place, whole)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train({**CONFIG, "name": "done"}, f"runs_dir={tmp_path_factory.mktemp('finished')}").folder


def command(*arguments):
    try:
        main([str(item) for item in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("form", [["--form", "hf"], ["--ema"]])
def test_an_export_to_a_full_disk_is_one_short_line_and_leaves_nothing(disk, finished, capsys, form):
    place = disk(100)
    assert command("export", finished, place / "out", *form) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(
        rf"error: cannot write {place}/out: No space left on device \(file system {place}: [0-9.]+ MB free\)\n", said
    )
    assert not list(place.iterdir())


def test_what_is_shown_or_measured_on_a_full_disk_leaves_no_halves(disk, finished, capsys, caplog):
    place = disk(1200)
    shutil.copytree(finished, place / "done", ignore=shutil.ignore_patterns("report", "step-000002", "step-000004"))
    free = os.statvfs(place)
    (place / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    before = sorted(place.rglob("*"))
    assert command("show", place / "done", "--out", place) == 1
    assert f"error: cannot write {place}/index.html: No space left on device" in capsys.readouterr().err
    assert command("eval", place / "done", "--games", "1", "--out", place / "out.json") == 1
    assert f"error: cannot write {place}/out.json: No space left on device" in capsys.readouterr().err
    assert f"cannot write {place}/done/evaluations/step-" in caplog.text
    assert [path for path in sorted(place.rglob("*")) if path not in before and path.name != "evaluations"] == []
