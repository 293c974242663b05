"""Adapters as data, against PEFT itself."""

from __future__ import annotations

import json
import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from opentinker.config import AdapterConfig
from opentinker.errors import CheckpointError, ConfigError
from opentinker.training import adapters
from opentinker.training.adapters import AdapterSpec
from opentinker.training.models import load_model

IDS = torch.tensor([[5, 6, 7, 70, 71]])
ENDS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def shape_of(base, targets="all-linear", rank=4, alpha=6.0):
    return adapters.adapter_shape("a", AdapterConfig(rank=rank, alpha=alpha, targets=targets), base)


def spec_of(base, shape, name="tiny"):
    return AdapterSpec(shape, adapters.short_targets(shape, base), adapters.fingerprint(base), name)


def random_tensors(shape, base, seed=3):
    tensors = adapters.initial_tensors(shape, base, seed)
    draw = torch.Generator().manual_seed(seed)
    return {name: value + 0.2 * torch.randn(value.shape, generator=draw) for name, value in tensors.items()}


def log_probs(model):
    with torch.no_grad():
        return torch.log_softmax(model(IDS).logits[0], dim=-1)


def test_all_linear_means_what_it_means_in_peft(tiny, plain):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(load_model(tiny), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    theirs = {name for name, module in model.base_model.model.named_modules() if hasattr(module, "lora_A")}
    shape = shape_of(plain)
    assert set(shape.targets) == theirs and len(shape.targets) == 14
    assert list(shape.targets) == sorted(shape.targets) and not any("lm_head" in name for name in shape.targets)
    assert shape_of(plain, ["all-linear"]) == shape_of(plain)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("q_proj", ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"]),
        (["1.mlp.up_proj", "1.mlp.up_proj"], ["model.layers.1.mlp.up_proj"]),
        (["model.layers.0.mlp.down_proj", "1.mlp.up_proj"], ["model.layers.0.mlp.down_proj", "model.layers.1.mlp.up_proj"]),
    ],
)
def test_targets_are_names_of_layers_or_their_ends(plain, targets, expected):
    assert list(shape_of(plain, targets).targets) == expected


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["q_prj"], r"policies\.a\.adapter\.targets: 'q_prj' names no layer .* did you mean 'q_proj'"),
        ("all-liner", "did you mean 'all-linear'"),
        ("lm_heat", "^((?!lm_head).)*$"),
        ("zzz", "^((?!lm_head).)*$"),
        ("norm", "^((?!lm_head).)*$"),
        ("zzz", "it has down_proj, .*q_proj.* or say 'all-linear'"),
        (["embed_tokens"], "'embed_tokens' is a Embedding, and only linear layers get an adapter: down_proj"),
        (["proj"], "'proj' names no layer"),
        (["q_proj", "lm_head"], "'lm_head' is the output layer"),
    ],
)
def test_what_names_no_linear_layer_is_told_with_near_names(plain, targets, message):
    with pytest.raises(ConfigError, match=message):
        shape_of(plain, targets)


def test_a_model_without_torchs_linear_layers_is_told():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ConfigError, match="GPT2LMHeadModel has no linear layer but its output"):
        shape_of(model)
    with pytest.raises(ConfigError, match="'c_attn' is a Conv1D, and only linear layers"):
        shape_of(model, ["c_attn"])


def test_an_adapter_starts_as_no_change_at_all_and_follows_its_seed(plain):
    shape = shape_of(plain)
    first, again, other = (adapters.initial_tensors(shape, plain, seed) for seed in (1, 1, 2))
    a, b = (
        "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
        "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight",
    )
    assert first[a].shape == (4, 128) and first[b].shape == (64, 4) and len(first) == 28
    assert all(torch.equal(first[name], again[name]) for name in first) and not torch.equal(first[a], other[a])
    assert not first[b].any()
    bound = 1 / math.sqrt(128)  # kaiming_uniform_ with a = sqrt(5), which PEFT uses
    assert 0.9 * bound < first[a].abs().max() <= bound and abs(float(first[a].mean())) < 0.1 * bound


def test_a_written_adapter_loads_in_peft_and_merging_is_peft_s(tiny, plain, tmp_path):
    from peft import PeftModel

    shape = shape_of(plain)
    tensors = random_tensors(shape, plain)
    adapters.write_peft(tmp_path, spec_of(plain, shape), tensors)
    loaded = PeftModel.from_pretrained(load_model(tiny), tmp_path)
    ours = load_model(tiny)
    adapters.merge(ours, shape, tensors)
    assert float((log_probs(loaded) - log_probs(plain)).abs().max()) > 0.1
    assert float((log_probs(loaded) - log_probs(ours)).abs().max()) < 1e-5
    back = adapters.read_peft(tmp_path, spec_of(plain, shape))
    assert back.keys() == tensors.keys() and all(torch.equal(back[name], tensors[name]) for name in back)


def test_layers_are_named_shortly_where_that_means_the_same_ones(plain, tmp_path):
    everywhere, once = shape_of(plain), shape_of(plain, ["0.self_attn.q_proj"])
    assert set(adapters.short_targets(everywhere, plain)) == ENDS
    assert adapters.short_targets(once, plain) == ("model.layers.0.self_attn.q_proj",)
    adapters.write_peft(tmp_path, spec_of(plain, everywhere, "some/base"), adapters.initial_tensors(everywhere, plain, 0))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(ENDS) and config["base_model_name_or_path"] == "some/base"
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (4, 6, "CAUSAL_LM")


def test_an_adapter_of_other_rank_or_alpha_and_a_torn_one_are_refused(plain, tmp_path):
    shape = shape_of(plain)
    adapters.write_peft(tmp_path, spec_of(plain, shape), adapters.initial_tensors(shape, plain, 0))
    for other in (shape_of(plain, rank=8), shape_of(plain, alpha=7.5)):
        with pytest.raises(
            CheckpointError, match=rf"has rank 4 and alpha 6, but .* rank {other.rank} and alpha {other.alpha:g}"
        ):
            adapters.read_peft(tmp_path, spec_of(plain, other))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:-30])
        with pytest.raises(CheckpointError, match="cannot read the adapter"):
            adapters.read_peft(tmp_path, spec_of(plain, shape))
        (tmp_path / name).write_bytes(data)


def test_a_fingerprint_is_of_the_bits(tiny, plain):
    other = load_model(tiny)
    assert adapters.fingerprint(other) == adapters.fingerprint(plain)
    with torch.no_grad():
        weight = other.model.layers[1].mlp.up_proj.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    assert adapters.fingerprint(other) != adapters.fingerprint(plain)
