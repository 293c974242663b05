from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.config import load_config
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.players import random_legal
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.runs.reading import RunRef, parse_run_ref
from opentinker.saved import Opponents, look_up, open_run, stamped
from opentinker.training import serve

saved = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "fixtures" / "saved.py")))


@pytest.fixture
def runs(tmp_path):
    saved.save_run(tmp_path / "kuhn", steps=(0, 5, 10))
    return tmp_path


def ref(runs: Path, text: str) -> RunRef:
    return parse_run_ref(text, runs)


def test_versions_name_checkpoints_and_weights(runs):
    for text, step, weights in (
        ("kuhn", 10, "latest"), ("kuhn@5", 5, "latest"), ("kuhn@ema", 10, "ema"), ("kuhn@5:ema", 5, "ema"),
    ):  # fmt: skip
        run = open_run(ref(runs, text))
        assert (run.step, run.weights) == (step, weights)
        label = "learner@ema" if weights == "ema" else "learner@latest"
        assert run.cast.seat("player_0", (), (0, 0)).label == label
        run.host.close()


def test_the_best_checkpoint_is_the_one_of_its_figure(runs):
    keep = {"ema": 0.9, "keep_best": {"figure": "eval/random/win_rate", "goal": "max"}}
    folder = saved.save_run(runs / "best", steps=(0, 5, 10), train=keep)
    rows = [{"step": 0}, {"step": 5, "eval/random/win_rate": 0.9}, {"step": 10, "eval/random/win_rate": 0.4}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert open_run(ref(runs, "best@best")).step == 5


def test_a_step_without_a_checkpoint_is_told_with_those_there_are(runs):
    with pytest.raises(ConfigError, match=r"no checkpoint of step 7; it has 0, 5, 10"):
        open_run(ref(runs, "kuhn@7"))
    saved.save_run(runs / "young", steps=())
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        open_run(ref(runs, "young"))


def deleting(monkeypatch, deletions: list[Path], added: Path | None = None) -> list[Path]:
    """Folders go away, one with each look, just before their weights are read; what was read is returned."""
    real, read = serve.state.read_state, []

    def vanish(folder, *arguments, **settings):
        if deletions:
            shutil.rmtree(deletions.pop(0))
            if added is not None and not deletions:
                saved.save_step(added, 15)
        read.append(folder.parents[1])
        return real(folder, *arguments, **settings)

    monkeypatch.setattr(serve.state, "read_state", vanish)
    return read


def test_a_checkpoint_that_goes_away_while_it_is_read_is_looked_up_anew(runs, monkeypatch):
    """keep_last deletes step 10 when step 15 is there."""
    read = deleting(monkeypatch, [runs / "kuhn" / "checkpoints" / "step-000010"], added=runs / "kuhn")
    assert open_run(ref(runs, "kuhn")).step == 15
    assert [folder.name for folder in read] == ["step-000010", "step-000015"]


def test_a_named_checkpoint_that_goes_away_is_told(runs, monkeypatch):
    deleting(monkeypatch, [runs / "kuhn" / "checkpoints" / "step-000005"])
    with pytest.raises(ConfigError, match=r"no checkpoint of step 5; it has 0, 10"):
        open_run(ref(runs, "kuhn@5"))


def test_a_torn_checkpoint_is_no_endless_search(runs):
    weights = runs / "kuhn" / "checkpoints" / "step-000005" / "policies" / "learner" / "weights" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="not what was saved"):
        open_run(ref(runs, "kuhn@5"))


def test_a_run_that_trains_is_opened_without_its_lock(runs):
    import fcntl

    with (runs / "kuhn" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_run(ref(runs, "kuhn")).step == 10
    assert CheckpointStore(runs / "kuhn" / "checkpoints").steps() == [0, 5, 10]


def test_opponents_are_players_runs_or_the_run_itself(runs):
    run = open_run(ref(runs, "kuhn"))
    opponents = Opponents(run.config, run.cast, ["player_0", "player_1"], run.host.sampler)
    assert opponents.make("self").seat is None
    assert opponents.make("random").seat("player_0", (), (0, 0)).label == "random_legal"
    other = opponents.make("kuhn@5")
    seat = other.seat("player_1", (), (0, 0))
    assert (seat.label, seat.policy) == ("kuhn@5/learner@latest", "kuhn@5/learner")
    assert opponents.make("kuhn@5") is other  # loaded once


def test_opponents_that_are_none_say_what_there_is(runs):
    config = load_config({**saved.KUHN, "name": "kuhn", "runs_dir": str(runs)})
    assert look_up("random", config) is random_legal and look_up("kuhn@5:ema", config) == ref(runs, "kuhn@5:ema")
    with pytest.raises(UnknownId, match=r"unknown opponent 'kuhm@5'.*did you mean 'kuhn'"):
        look_up("kuhm@5", config)
    with pytest.raises(UnknownId, match=r"unknown opponent 'minimaxx'; did you mean 'minimax'.*RUN@STEP"):
        look_up("minimaxx", config)
    with pytest.raises(ConfigError, match="cannot import"):
        look_up("no.such.module:player", config)


def test_opponents_of_another_game_are_refused_with_the_difference(runs):
    config = load_config({**saved.KUHN, "name": "kuhn", "runs_dir": str(runs)})
    rps = {"env": {"id": "matrix_game", "kwargs": {"rounds": 2}}, "coordinator": {"id": "simultaneous"}}
    saved.save_run(runs / "rps", **rps)
    with pytest.raises(
        ConfigError, match=r"opponent 'rps' plays another game: env.id is 'matrix_game' there and 'kuhn_poker'"
    ):
        look_up("rps", config)
    longer = load_config({**saved.KUHN, **rps, "env": {"id": "matrix_game", "kwargs": {"rounds": 3}}, "runs_dir": str(runs)})
    with pytest.raises(ConfigError, match=r"env.kwargs is \{'rounds': 2\} there and \{'rounds': 3\} here"):
        look_up("rps", longer)
    saved.save_run(runs / "half", agents={"player_0": {"policy": "learner"}, "other": {"policy": "learner"}})
    run = open_run(ref(runs, "kuhn"))
    with pytest.raises(ConfigError, match=r"opponent 'half' cannot sit in the seat of 'player_1'"):
        Opponents(run.config, run.cast, ["player_0", "player_1"], run.host.sampler).make("half")


def test_an_id_without_its_version_is_the_same_game(runs):
    board = {"coordinator": {"id": "turns"}, "agents": {"*": {"policy": "learner"}}}
    saved.save_run(runs / "board", **board, env={"id": "pettingzoo/classic/tictactoe_v3"})
    short = {**saved.KUHN, **board, "env": {"id": "pettingzoo/classic/tictactoe"}, "runs_dir": str(runs)}
    assert look_up("board", load_config(short)).path == runs / "board"
    assert look_up("minimax", load_config(short)).label == "minimax"


def test_names_of_files_are_never_used_twice(tmp_path):
    files = {stamped(tmp_path / "new", "game", ".jsonl") for _ in range(5)}
    assert len(files) == 5 and all(file.suffix == ".jsonl" and file.name.startswith("game-") for file in files)
