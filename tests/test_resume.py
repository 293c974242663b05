"""A run killed at any instant and started again gives the uninterrupted run's figures bit for bit.

Every case really dies by SIGKILL in a process of its own, and is then started again in another one. The processes are forked
from a server that has imported torch and verl once, so that a case costs seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from pathlib import Path

import pytest

from opentinker.testing.crash import Instant, train_until

STEPS = 4

CONFIG = {
    "name": "run",
    "seed": 11,
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {
        "player_0": {"policy": "first", "memory": "last", "on_invalid": {"forfeit": -2}},
        "player_1": {"policy": "second", "memory": "last", "on_invalid": {"forfeit": -2}},
    },
    "policies": {
        "first": {"model": "tiny", "sampling": {"max_tokens": 1}},
        "second": {"model": "tiny", "sampling": {"max_tokens": 1}},
    },
    "warm_start": {"player": "random_legal", "steps": 2, "episodes": 4},
    "rollout": {"groups": 12, "record_every": 1, "record": 2},
    "train": {
        "credit": "rae",
        "legal_entropy": {"start": 0.5, "end": 0.1},
        "optim": {"lr": {"start": 1e-3, "end": 1e-4}, "betas": [0.5, 0.999]},
        "ema": 0.9,
        "steps": STEPS,
        "checkpoint_every": 2,
    },
    "evaluate": {"every": 1, "metrics": ["exploitability"]},
}

HOST, STATE, STORE = "opentinker.training.host:LocalHost.", "opentinker.training.state:", "opentinker.runs.checkpoints:"
INSTANTS = [
    ("warm start", Instant(HOST + "fit", 1, "after")),
    ("first reply of the run", Instant("opentinker.seats:PolicySeat.decide", 40, "before")),
    ("rollout of step 1", Instant("opentinker.rollout:Rollout._play", 12, "before")),
    ("rollout of step 3", Instant("opentinker.rollout:Rollout._play", 8 + 24 + 5, "before")),
    ("credit of step 2", Instant("opentinker.run:to_samples", 2 + 2, "before")),
    ("update of step 1, one of two policies", Instant(HOST + "update", 1, "after")),
    ("update of step 3, before", Instant(HOST + "update", 5, "before")),
    ("update of step 4, after", Instant(HOST + "update", 8, "after")),
    ("metrics of step 3 written", Instant("opentinker.runs.folder:RunFolder.write_metrics", 4, "after")),
    ("episodes of step 3 written", Instant("opentinker.runs.folder:RunFolder.write_episodes", 3, "after")),
    ("checkpoint 0: first policy saved", Instant(HOST + "save", 1, "after")),
    ("checkpoint 2: before the first policy", Instant(HOST + "save", 3, "before")),
    ("checkpoint 2: second policy saved", Instant(HOST + "save", 4, "after")),
    ("checkpoint 2: weights written", Instant(STATE + "PreTrainedModel.save_pretrained", 1, "after", within=2)),
    ("checkpoint 2: tokenizer", Instant(STATE + "PreTrainedTokenizerBase.save_pretrained", 1, "after", within=2)),
    ("checkpoint 2: average half written", Instant(STATE + "save_file", 1, "torn", within=2)),
    ("checkpoint 2: optimiser half written", Instant(STATE + "save_file", 4, "torn", within=2)),
    ("checkpoint 2: state of a policy", Instant(STATE + "Path.write_text", 1, "after", within=2)),
    ("checkpoint 2: state of the run", Instant(STATE + "Path.write_text", 3, "after", within=2)),
    ("checkpoint 2: hashing its first file", Instant(STORE + "_fingerprint", 1, "before", within=2)),
    ("checkpoint 2: hashing its third file", Instant(STORE + "_fingerprint", 3, "after", within=2)),
    ("checkpoint 2: manifest not written", Instant(STORE + "write_synced", 1, "before", within=2)),
    ("checkpoint 2: manifest half written", Instant(STORE + "os.replace", 1, "before", within=2)),
    ("checkpoint 2: between manifest and rename", Instant(STORE + "os.rename", 2, "before")),
    ("checkpoint 2: after the rename", Instant(STORE + "os.rename", 2, "after")),
    ("last checkpoint: between manifest and rename", Instant(STORE + "os.rename", 3, "before")),
    ("last checkpoint: after the rename", Instant(STORE + "os.rename", 3, "after")),
]
QUICK = {"rollout of step 3", "update of step 1, one of two policies", "checkpoint 2: between manifest and rename"}


@pytest.fixture(scope="module")
def server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["opentinker.testing.preload", "opentinker.training.host"])
    return context


def _start(
    server, runs_dir: Path, instant: Instant | None = None, config=CONFIG, overrides: tuple[str, ...] = ()
) -> int:
    process = server.Process(target=train_until, args=(config, [f"runs_dir={runs_dir}", *overrides], instant))
    process.start()
    process.join(240)
    if process.is_alive():
        process.kill()
        pytest.fail("the run hangs")
    return process.exitcode


def _figures(runs_dir: Path) -> list[str]:
    """The lines of metrics.jsonl without their clock, as text: equal text, equal bits."""
    rows = [json.loads(line) for line in (runs_dir / "run" / "metrics.jsonl").read_text().splitlines()]
    return [json.dumps({key: row[key] for key in sorted(row) if "time" not in key}) for row in rows]


def _weights(runs_dir: Path) -> dict[str, str]:
    manifest = json.loads((runs_dir / "run" / "checkpoints" / f"step-{STEPS:06d}" / "manifest.json").read_text())
    return {name: entry["sha256"] for name, entry in manifest["files"].items() if name.startswith("policies/")}


@pytest.fixture(scope="module")
def uninterrupted(server, tmp_path_factory):
    runs_dir = tmp_path_factory.mktemp("whole")
    assert _start(server, runs_dir) == 0
    figures = _figures(runs_dir)
    assert len(figures) == STEPS + 1
    return figures, _weights(runs_dir)


@pytest.mark.parametrize(
    "instant",
    [pytest.param(at, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, at in INSTANTS],
)
def test_p4_a_killed_run_goes_on_bit_for_bit(server, uninterrupted, tmp_path, instant):
    assert _start(server, tmp_path, instant) == -signal.SIGKILL
    assert _start(server, tmp_path) == 0
    figures, weights = uninterrupted
    assert _figures(tmp_path) == figures
    assert _weights(tmp_path) == weights
    episodes = sorted(path.name for path in (tmp_path / "run" / "episodes").iterdir())
    assert episodes == [f"step-{step:06d}.jsonl" for step in range(1, STEPS + 1)]


def test_p4_a_run_killed_twice_goes_on_bit_for_bit(server, uninterrupted, tmp_path):
    assert _start(server, tmp_path, Instant("opentinker.training.host:LocalHost.update", 5, "before")) == -signal.SIGKILL
    assert _start(server, tmp_path, Instant("opentinker.rollout:Rollout._play", 3, "before")) == -signal.SIGKILL
    assert _start(server, tmp_path) == 0
    assert _figures(tmp_path) == uninterrupted[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "instant",
    [
        pytest.param(Instant(HOST + "update", 5, "after"), id="one of two adapters updated"),
        pytest.param(Instant(STATE + "write_peft", 2, "after", within=2), id="checkpoint 2: second adapter written"),
    ],
)
def test_p2_p4_a_killed_run_of_adapters_on_one_base_goes_on_bit_for_bit(server, tmp_path, instant):
    lora = {"model": "tiny", "adapter": {"rank": 4}, "sampling": {"max_tokens": 1}}
    config = {**CONFIG, "policies": {"first": lora, "second": lora}}
    assert _start(server, tmp_path / "whole", config=config) == 0
    assert _start(server, tmp_path / "killed", instant, config) == -signal.SIGKILL
    assert _start(server, tmp_path / "killed", config=config) == 0
    assert _figures(tmp_path / "killed") == _figures(tmp_path / "whole")
    assert _weights(tmp_path / "killed") == _weights(tmp_path / "whole")


def test_a_torn_or_altered_checkpoint_is_passed_over_for_the_one_before(server, uninterrupted, tmp_path):
    assert _start(server, tmp_path) == 0
    checkpoints = tmp_path / "run" / "checkpoints"
    for step in (STEPS, 2):
        weights = next((checkpoints / f"step-{step:06d}" / "policies" / "first").rglob("*.safetensors"))
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    assert _start(server, tmp_path) == 0
    assert _figures(tmp_path) == uninterrupted[0]
    assert _weights(tmp_path) == uninterrupted[1]


KEEPING = (
    "train.checkpoint_every=1",
    "train.keep_last=1",
    "train.keep_best={figure: eval/exploitability/last, goal: max}",
    "loggers=[tensorboard]",
)
KEEPING_INSTANTS = [
    ("before the first one is dropped", Instant(STORE + "CheckpointStore.prune", 2, "before")),
    ("dropped and not deleted", Instant(STORE + "_remove", 1, "before")),
    ("deleted", Instant(STORE + "CheckpointStore.prune", 3, "after")),
    ("the last time", Instant(STORE + "CheckpointStore.prune", STEPS + 1, "before")),
]


@pytest.mark.slow
@pytest.mark.parametrize("instant", [pytest.param(at, id=name) for name, at in KEEPING_INSTANTS])
def test_p4_a_run_killed_while_it_drops_old_checkpoints_goes_on_bit_for_bit(server, uninterrupted, tmp_path, instant):
    assert _start(server, tmp_path, instant, overrides=KEEPING) == -signal.SIGKILL
    assert _start(server, tmp_path, overrides=KEEPING) == 0
    figures, weights = uninterrupted
    assert _figures(tmp_path) == figures  # what is kept and logged moves no bit
    assert _weights(tmp_path) == weights
    exploitability = [json.loads(row)["eval/exploitability/last"] for row in figures]
    kept = {f"step-{step:06d}" for step in (exploitability.index(max(exploitability)), STEPS)}
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} >= kept


@pytest.mark.slow
def test_p4_a_lengthened_run_that_is_killed_goes_on_as_the_one_that_was_long_from_the_start(server, tmp_path):
    constant = ("train.legal_entropy=0.1", "train.optim.lr=1e-3")
    assert _start(server, tmp_path / "whole", overrides=constant) == 0
    assert _start(server, tmp_path, overrides=(*constant, f"train.steps={STEPS - 2}")) == 0
    later = Instant(HOST + "update", 3, "after")
    assert _start(server, tmp_path, later, overrides=constant) == -signal.SIGKILL
    assert _start(server, tmp_path, overrides=constant) == 0
    assert _figures(tmp_path) == _figures(tmp_path / "whole")
    assert _weights(tmp_path) == _weights(tmp_path / "whole")
    changes = [json.loads(line) for line in (tmp_path / "run" / "config_changes.jsonl").read_text().splitlines()]
    assert [(line["after_step"], line["changed"]["train.steps"]["new"]) for line in changes] == [(STEPS - 2, STEPS)]
