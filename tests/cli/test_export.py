"""`opentinker export`, from a run with an adapter beside all weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from opentinker.cli import main
from opentinker.config import dump_yaml, load_config
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.sampling.tiny import build_tokenizer
from opentinker.training import state
from opentinker.training.adapters import describe, fingerprint, initial_tensors
from opentinker.training.models import load_model, model_folder, tiny_seed

POLICIES = {"lora": {"model": "tiny", "adapter": {"rank": 2}}, "full": {"model": "tiny"}}
SEATS = {"player_0": {"policy": "lora"}, "player_1": {"policy": "full"}}


def _run(*arguments) -> int:
    try:
        main([str(item) for item in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _save(policies: Path, settings, step: int) -> None:
    """An adapter and all weights of a tiny model, both drawn from the step, as a host would save them."""
    with tempfile.TemporaryDirectory() as scratch:
        models = {
            name: load_model(model_folder(name, policy, step, Path(scratch))) for name, policy in settings.policies.items()
        }
    for name, model in models.items():
        adapter, weights, base_seed = None, dict(model.state_dict()), None
        if name == "lora":
            adapter = describe(name, settings.policies[name], model, fingerprint(model))
            weights = {key: value + 0.1 for key, value in initial_tensors(adapter.shape, model, step).items()}
            base_seed = tiny_seed(name, settings.policies[name], step)
        state.write(
            policies / name,
            state.PolicyState(name, step, True, adapter.base if adapter else "", base_seed),
            model=model,
            tokenizer=build_tokenizer(),
            weights=weights,
            ema={key: value + 0.01 for key, value in weights.items()},
            optimizer=None,
            adapter=adapter,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    tree = {
        "name": "two",
        "env": {"id": "kuhn_poker"},
        "coordinator": {"id": "turns"},
        "agents": SEATS,
        "policies": POLICIES,
    }
    settings = load_config({**tree, "train": {"ema": 0.5}})
    run = folder / "runs" / "two"
    run.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_yaml(settings.dump()))
    (run / "config.yaml").write_text(dump_yaml(settings.dump()))
    (run / "run.json").write_text('{"format": 1, "opentinker": "test"}')
    for step in (1, 2):
        CheckpointStore(run / "checkpoints").save(step, {}, lambda policies, step=step: _save(policies, settings, step))
    return folder


@pytest.fixture(autouse=True)
def _there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def tensors(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_a_run_is_named_by_its_name_or_path_and_a_step(capsys):
    assert _run("export", "two", "newest", "--policy", "full") == 0
    said = capsys.readouterr().out
    assert "newest: step 2 as hf" in said and "`model: newest` in a configuration" in said
    assert _run("export", "runs/two@1", "older", "--policy", "full") == 0
    assert "older: step 1 as hf" in capsys.readouterr().out
    key = "model.embed_tokens.weight"
    assert not tensors(Path("newest"))[key].equal(tensors(Path("older"))[key])


def test_averaged_weights_are_asked_for_either_way(capsys):
    assert _run("export", "two", "a", "--policy", "lora", "--ema") == 0
    assert _run("export", "two@ema", "b", "--policy", "lora") == 0
    assert _run("export", "two", "c", "--policy", "lora") == 0
    assert "c: step 2 as merged" in capsys.readouterr().out
    key = "model.layers.0.mlp.up_proj.weight"
    averaged, again, newest = (tensors(Path(name))[key] for name in "abc")
    assert averaged.equal(again) and not averaged.equal(newest)


def test_an_adapter_says_where_its_base_stands(folder, capsys):
    assert _run("export", "two", "adapter", "--policy", "lora", "--form", "peft") == 0
    base = folder / "adapter" / "base"
    assert f'PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "adapter")' in capsys.readouterr().out
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder / "adapter" / "base")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["too", "x"], 2, "did you mean 'two'"),
        (["two", "x"], 2, r"say which one with --policy NAME"),
        (["two", "x", "--policy", "lora", "--form", "hf"], 2, "use merged or peft"),
        (["two@9", "x", "--policy", "full"], 2, "no checkpoint of step 9"),
        (["two@worst", "x", "--policy", "full"], 2, "'worst' names no version"),
        (["two", "runs", "--policy", "full"], 2, "not an empty folder"),
    ],
)
def test_bad_input_ends_with_one_message_and_writes_nothing(folder, capsys, arguments, code, message):
    before = sorted(folder.rglob("*"))
    assert _run("export", *arguments) == code
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told
    assert sorted(folder.rglob("*")) == before


def test_bad_input_is_told_before_anything_slow_is_imported():
    code = """if True:
        import sys
        from opentinker.cli import main
        try:
            main(["export", "two", "x", "--policy", "lora", "--form", "hf"])
        except SystemExit as end:
            print(end.code, sorted({"torch", "transformers", "peft"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, "use merged or peft" in done.stderr) == ("2 []\n", True)


def test_others_may_read_what_was_exported_as_far_as_new_files_may_be_read():
    before = os.umask(0o027)
    try:
        assert _run("export", "two", "shared", "--policy", "lora", "--form", "peft") == 0
    finally:
        os.umask(before)
    rights = {file.stat().st_mode & 0o777 for file in Path("shared").rglob("*") if file.is_file()}
    assert rights == {0o640}


def test_a_wrong_target_is_told_before_anything_is_written(folder, capsys):
    assert _run("train", "config.yaml", "name=wrong", "policies.lora.adapter.targets=[q_prj]") == 2
    assert (
        "policies.lora.adapter.targets: 'q_prj' names no layer of the model; did you mean 'q_proj'"
        in capsys.readouterr().err
    )
    assert not (folder / "runs" / "wrong").exists()


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(capsys):
    assert _run("export", "two", "/proc/x", "--policy", "full") == 1
    assert capsys.readouterr().err == "error: cannot write /proc/x: No such file or directory\n"
