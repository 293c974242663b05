from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.config import PolicyConfig, load_config
from opentinker.errors import CheckpointError, ConfigError, DuplicateId, UnknownId
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.training.serve import ServingHost
from opentinker.types import PolicyRef, Sample

ROOT = Path(__file__).parents[2]
saved = SimpleNamespace(**runpy.run_path(str(ROOT / "tests" / "fixtures" / "saved.py")))
PROMPT, REPLY = [(5, 6, 7, 8)], [(9, 10)]


def scores(seed: int) -> list[list[float]]:
    """What weights drawn from a seed say, served on their own."""
    sampler = HFSampler()
    sampler.add("alone", *build_tiny(seed))
    return sampler.score(PolicyRef("alone"), PROMPT, REPLY)


@pytest.fixture
def folder(tmp_path):
    return saved.save_run(tmp_path / "kuhn", steps=(0, 7))


def host_of(folder: Path, step: int = 7, **options) -> ServingHost:
    return ServingHost(load_config(folder / "config.yaml"), folder / "checkpoints" / f"step-{step:06d}", **options)


def test_the_weights_of_a_checkpoint_are_served(folder):
    host = host_of(folder)
    assert host.score(PolicyRef("learner"), PROMPT, REPLY) == scores(700)
    assert host.score(PolicyRef("learner", "7"), PROMPT, REPLY) == scores(700)
    assert host.max_context("learner") == build_tiny(0)[0].config.max_position_embeddings
    assert host.tokenizer("learner").encode("Card K") == build_tiny(0)[1].encode("Card K")
    with pytest.raises(UnknownId, match="version"):
        host.score(PolicyRef("learner", "ema"), PROMPT, REPLY)
    with pytest.raises(UnknownId, match="did you mean 'learner'"):
        host.tokenizer("lerner")
    host.close()


def test_averaged_weights_are_served_where_asked_for_or_where_a_seat_names_them(folder, tmp_path):
    asked = host_of(folder, ema=True)
    assert asked.score(PolicyRef("learner", "ema"), PROMPT, REPLY) == scores(750)
    assert asked.score(PolicyRef("learner"), PROMPT, REPLY) == scores(700)
    seats = {"player_0": {"policy": "learner"}, "player_1": {"policy": "learner@ema"}}
    named = host_of(saved.save_run(tmp_path / "named", agents=seats), 0)
    assert named.score(PolicyRef("learner", "ema"), PROMPT, REPLY) == scores(50)
    without = saved.save_run(tmp_path / "without", train={"ema": 0.0})
    with pytest.raises(ConfigError, match=r"run 'without' keeps no averaged weights \(train.ema is 0\)"):
        host_of(without, 0, ema=True)


def test_two_runs_stand_side_by_side_in_one_sampler_under_their_prefixes(folder):
    first = host_of(folder)
    second = host_of(folder, 0, sampler=first.sampler, prefix="old/")
    assert first.sampler is second.sampler
    assert second.score(PolicyRef("old/learner"), PROMPT, REPLY) == scores(0) != scores(700)
    assert first.score(PolicyRef("learner"), PROMPT, REPLY) == scores(700)
    with pytest.raises(DuplicateId):
        host_of(folder, 0, sampler=first.sampler, prefix="old/")
    second.close()  # the sampler is not its own
    assert first.score(PolicyRef("learner"), PROMPT, REPLY) == scores(700)


@pytest.mark.parametrize("lost", ["state.json", "weights", "ema.safetensors", "weights/model.safetensors", ""])
def test_a_folder_that_is_not_whole_leaves_nothing_served(folder, lost):
    policy = folder / "checkpoints" / "step-000007" / "policies" / "learner"
    gone = policy / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    sampler = HFSampler()
    with pytest.raises(CheckpointError):
        host_of(folder, sampler=sampler, prefix="x/", ema=True)
    with pytest.raises(UnknownId):
        sampler.score(PolicyRef("x/learner"), PROMPT, REPLY)


@pytest.mark.slow
def test_serving_imports_no_verl_and_no_ray(folder):
    code = f"""
import sys
from opentinker.evaluate import evaluate_run
found = evaluate_run({str(folder)!r}, ["random"], games=1)
assert found.matches["random"].overall.games == 2
print([name for name in ("verl", "ray") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_adapters_are_served_on_one_base_whatever_the_seed_of_the_games(tmp_path):
    from opentinker.config import RunConfig
    from opentinker.runs.checkpoints import CheckpointStore
    from opentinker.training.host import LocalHost

    lora = {"model": "tiny", "adapter": {"rank": 4}}
    seats = {"player_0": {"policy": "first"}, "player_1": {"policy": "second"}}
    tree = {"env": {"id": "kuhn_poker"}, "coordinator": {"id": "turns"}, "agents": seats, "seed": 3}
    config = RunConfig(**tree, policies={"first": lora, "second": {**lora, "trainable": False}}, train={"ema": 0.5})
    trained = LocalHost(config.policies, config.train, seed=config.seed, threads=1)
    row = Sample("first", "a", "a", (5, 6, 7, 8, 9, 10), (0, 0, 0, 0, 1, 1), (0.0,) * 4 + (-5.0, -5.0), (0.0,) * 6)
    trained.fit("first", [row], lr=1e-2)
    trained.update("first", [replace(row, advantages=(0.0,) * 4 + (1.0, 1.0))], lr=1e-2)
    store = CheckpointStore(tmp_path)
    store.save(7, {}, lambda policies: [trained.save(name, policies / name) for name in config.policies])
    served = ServingHost(config.model_copy(update={"seed": 99}), tmp_path / "step-000007", ema=True)
    for ref in (PolicyRef("first"), PolicyRef("first", "1"), PolicyRef("first", "ema"), PolicyRef("second")):
        assert served.score(ref, PROMPT, REPLY) == trained.score(ref, PROMPT, REPLY), ref
    assert served.score(PolicyRef("first"), PROMPT, REPLY) != served.score(PolicyRef("second"), PROMPT, REPLY)
    other = config.model_copy(update={"policies": {name: PolicyConfig(**lora, seed=5) for name in config.policies}})
    with pytest.raises(CheckpointError, match=r"'policy': 'second'.*'trainable': False"):
        ServingHost(other, tmp_path / "step-000007")
    served.close()
    trained.close()
