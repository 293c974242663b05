"""Exported folders in plain transformers and PEFT: equal log-probabilities; whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from opentinker.config import RunConfig
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.training.export import export_policy
from opentinker.training.host import LocalHost
from opentinker.types import PolicyRef

PROMPT, ANSWER = [5, 6, 7], [70, 90, 12]


def configure(policies, **train):
    seats = {name: {"policy": name} for name in policies}
    tree = {"env": {"id": "kuhn_poker"}, "coordinator": {"id": "turns"}, "agents": seats, "policies": policies, "seed": 3}
    return RunConfig(**tree, train={"ema": 0.5, **train})


def trained(config, folder, sample):
    """A checkpoint after two updates of each policy that trains, and what the sampler says of every variant."""
    host = LocalHost(config.policies, config.train, seed=config.seed, threads=1)
    scores = {}
    for name, policy in config.policies.items():
        rows = [sample(PROMPT, ANSWER, logprobs=host.score(PolicyRef(name), [PROMPT], [ANSWER])[0], policy=name)]
        for _ in range(2 if policy.trainable else 0):
            host.update(name, rows, lr=1e-2)
        for variant in ("latest", "ema") if policy.trainable else ("latest",):
            scores[name, variant] = host.score(PolicyRef(name, variant), [PROMPT], [ANSWER])[0]
    store = CheckpointStore(folder)
    store.save(2, {}, lambda policies: [host.save(name, policies / name) for name in config.policies])
    host.close()
    return store.load(2), scores


@pytest.fixture(scope="module")
def config():
    lora = {"rank": 4, "alpha": 8.0}
    return configure(
        {
            "full": {"model": "tiny"},
            "lora": {"model": "tiny", "adapter": lora},
            "frozen": {"model": "tiny", "adapter": lora, "trainable": False},
        }
    )


@pytest.fixture(scope="module")
def run(config, sample, tmp_path_factory):
    return trained(config, tmp_path_factory.mktemp("run"), sample)


def scores_of(model):
    model.eval()
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([PROMPT + ANSWER])).logits[0], dim=-1)
    return [float(table[len(PROMPT) - 1 + i, id]) for i, id in enumerate(ANSWER)]


@pytest.mark.parametrize(
    ("policy", "form", "written"), [("full", None, "hf"), ("lora", None, "merged"), ("frozen", "merged", "merged")]
)
@pytest.mark.parametrize("ema", [False, True])
def test_whole_models_load_in_transformers_and_score_alike(config, run, tmp_path, policy, form, written, ema):
    checkpoint, scores = run
    if ema and policy == "frozen":
        pytest.skip("nothing is averaged")
    folder = tmp_path / "deep" / "model"
    assert export_policy(config, checkpoint, folder, policy=policy, form=form, ema=ema) == written
    expected = scores[policy, "ema" if ema else "latest"]
    assert scores_of(AutoModelForCausalLM.from_pretrained(folder)) == pytest.approx(expected, abs=1e-5)
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert [path.name for path in folder.parent.iterdir()] == ["model"]  # nothing is left aside


@pytest.mark.parametrize("ema", [False, True])
def test_adapters_load_in_peft_with_the_tiny_base_beside_them(config, run, tmp_path, ema):
    from peft import AutoPeftModelForCausalLM, PeftModel

    checkpoint, scores = run
    folder = tmp_path / "adapter"
    assert export_policy(config, checkpoint, folder, policy="lora", form="peft", ema=ema) == "peft"
    expected = scores["lora", "ema" if ema else "latest"]
    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    assert scores_of(PeftModel.from_pretrained(base, folder)) == pytest.approx(expected, abs=1e-5)
    assert scores_of(AutoPeftModelForCausalLM.from_pretrained(folder)) == pytest.approx(expected, abs=1e-5)
    assert AutoTokenizer.from_pretrained(folder).chat_template


def test_an_adapter_on_a_folder_names_it(sample, tiny, tmp_path):
    from peft import AutoPeftModelForCausalLM

    config = configure({"lora": {"model": str(tiny), "adapter": {"rank": 2, "targets": ["q_proj"]}}})
    checkpoint, scores = trained(config, tmp_path / "run", sample)
    export_policy(config, checkpoint, tmp_path / "out", form="peft")  # the only policy need not be named
    assert not (tmp_path / "out" / "base").exists()
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny)
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out")
    assert scores_of(model) == pytest.approx(scores["lora", "latest"], abs=1e-5)


@pytest.mark.parametrize("policy", ["full", "lora"])
def test_an_exported_model_starts_a_new_run(config, run, tmp_path, policy):
    checkpoint, scores = run
    export_policy(config, checkpoint, tmp_path / "out", policy=policy)
    again = configure({"a": {"model": str(tmp_path / "out")}, "b": {"model": str(tmp_path / "out"), "adapter": {"rank": 2}}})
    host = LocalHost(again.policies, again.train, threads=1)
    for name in again.policies:
        found = host.score(PolicyRef(name), [PROMPT], [ANSWER])[0]
        assert found == pytest.approx(scores[policy, "latest"], abs=1e-5)
    host.close()


def test_the_tiny_base_is_the_runs_own_whatever_the_seed_of_who_asks(config, run, tmp_path):
    checkpoint, scores = run
    export_policy(config.model_copy(update={"seed": 4}), checkpoint, tmp_path / "out", policy="lora")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert scores_of(model) == pytest.approx(scores["lora", "latest"], abs=1e-5)


def test_what_cannot_be_exported_is_told_and_leaves_nothing(config, run, tiny, tmp_path):
    checkpoint, _ = run

    def refused(error, message, folder=tmp_path / "out", settings=config, **choice):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(error, match=message):
            export_policy(settings, checkpoint, folder, **choice)
        assert sorted(tmp_path.rglob("*")) == before

    refused(ConfigError, r"the run has policies \['frozen', 'full', 'lora'\]; say which one with --policy NAME")
    refused(UnknownId, "unknown policy 'lor'; did you mean 'lora'", policy="lor")
    refused(UnknownId, "unknown form 'mergd'; did you mean 'merged'", policy="lora", form="mergd")
    refused(ConfigError, "cannot be exported as 'hf': it is an adapter; use merged or peft", policy="lora", form="hf")
    refused(ConfigError, "as 'peft': all its weights are trained; use hf", policy="full", form="peft")
    refused(ConfigError, r"no averaged weights \(it does not train\)", policy="frozen", ema=True)
    moved = config.policies["lora"].model_copy(update={"model": str(tiny)})
    other = config.model_copy(update={"policies": {**config.policies, "lora": moved}})
    refused(CheckpointError, "was trained on another base", policy="lora", settings=other)
    (tmp_path / "file").write_text("mine")
    refused(ConfigError, "exists and is not an empty folder", policy="full", folder=tmp_path / "file")
    refused(ConfigError, "exists and is not an empty folder", policy="full", folder=tmp_path)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_that_fails_midway_leaves_nothing(config, run, tmp_path, monkeypatch):
    from opentinker.training import export

    checkpoint, _ = run
    (tmp_path / "out").mkdir()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_save", full)
    with pytest.raises(OSError, match="No space"):
        export_policy(config, checkpoint, tmp_path / "out", policy="lora")
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and not any((tmp_path / "out").iterdir())
    monkeypatch.undo()
    export_policy(config, checkpoint, tmp_path / "out", policy="lora")  # an empty folder may be there
    assert (tmp_path / "out" / "config.json").is_file()


@pytest.mark.slow  # seconds of imports; test_serve.py asks the same of most of them
def test_exporting_imports_no_verl():
    code = "import sys, opentinker.training.export; sys.exit('verl' in sys.modules or 'ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
