import subprocess
import sys

import pytest

from opentinker.cli import main
from opentinker.testing.runs import made_up_games, write_run

ROWS = [{"step": step, "rollout/player_0/return_mean": 0.1 * step} for step in range(4)]


def show(*arguments) -> int:
    try:
        main(["show", *map(str, arguments)])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_run(tmp_path / "runs" / name, {"name": name, "train": {"steps": 3}}, ROWS, made_up_games(3))
    return tmp_path / "runs"


def test_one_run_is_shown_in_its_own_folder(runs, capsys):
    assert show("one") == 0
    report = runs / "one" / "report"
    assert (report / "index.html").read_text().startswith("<!doctype html>")
    assert (report / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "page:   runs/one/report/index.html\ncurves: runs/one/report/curves.png\n"


def test_several_runs_are_compared_where_one_stands_or_asks(runs, tmp_path, capsys):
    assert show("one", runs / "two") == 0
    assert (tmp_path / "comparison" / "index.html").exists() and (tmp_path / "comparison" / "curves.png").exists()
    assert show("one", "two", "--out", "elsewhere/deep") == 0
    assert (tmp_path / "elsewhere" / "deep" / "index.html").exists()
    assert not (runs / "one" / "report").exists()


def test_the_number_of_episodes_can_be_limited(runs):
    assert show("one") == 0
    full = (runs / "one" / "report" / "index.html").stat().st_size
    assert show("one", "--episodes", "0") == 0
    assert (runs / "one" / "report" / "index.html").stat().st_size < full
    assert show("one", "--episodes", "-1") == 2


def test_torn_lines_and_missing_metrics_are_no_obstacle(runs, capsys):
    (runs / "one" / "metrics.jsonl").write_text('{"step": 0}\n{"ste')
    (runs / "two" / "metrics.jsonl").unlink()
    assert show("one", "two") == 0
    assert "runs/one: 1 line(s) of metrics.jsonl could not be read" in capsys.readouterr().out


def test_what_is_no_run_is_bad_input(runs, tmp_path, capsys):
    for name in ("thre", "on", "runs", str(tmp_path / "nowhere")):
        assert show("one", name) == 2
        said = capsys.readouterr()
        assert said.err.startswith("error: unknown run") and "Traceback" not in said.err and said.out == ""
    assert show("one", "runs/one") == 2
    assert "named twice" in capsys.readouterr().err
    assert not (runs / "one" / "report").exists()


def test_a_page_that_cannot_be_written_is_one_line(runs, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert show("one", "--out", tmp_path / "file") == 1
    assert capsys.readouterr().err.count("error: ") == 1


def test_nothing_heavy_is_imported(runs):
    code = "import sys; from opentinker.cli import main\ntry:\n    main(['show', 'one'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'transformers', 'ray', 'verl', 'gymnasium'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=runs.parent, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_disk_without_room_is_told_with_the_file(runs, capsys, monkeypatch):
    def full(records, most, out):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("opentinker.report.page._write", full)
    assert show("one", "--out", "there") == 1
    assert capsys.readouterr().err.startswith("error: cannot write there/index.html: No space left on device")
    assert not list((runs.parent / "there").iterdir())
    monkeypatch.undo()
    monkeypatch.chdir(runs.parent)

    def half(self, path, **settings):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    assert show("one", "--out", "there") == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: cannot write there/curves.png: No space left on device") and "curves:" not in said.out
    assert [path.name for path in (runs.parent / "there").iterdir()] == ["index.html"]
