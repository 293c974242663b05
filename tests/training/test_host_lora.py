"""LoRA policies in the local host: shared bases, separate learning."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from opentinker.config import PolicyConfig, TrainConfig
from opentinker.errors import CheckpointError, ConfigError
from opentinker.sampling.tiny import save_tiny
from opentinker.training.host import LocalHost
from opentinker.types import PolicyRef, SamplingParams

TRAIN = {"optim": {"lr": 1e-2, "betas": (0.0, 0.999)}, "ema": 0.5}
LORA = {"rank": 4, "alpha": 8.0}
ROWS = [[5, 6, 7], [5, 6, 8]], [[70, 90], [71, 91]]


def make_host(train=None, seed=1, **policies):
    config = {name: PolicyConfig(**{"model": "tiny", "adapter": LORA, **settings}) for name, settings in policies.items()}
    return LocalHost(config, TrainConfig(**(TRAIN if train is None else train)), seed=seed, threads=1)


def play(host, sample, policy, n=8):
    """Rows with the sampler's own log-probabilities; the ids 70 + i are good where i is even."""
    prompts, answers = [[5, 6, 7 + i % 2] for i in range(n)], [[70 + i % 4, 90] for i in range(n)]
    scores = host.score(PolicyRef(policy), prompts, answers)
    return [
        sample(prompt, answer, logprobs=score, advantages=1.0 - 2 * (i % 2), policy=policy)
        for i, (prompt, answer, score) in enumerate(zip(prompts, answers, scores, strict=True))
    ]


def everything(host, name):
    """All bits of a policy: weights, average, moments, and what the sampler serves of it."""
    policy = host._policies[name]
    tensors = {f"weights/{key}": value for key, value in host.snapshot(name).items()}
    tensors |= {f"ema/{key}": value.clone() for key, value in (policy.ema or {}).items()}
    if policy.worker:
        tensors |= {key: value.clone() for key, value in policy.worker.optimizer_state().items()}
    variants = ("latest", "ema") if policy.ema else ("latest",)
    served = {f"served/{variant}": torch.tensor(host.score(PolicyRef(name, variant), *ROWS)) for variant in variants}
    return tensors | served


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def base_bits(host, name):
    return {key: value.clone() for key, value in host._policies[name].model.state_dict().items()}


@pytest.fixture(scope="module")
def host():
    host = make_host(
        first={},
        second={},
        wide={"adapter": {"rank": 8, "targets": ["q_proj", "v_proj"]}},
        frozen={"trainable": False},
        full={"adapter": None},
    )
    yield host
    host.close()


def test_p2_after_one_policys_update_the_base_and_all_others_are_bit_identical(host, sample):
    names = ("first", "second", "wide", "frozen", "full")
    for name in names:
        if name != "frozen":
            host.update(name, play(host, sample, name), lr=1e-2)  # so that all have moments
    for trained in ("first", "second", "wide", "full"):
        rows = play(host, sample, trained)
        before, base = {name: everything(host, name) for name in names}, base_bits(host, "first")
        host.update(trained, rows, lr=1e-2)
        host.log_probs(trained, rows)
        for name in names:
            assert same(before[name], everything(host, name)) is (name != trained), (trained, name)
        assert same(base, base_bits(host, "first"))
        changed = everything(host, trained)
        for part in ("weights/", "ema/", "exp_avg_sq/", "served/latest", "served/ema"):
            keys = [key for key in changed if key.startswith(part)]
            assert keys and not all(torch.equal(changed[key], before[trained][key]) for key in keys), part


def test_policies_of_one_base_share_it_and_those_of_one_shape_an_engine(host):
    policies = host._policies
    assert policies["first"].model is policies["second"].model is policies["wide"].model is policies["frozen"].model
    assert policies["full"].model is not policies["first"].model
    engine = policies["first"].worker._engine
    assert policies["second"].worker._engine is engine and policies["wide"].worker._engine is not engine
    held = {value.data_ptr() for _, value in policies["first"].model.named_parameters()}
    from opentinker.training.worker import local

    assert held == {local(p).data_ptr() for p in engine.engine.module.parameters() if not p.requires_grad}


def test_adapters_start_different_but_all_serve_the_base(sample):
    host = make_host(first={}, second={}, frozen={"trainable": False})
    first, second = host.snapshot("first"), host.snapshot("second")
    assert first.keys() == second.keys() and not same(first, second)
    assert same(first, make_host(first={}, other={}).snapshot("first"))
    assert not same(first, make_host(seed=2, first={}).snapshot("first"))
    ids = torch.tensor([[5, 6, 7, 70, 90]])
    with torch.no_grad():
        table = torch.log_softmax(host._policies["first"].model(ids).logits[0], dim=-1)
    expected = [float(table[2, 70]), float(table[3, 90])]
    for name in ("first", "second", "frozen"):
        assert host.score(PolicyRef(name), ROWS[0][:1], ROWS[1][:1])[0] == pytest.approx(expected, abs=2e-6)
    with pytest.raises(ValueError, match="'frozen' is frozen"):
        host.update("frozen", play(host, sample, "frozen"), lr=1e-2)
    host.close()


def test_p3_versions_count_updates_and_the_sampler_serves_them_at_once(host, sample):
    before = host.version("first")
    assert host.update("first", play(host, sample, "first"), lr=1e-2).version == host.version("first") == before + 1

    async def ask(name):
        params = SamplingParams(max_tokens=3, seed=3)
        return await host.sample(PolicyRef(name), [5, 6, 7], params, key=(0, 0, name, 0, 0))

    async def both():
        host.sampler.enter(2)
        try:
            return await asyncio.gather(ask("first"), ask("second"))
        finally:
            host.sampler.leave(2)

    for name, completion in zip(("first", "second"), asyncio.run(both()), strict=True):
        assert completion.version == host.version(name)
        row = sample([5, 6, 7], completion.token_ids, logprobs=completion.logprobs, policy=name)
        assert host.log_probs(name, [row])[0] == pytest.approx(completion.logprobs, abs=2e-6)


def test_sampler_and_trainer_agree_after_many_updates(host, sample):
    for _ in range(3):
        for name in ("first", "wide"):
            host.update(name, play(host, sample, name), lr=1e-2)
    for name in ("first", "second", "wide"):
        rows = play(host, sample, name)
        for row, found in zip(rows, host.log_probs(name, rows), strict=True):
            # unlikely ids have large log-probabilities, where float32 itself steps by 1e-6
            assert found == pytest.approx(row.logprobs[3:], abs=2e-6, rel=4e-7)
        result = host.update(name, rows, lr=0.0)
        assert abs(result.metrics["kl"]) < 2e-6 and result.metrics["clip_fraction"] == 0


def test_rewarded_ids_become_likelier(sample):
    host = make_host(first={}, second={})
    before = host.score(PolicyRef("first"), [[5, 6, 7]], [[70]])[0][0]
    for _ in range(6):
        host.update("first", play(host, sample, "first"), lr=1e-2)
    assert host.score(PolicyRef("first"), [[5, 6, 7]], [[70]])[0][0] > before + 0.2
    assert host.score(PolicyRef("second"), [[5, 6, 7]], [[70]])[0][0] == before
    host.close()


def test_the_average_is_of_the_adapters_tensors(sample):
    host = make_host(first={})
    start = host.snapshot("first")
    host.update("first", play(host, sample, "first"), lr=1e-2)
    now = host.snapshot("first")
    host.sampler.load("first", {name: 0.5 * start[name] + 0.5 * now[name] for name in now}, 9, variant="mine")
    averaged = host.score(PolicyRef("first", "ema"), *ROWS)
    assert averaged[0] == pytest.approx(host.score(PolicyRef("first", "mine"), *ROWS)[0], abs=1e-6)
    assert averaged[0] != pytest.approx(host.score(PolicyRef("first"), *ROWS)[0], abs=1e-4)
    host.fit("first", play(host, sample, "first"), lr=1e-2)
    assert host.version("first") == 1
    assert host.score(PolicyRef("first", "ema"), *ROWS) == host.score(PolicyRef("first"), *ROWS)
    host.close()


def test_what_does_not_fit_is_told_before_training():
    with pytest.raises(ConfigError, match=r"policies\.first\.adapter\.targets: 'q_prj' .* did you mean 'q_proj'"):
        make_host(first={"adapter": {"rank": 4, "targets": ["q_prj"]}})


def test_a_saved_adapter_is_a_peft_folder_and_comes_back(host, sample, tmp_path):
    host.update("first", play(host, sample, "first"), lr=1e-2)
    host.save("first", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "weights",
        "ema.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
    weights = {path.name for path in (tmp_path / "weights").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= weights
    assert not any(name.startswith("model") for name in weights)
    saved, others = everything(host, "first"), everything(host, "second")
    host.update("first", play(host, sample, "first"), lr=1e-2)
    host.load("first", tmp_path)
    assert same(saved, everything(host, "first")) and same(others, everything(host, "second"))


def test_a_frozen_adapter_comes_from_its_checkpoint(host, sample, tmp_path):
    host.update("first", play(host, sample, "first"), lr=1e-2)
    host.save("frozen", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"weights", "state.json"}
    other = make_host(frozen={"trainable": False, "seed": 3}, seed=1)
    with pytest.raises(CheckpointError, match="was trained on another base"):
        other.load("frozen", tmp_path)
    other.close()
    host.save("first", tmp_path / "first")
    trained = tmp_path / "first" / "weights" / "adapter_model.safetensors"
    (tmp_path / "weights" / "adapter_model.safetensors").write_bytes(trained.read_bytes())
    host.load("frozen", tmp_path)
    assert same(dict(host.snapshot("frozen")), dict(host.snapshot("first")))
    assert host.score(PolicyRef("frozen"), *ROWS) == host.score(PolicyRef("first"), *ROWS)


def test_checkpoints_of_another_base_kind_or_rank_are_refused_and_change_nothing(host, tmp_path):
    host.save("first", tmp_path / "adapter")
    before = everything(host, "first")

    def refused(message, name="first", folder=tmp_path / "adapter", **policies):
        other = make_host(**policies)
        with pytest.raises(CheckpointError, match=message):
            other.load(name, folder)
        other.close()

    refused("was trained on another base", first={"seed": 5})
    refused("holds an adapter of policy 'first', but the configuration says all weights", first={"adapter": None})
    refused("has rank 4 and alpha 8, but the configuration says rank 4 and alpha 16", first={"adapter": {"rank": 4}})
    refused("does not fit the model", first={"adapter": {**LORA, "targets": "q_proj"}})
    host.save("full", tmp_path / "full")
    assert json.loads((tmp_path / "full" / "state.json").read_text())["base"] == ""
    kinds = "holds all weights of policy 'full', but the configuration says an adapter"
    refused(kinds, "full", tmp_path / "full", full={})
    assert same(before, everything(host, "first"))


def test_a_folder_as_base_is_shared_too(sample, tmp_path):
    save_tiny(tmp_path / "base", 5)
    host = make_host(first={"model": str(tmp_path / "base")}, second={"model": f"{tmp_path}/./base"})
    assert host._policies["first"].model is host._policies["second"].model
    host.update("first", play(host, sample, "first"), lr=1e-2)
    host.save("first", tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "weights" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "base")
    host.close()
