"""Adapters in verl's engine, against PEFT and plain torch."""

from __future__ import annotations

import pytest
import torch

from opentinker.training import adapters
from opentinker.training.adapters import AdapterSpec
from opentinker.training.batch import make_rows
from opentinker.training.models import load_model

LORA = {"rank": 4, "alpha": 6.0}
TRAIN = {"optim": {"lr": 1e-2, "betas": (0.5, 0.9), "weight_decay": 0.01, "clip": 1e9}}


def make_policy(engine, base, seed, scale=0.2):
    from opentinker.training.lora import AdapterWorker

    tensors = adapters.initial_tensors(engine.shape, base.model, seed)
    draw = torch.Generator().manual_seed(seed)
    return AdapterWorker(
        engine, {name: value + scale * torch.randn(value.shape, generator=draw) for name, value in tensors.items()}
    )


def peft_model(tiny, base, policy, folder):
    """The policy's adapter as PEFT's own model, trainable."""
    from peft import PeftModel

    shape = policy._engine.shape
    folder.mkdir(exist_ok=True)
    spec = AdapterSpec(shape, adapters.short_targets(shape, base.model), "", str(tiny))
    adapters.write_peft(folder, spec, policy.weights())
    return PeftModel.from_pretrained(load_model(tiny), folder, is_trainable=True)


def rows_of(sample, n=4):
    return make_rows([sample([5, 6, 7 + i], [70 + i, 90], [3], [71], logprobs=[-5.0] * 3) for i in range(n)])


def reference(model, rows):
    found = []
    for row in rows.samples:
        table = torch.log_softmax(model(torch.tensor([row.token_ids])).logits[0], dim=-1)
        found.append(torch.stack([table[i - 1, row.token_ids[i]] for i, mask in enumerate(row.loss_mask) if mask]))
    return found


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def copies(tensors):
    return {name: value.clone() for name, value in tensors.items()}


@pytest.fixture(scope="module")
def pair(make_engine):
    engine, base = make_engine(LORA, **TRAIN)
    return engine, base, make_policy(engine, base, 1), make_policy(engine, base, 2)


def test_log_probabilities_are_peft_s_whichever_adapter_was_in_before(pair, tiny, sample, tmp_path):
    _, base, one, two = pair
    rows = rows_of(sample)
    for policy, name in ((one, "one"), (two, "two"), (one, "one"), (two, "two")):
        expected = reference(peft_model(tiny, base, policy, tmp_path / name), rows)
        for found, values in zip(policy.log_probs(rows), expected, strict=True):
            assert found == pytest.approx(values.tolist(), abs=2e-6)


def test_steps_are_those_of_torchs_adamw_on_peft_s_model(make_engine, tiny, sample, tmp_path):
    """Two policies in turn, each with its own moments: after three steps each is where it would be alone."""
    engine, base = make_engine(LORA, **TRAIN)
    policies = [make_policy(engine, base, seed) for seed in (1, 2)]
    models = [peft_model(tiny, base, policy, tmp_path / str(i)) for i, policy in enumerate(policies)]
    rows = [rows_of(sample, 4), rows_of(sample, 2)]
    trained = [[p for p in model.parameters() if p.requires_grad] for model in models]
    optims = [torch.optim.AdamW(p, lr=1e-2, betas=(0.5, 0.9), weight_decay=0.01) for p in trained]
    for _ in range(3):
        for policy, model, optim, own in zip(policies, models, optims, rows, strict=True):
            policy.step(own, policy.sft, 1e-2)
            (-torch.cat(reference(model, own)).mean()).backward()
            optim.step()
            optim.zero_grad()
    for policy, model in zip(policies, models, strict=True):
        expected = {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}
        for name, value in policy.weights().items():
            assert value == pytest.approx(expected[name].detach(), abs=2e-5), name


def test_p2_the_base_stands_in_memory_once_and_never_changes(make_engine, sample):
    """The plain model (the sampler's) and the engine's frozen parameters are the same memory, before and after updates."""
    from opentinker.training.worker import local

    engine, base = make_engine(LORA, **TRAIN)
    policy = make_policy(engine, base, 1)
    before = {name: (value.data_ptr(), value.clone()) for name, value in base.model.named_parameters()}

    def held():
        return {
            name.removeprefix("base_model.model.").replace(".base_layer.", "."): local(parameter).data_ptr()
            for name, parameter in engine.engine.module.named_parameters()
            if not parameter.requires_grad
        }

    assert held() == {name: pointer for name, (pointer, _) in before.items()}
    policy.step(rows_of(sample), policy.sft, 1e-2)
    policy.log_probs(rows_of(sample))
    assert held() == {name: pointer for name, (pointer, _) in before.items()}
    for name, value in base.model.named_parameters():
        assert value.data_ptr() == before[name][0] and torch.equal(value, before[name][1]), name
        assert not value.requires_grad


def test_fsdp_frees_its_gathered_copies_between_calls(pair, sample):
    engine, _, one, _ = pair
    one.log_probs(rows_of(sample))
    gathered = [
        tensor.untyped_storage().size()
        for module in engine.engine.module.modules()
        if hasattr(module, "_get_fsdp_state")
        for group in module._get_fsdp_state()._fsdp_param_groups
        for parameter in group.fsdp_params
        for tensor in parameter.all_gather_outputs
    ]
    assert gathered and set(gathered) == {0}


def test_a_step_that_fails_leaves_the_policy_and_the_engine_as_they_were(pair, sample, monkeypatch):
    engine, _, one, two = pair
    rows = rows_of(sample)
    one.step(rows, one.sft, 1e-3)
    weights, moments = copies(one.weights()), copies(one.optimizer_state())

    def fails(lr):
        raise RuntimeError("no step")

    monkeypatch.setattr(engine, "apply", fails)
    with pytest.raises(RuntimeError, match="no step"):
        one.step(rows, one.sft, 1e-2)
    monkeypatch.undo()
    assert same(weights, one.weights()) and same(moments, one.optimizer_state())
    # the gradient that was there is not the next policy's
    again = make_policy(engine, pair[1], 2)
    again.load_weights(two.weights())
    again.load_optimizer_state(copies(two.optimizer_state()))
    two.step(rows, two.sft, 1e-3)
    one.step(rows, one.sft, 1e-3)
    again.step(rows, again.sft, 1e-3)
    assert same(two.weights(), again.weights())


def test_moments_come_back_bit_for_bit(pair, sample):
    engine, base, one, _ = pair
    rows = rows_of(sample)
    one.step(rows, one.sft, 1e-3)
    state = copies(one.optimizer_state())
    assert len(state) == 3 * len(one.weights()) and all(value.any() for value in state.values())
    other = make_policy(engine, base, 9)
    other.load_weights(copies(one.weights()))
    other.load_optimizer_state(state)
    assert same(other.optimizer_state(), state)
    for policy in (one, other):
        policy.step(rows, policy.sft, 1e-3)
    assert same(one.weights(), other.weights()) and same(one.optimizer_state(), other.optimizer_state())
    other.load_optimizer_state({})
    assert not other.optimizer_state() and one.optimizer_state()


def test_building_an_engine_draws_nothing_from_torchs_generator(make_engine):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_engine(LORA)
    assert torch.equal(torch.rand(3), expected)


def test_a_base_with_tied_embeddings_is_shared_too(tmp_path, sample):
    from transformers import AutoConfig, AutoModelForCausalLM

    from opentinker.config import AdapterConfig, TrainConfig
    from opentinker.sampling.tiny import save_tiny
    from opentinker.training.lora import Base
    from opentinker.training.models import load_tokenizer

    save_tiny(tmp_path / "base", 1)
    config = AutoConfig.from_pretrained(tmp_path / "base", tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "base")
    base = Base(tmp_path / "base", TrainConfig(**TRAIN), load_model(tmp_path / "base"), load_tokenizer(tmp_path / "base"))
    assert base.model.lm_head.weight is base.model.model.embed_tokens.weight
    engine = base.engine(adapters.adapter_shape("a", AdapterConfig(**LORA), base.model))
    assert base.model.lm_head.weight is base.model.model.embed_tokens.weight
    policy, rows = make_policy(engine, base, 1), rows_of(sample)
    policy.step(rows, policy.sft, 1e-2)
    expected = reference(peft_model(tmp_path / "base", base, policy, tmp_path / "x"), rows)
    for found, values in zip(policy.log_probs(rows), expected, strict=True):
        assert found == pytest.approx(values.tolist(), abs=2e-6)
