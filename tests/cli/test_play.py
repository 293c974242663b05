"""`opentinker play`: lines through a pipe, signals, exit codes."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.cli import main
from opentinker.report.record import episode_from_json
from opentinker.types import Episode, EpisodeStatus

saved = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "fixtures" / "saved.py")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    agents = {"player_0": {"player": "always:b"}, "player_1": {"policy": "learner", "memory": "last"}}
    return saved.save_run(tmp_path_factory.mktemp("here") / "runs" / "kuhn", steps=(3,), agents=agents)


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "opentinker.cli", "play", "kuhn", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder.parents[1], env={**os.environ, **environment}, **pipes)


def transcript(folder: Path, out: bytes) -> Episode:
    file = next(line for line in out.decode().splitlines() if line.startswith("transcript: ")).removeprefix("transcript: ")
    return episode_from_json(json.loads((folder.parents[1] / file).read_text()))


def test_a_game_is_played_line_by_line(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parents[1])
    monkeypatch.setattr(sys, "stdin", io.StringIO("call\n:seen player_0\nb\nnever read"))
    with pytest.raises(SystemExit, match="^0$"):
        main(["play", "kuhn", "--as", "player_1", "--seed", "4"])
    said = capsys.readouterr().out
    assert (
        said.index("'call' is no legal action")
        < said.index("=== player_0 (always:b)")
        < said.index("game over (terminated)")
    )
    assert [turn.reply for turn in transcript(folder, said.encode()).turns] == ["b", "call", "b"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(SystemExit, match="^0$"):
        main(["play", "kuhn", "--as", "player_1"])
    assert "game over (truncated)" in capsys.readouterr().out


@pytest.mark.slow
def test_lines_through_a_pipe_and_bytes_that_are_no_text(folder):
    process = start(folder, "--as", "player_1", "--seed", "4", PYTHONIOENCODING="ascii")
    out, err = process.communicate("\xff\nschön\n:seen\nb\n".encode("latin-1"), timeout=120)
    said = out.decode("ascii")
    assert process.returncode == 0 and err == b""
    assert "is no legal action" in said and "=== player_0 (always:b) 1 of 1 ===" in said and "game over (terminated)" in said
    episode = transcript(folder, out)
    assert [turn.valid for turn in episode.turns if turn.agent == "player_1"] == [False, False, True]


@pytest.mark.slow
def test_the_end_of_the_input_is_a_polite_end(folder):
    process = start(folder, "--as", "player_1")
    out, err = process.communicate(b"", timeout=120)
    assert (process.returncode, err) == (0, b"") and transcript(folder, out).status is EpisodeStatus.TRUNCATED


@pytest.mark.slow
def test_ctrl_c_while_the_human_thinks_keeps_the_transcript(folder):
    process = start(folder, "--as", "player_1", PYTHONUNBUFFERED="1")
    said = b""
    deadline = time.monotonic() + 120
    while b"> " not in said:
        assert time.monotonic() < deadline and process.poll() is None
        said += process.stdout.read1(1000)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert transcript(folder, said + out).outcome["out"] == {"player_1": "truncate"}


@pytest.mark.slow
def test_without_an_agent_it_says_who_there_is(folder):
    process = start(folder)
    _, err = process.communicate(b"", timeout=120)
    assert process.returncode == 2 and b"the agents are player_0, player_1" in err


def test_a_very_long_line_is_shown_by_its_beginning(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parents[1])
    monkeypatch.setattr(sys, "stdin", io.StringIO("z" * 3_000_000 + "\n:seen " + "z" * 3_000_000 + "\nb\n"))
    with pytest.raises(SystemExit, match="^0$"):
        main(["play", "kuhn", "--as", "player_1", "--seed", "4"])
    said = capsys.readouterr().out
    assert len(said) < 4000 and "z" * 201 not in said and "game over (terminated)" in said


def test_a_transcript_that_finds_no_room_is_named_and_leaves_nothing(folder, monkeypatch, capsys):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(folder.parents[1])
    monkeypatch.setattr("opentinker.runs.writing.write_synced", full)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    before = sorted((folder / "play").iterdir()) if (folder / "play").exists() else []
    with pytest.raises(SystemExit, match="^1$"):
        main(["play", "kuhn", "--as", "player_1"])
    assert "error: cannot write runs/kuhn/play/player_1-" in capsys.readouterr().err
    assert sorted((folder / "play").iterdir()) == before
