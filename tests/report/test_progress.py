import io
import json
import logging
import math
import os

import pytest
from rich.console import Console

from opentinker.config import load_config
from opentinker.report import progress as module
from opentinker.report.progress import JsonProgress, LiveProgress

CONFIG = load_config(
    {"env": {"id": "x"}, "coordinator": {"id": "y"}, "agents": {"*": {"player": "z"}}, "train": {"steps": 3}},
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told to move."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def console(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=200, highlight=False, soft_wrap=True)


def lines(out):
    return out.file.getvalue().splitlines()


def test_without_a_terminal_a_line_comes_now_and_then(clock):
    out = console()
    with LiveProgress(out) as progress:
        progress.begin(CONFIG, 0)
        progress.step({"step": 1, "rollout/a/return_mean": 0.12345, "rollout/b/return_mean": -1})
        clock[0] += module.QUIET_SECONDS
        progress.step({"step": 2, "rollout/a/return_mean": 0.5, "rollout/all/turns_mean": 3})
        progress.step({"step": 3, "rollout/a/return_mean": 1.0})
    assert lines(out) == ["training 0/3", "training 2/3 a 0.500", "training 3/3 a 1.000"]


def test_a_measured_exploitability_stays_in_sight(clock):
    out = console()
    with LiveProgress(out) as progress:
        progress.begin(CONFIG, 1)
        clock[0] += 20
        progress.step(
            {"step": 1, "eval/exploitability/last": 0.4583, "eval/exploitability/ema": 0.1, "rollout/a/return_mean": 1}
        )
        clock[0] += 20
        progress.step({"step": 2, "rollout/a/return_mean": 1})
    assert lines(out) == [
        "training 1/3 from step 1",
        "training 1/3 exploitability last 0.458 ema 0.100",
        "training 2/3 exploitability last 0.458 ema 0.100",
    ]


def test_the_warm_start_is_told_too(clock):
    out = console()
    with LiveProgress(out) as progress:
        progress.loading()
        for done in (1, 2, 3):
            progress.warm(done, 3)
        progress.begin(CONFIG, 0)
    starting = "starting: loading torch, transformers and verl"
    assert lines(out) == [starting, "warm start 3/3", "training 0/3"]  # the first steps come within the pause


def test_names_are_no_markup_and_what_is_not_finite_is_shown(clock):
    out = console()
    with LiveProgress(out) as progress:
        progress.begin(CONFIG, 0)
        progress.step({"step": 3, "rollout/[red]x[/red]/return_mean": math.nan})
    assert lines(out)[-1] == "training 3/3 [red]x[/red] nan"


def test_a_terminal_gets_one_bar(clock):
    out = console(terminal=True)
    with LiveProgress(out) as progress:
        progress.warm(1, 2)
        progress.begin(CONFIG, 0)
        for step in (1, 2, 3):
            progress.step({"step": step, "rollout/[b]/return_mean": 0.5})
    last = [line for line in lines(out) if "training" in line][-1]
    assert "training" in last and "3/3" in last and "[b] 0.500" in last
    assert "warm start" not in last


def test_an_error_inside_gives_the_terminal_back():
    out = console(terminal=True)
    with pytest.raises(KeyError), LiveProgress(out):
        raise KeyError
    assert out.file.getvalue().endswith("\x1b[?25h")  # the cursor is shown again


def test_quiet_says_nothing_of_the_steps(clock):
    for terminal in (False, True):
        out = console(terminal)
        with LiveProgress(out, quiet=True) as progress:
            progress.warm(1, 1)
            progress.begin(CONFIG, 0)
            progress.step({"step": 3})
        assert out.file.getvalue() == ""


@pytest.mark.parametrize("make", [lambda: LiveProgress(console()), lambda: JsonProgress(io.StringIO())])
def test_a_stop_is_told_on_stderr(make, capsys):
    make().stopping("step 7")
    said = capsys.readouterr()
    assert said.err == "\nfinishing step 7, saving; press again to stop at once\n" and said.out == ""


def test_a_stop_that_cannot_be_told_ends_nothing(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(module.sys, "stderr", closed)
    LiveProgress(console()).stopping("step 7")


def test_programs_get_one_json_object_a_line():
    stream = io.StringIO()
    progress = JsonProgress(stream)
    progress.warm(1, 2)
    progress.begin(CONFIG, 1)
    progress.step({"step": 2, "a/loss": math.nan, "b\u2028": 0.1 + 0.2})
    progress.tell("end", run="runs/x")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert [json.loads(line, parse_constant=refuse) for line in stream.getvalue().splitlines()] == [
        {"event": "warm", "done": 1, "total": 2},
        {"event": "begin", "run": "run", "done": 1, "steps": 3},
        {"event": "step", "row": {"step": 2, "a/loss": None, "b\u2028": 0.1 + 0.2}},
        {"event": "end", "run": "runs/x"},
    ]


def test_a_reader_that_goes_away_ends_nothing_and_is_told_once(caplog):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    progress = JsonProgress(Gone())
    with caplog.at_level(logging.WARNING):
        progress.step({"step": 1})
        progress.step({"step": 2})
    assert caplog.text.count("nobody reads the progress any more") == 1


class Failing(io.StringIO):
    """A stream of the system's whose every write fails."""

    def __init__(self, file, error):
        super().__init__()
        self._file, self._error = file, error

    def fileno(self):
        return self._file.fileno()

    def flush(self):
        raise self._error


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")])
def test_people_who_go_away_or_a_full_log_end_nothing_and_are_told_once(
    clock, caplog, capfd, monkeypatch, tmp_path, error, terminal
):
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr("sys.stdout", Failing(file, error))  # rich asks for it where a pipe is closed
        out = Console(force_terminal=terminal)
        with LiveProgress(out) as progress:
            progress.warm(1, 1)
            progress.begin(CONFIG, 0)
            progress.step({"step": 3})
        os.write(file.fileno(), b"what was still held")  # as at the end of a process
    monkeypatch.undo()
    assert (tmp_path / "log").read_text() == ""
    assert caplog.text.count("nobody reads the progress any more, the run goes on: ") == 1 and str(error) in caplog.text


def test_what_asks_the_process_to_end_while_something_is_written_ends_it():
    with pytest.raises(SystemExit), module.unread(io.StringIO()):
        raise SystemExit(3)
