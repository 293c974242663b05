from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.cli import main
from opentinker.report.record import episode_from_json
from opentinker.runs import writing

saved = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "fixtures" / "saved.py")))


def run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return saved.save_run(tmp_path / "runs" / "kuhn", steps=(0, 5))


def test_people_get_a_table(folder, capsys):
    assert run("eval", "kuhn", "--against", "random", "--against", "kuhn@0", "--games", "3") == 0
    said = capsys.readouterr().out
    assert "runs/kuhn at step 5, latest weights, 3 games a seat, seed 3" in said
    lines = said.splitlines()
    assert lines[1].split() == ["against", "seat", "games", "win", "draw", "loss", "return", "invalid", "length"]
    rows = [line.split()[:3] for line in lines if line.startswith(("random", "kuhn@0"))]
    assert rows == [
        [label, *rest] for label in ("random", "kuhn@0") for rest in (["player_0", "3"], ["player_1", "3"], ["all", "6"])
    ]
    assert max(map(len, lines)) < 120 and "evaluations/step-000005-" in said


def test_games_that_the_opponent_left_are_told(folder, capsys, monkeypatch, tmp_path):
    (tmp_path / "silly_player.py").write_text("def never(situation):\n    return 'zz'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("eval", "kuhn", "--against", "silly_player:never", "--games", "3") == 0
    # the untrained policy leaves games as well; those in which the opponent moves first are all the opponent's
    assert re.search(r"^note: silly_player:never left [3-6] of 6 games before they were over", capsys.readouterr().out, re.M)


def test_machines_get_one_json_object_and_nothing_else(folder, capsys, tmp_path):
    asked = ["--against", "random", "--json", "--out", tmp_path / "out.json", "--seed", 9, "--temperature", 0.5]
    assert run("eval", "kuhn@5", *asked) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found == json.loads((tmp_path / "out.json").read_text())
    (figures, games) = sorted((folder / "evaluations").iterdir())
    assert json.loads(figures.read_text()) == found
    assert [episode_from_json(json.loads(line)).env for line in games.read_text().splitlines()] == ["kuhn_poker"] * 8
    assert (found["step"], found["seed"], found["games_per_seat"], found["env"]) == (5, 9, 4, "kuhn_poker")
    assert found["temperature"] == 0.5
    overall = found["opponents"]["random"]["overall"]
    assert overall["games"] == 8 and overall["win"]["count"] + overall["draw"]["count"] + overall["loss"]["count"] == 8
    assert set(overall["return"]) == {"mean", "low", "high"} and set(found["opponents"]["random"]["seats"]) == {
        "player_0",
        "player_1",
    }


def test_without_an_opponent_everybody_plays_its_own_seat(folder, capsys):
    assert run("eval", "runs/kuhn", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["opponents"]) == ["self"]


def test_a_folder_that_cannot_be_written_costs_no_figures(folder, capsys, caplog, monkeypatch):
    (folder / "evaluations").write_text("in the way")
    assert run("eval", "kuhn", "--games", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["games_per_seat"] == 1
    assert "nothing is written into the run's folder" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kuhm"], "unknown run 'kuhm'; did you mean 'kuhn'"),
        (["kuhn@3"], "no checkpoint of step 3; it has 0, 5"),
        (["kuhn@first"], "'first' names no version"),
        (["kuhn@best"], "keep_best"),
        (["kuhn", "--against", "nobody"], "unknown opponent 'nobody'"),
        (["kuhn", "--against", "kuhn@7"], "no checkpoint of step 7"),
        (["kuhn", "--games", "0"], "games"),
        (["kuhn", "--temperature", "-1"], "temperature"),
    ],
)
def test_bad_input_is_exit_code_2_and_writes_nothing(folder, capsys, arguments, message):
    assert run("eval", *arguments) == 2
    said = capsys.readouterr()
    assert message in said.err and "Traceback" not in said.err and said.out == ""
    assert not (folder / "evaluations").exists()


def test_a_disk_that_is_full_leaves_no_empty_files(folder, capsys, caplog, monkeypatch, tmp_path):
    real = writing.write_synced

    def full(path, text):
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")
        real(path, text)

    monkeypatch.setattr(writing, "write_synced", full)
    out = tmp_path / "out.json"
    out.write_text("before")
    assert run("eval", "kuhn", "--games", "1", "--out", str(out)) == 1
    assert not list((folder / "evaluations").iterdir()) and out.read_text() == "before"
    assert f"error: cannot write {out}: No space left on device" in capsys.readouterr().err
    assert "nothing is written into the run's folder: cannot write runs/kuhn/evaluations/step-000005-" in caplog.text


def test_ctrl_c_is_told_in_a_line(folder, capsys, monkeypatch):
    def stop(*rest, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("opentinker.evaluate.evaluate_run", stop)
    assert run("eval", "kuhn") == 130
    assert capsys.readouterr().err == "\nstopped\n"
