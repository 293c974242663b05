"""Adapters on a shared base, against PEFT's own models."""

import asyncio

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

from opentinker.errors import ConfigError, DuplicateId, SamplerError, UnknownId
from opentinker.sampling.adapters import AdapterShape
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import PolicyRef, SamplingParams

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def targets(names):
    parts = {name: "self_attn" if name in ATTENTION else "mlp" for name in names}
    return tuple(f"model.layers.{layer}.{part}.{name}" for layer in range(2) for name, part in parts.items())


SHAPES = {
    "a": AdapterShape(4, 8.0, targets(ATTENTION)),
    "b": AdapterShape(8, 4.0, targets(MLP)),
    "c": AdapterShape(3, 5.0, targets(ATTENTION + MLP)),
}


def peft_model(shape, seed):
    """PEFT's model on the tiny base of seed 3, with an adapter that changes what it says a good deal."""
    names = sorted({target.rsplit(".")[-1] for target in shape.targets})
    config = LoraConfig(r=shape.rank, lora_alpha=shape.alpha, target_modules=names, task_type="CAUSAL_LM")
    model = get_peft_model(build_tiny(3)[0], config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def tensors(model):
    return get_peft_model_state_dict(model)


@pytest.fixture(scope="module")
def references():
    return {name: peft_model(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}


@pytest.fixture
def adapted(references):
    """A sampler with three adapters on one base, and the base."""
    base, tokenizer = build_tiny(3)
    sampler = HFSampler()
    for name, shape in SHAPES.items():
        sampler.add_adapter(name, base, tokenizer, shape=shape, tensors=tensors(references[name]))
    yield sampler, base
    sampler.close()


def draw(sampler, asked):
    """Completions of `(ref, prompt, params)`, all waiting together."""

    async def together():
        return await asyncio.gather(
            *[
                sampler.sample(PolicyRef.parse(ref), prompt, params, key=(group, 0, "agent", 0, 0))
                for group, (ref, prompt, params) in enumerate(asked)
            ],
            return_exceptions=True,
        )

    return asyncio.run(together())


def mixed(n=12, max_tokens=9):
    prompts = [tuple(range(10, 10 + length)) for length in (3, 17, 9)]
    params = [SamplingParams(max_tokens=1 + at % max_tokens, temperature=1.2, seed=at) for at in range(n)]
    return [("abc"[at % 3], prompts[at // 3 % 3], params[at]) for at in range(n)]


def test_a_mixed_batch_has_the_log_probs_of_pefts_models(adapted, references, plain_logprobs):
    sampler, base = adapted
    before = {name: value.clone() for name, value in base.state_dict().items()}
    asked = mixed()
    for (name, prompt, params), completion in zip(asked, draw(sampler, asked), strict=True):
        expected = plain_logprobs(references[name], prompt, completion.token_ids, params.temperature)
        assert completion.logprobs == pytest.approx(expected, abs=2e-6)
        assert completion.policy == name
        [scored] = sampler.score(PolicyRef(name), [prompt], [completion.token_ids], 1.2)
        assert scored == pytest.approx(expected, abs=2e-6)
        [others] = sampler.score(PolicyRef("abc".replace(name, "")[0]), [prompt], [completion.token_ids], 1.2)
        assert others != pytest.approx(expected, abs=1e-2)
    after = base.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("deterministic", [True, False])
def test_requests_of_several_adapters_go_through_the_base_together(references, plain_logprobs, deterministic):
    base, tokenizer = build_tiny(3)
    shapes = []
    base.register_forward_pre_hook(lambda module, args, kwargs: shapes.append(tuple(args[0].shape)), with_kwargs=True)
    sampler = HFSampler(deterministic=deterministic)
    for name, shape in SHAPES.items():
        sampler.add_adapter(name, base, tokenizer, shape=shape, tensors=tensors(references[name]), eos_ids=[])
    sampler.load("a", new_zeros(SHAPES["a"], references["a"]), 4, variant="ema")
    draw(sampler, [("a", (200,), SamplingParams(max_tokens=2))])  # what the model can do is tried at first use
    shapes.clear()
    asked = [(ref, (5, 6, 7), SamplingParams(max_tokens=3, seed=7)) for ref in ("a", "b", "c", "a@ema", "c")]
    found = draw(sampler, asked)
    # one prompt, read by four adapters; two of five rows are one adapter's
    assert shapes == [(4, 3), (5, 1), (5, 1)]
    assert [completion.version for completion in found] == [0, 0, 0, 4, 0]
    models = [references["a"], references["b"], references["c"], build_tiny(3)[0], references["c"]]
    for model, completion in zip(models, found, strict=True):
        expected = plain_logprobs(model, (5, 6, 7), completion.token_ids, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-6)
    sampler.close()


def test_loading_one_adapter_leaves_the_others_and_the_base_bit_identical(adapted, references):
    sampler, base = adapted
    prompts, completions = [tuple(range(10, 30))], [tuple(range(40, 50))]

    def scores(ref):
        return sampler.score(PolicyRef.parse(ref), prompts, completions)[0]

    before = {name: scores(name) for name in SHAPES}
    new = tensors(peft_model(SHAPES["b"], 17))
    sampler.load("b", new, 5)
    sampler.load("c", tensors(references["c"]), 2, variant="ema")
    assert sampler.version(PolicyRef("b")) == 5 and sampler.version(PolicyRef("c", "ema")) == 2
    assert scores("a") == before["a"] and scores("c") == before["c"] and scores("c@ema") == before["c"]
    assert scores("b") != pytest.approx(before["b"], abs=1e-2)
    for value in new.values():
        value.zero_()  # a copy was taken
    sampler.load("c", new_zeros(SHAPES["c"], references["c"]), 3)
    assert scores("b") != pytest.approx(scores("c"), abs=1e-2)
    # an adapter of zeros is the base
    with torch.no_grad():
        logits = base(torch.tensor([[*prompts[0], *completions[0]]])).logits[0, 19:-1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completions).T)[:, 0]
    assert scores("c") == pytest.approx(expected.tolist(), abs=1e-6)
    assert scores("c@ema") == before["c"]


def new_zeros(shape, reference):
    return {name: torch.zeros_like(value) for name, value in tensors(reference).items()}


def test_without_a_request_of_an_adapter_the_base_is_itself(adapted):
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(adapted[1](ids).logits, build_tiny(3)[0](ids).logits)


def test_a_base_whose_parameters_were_replaced_before_is_read_as_it_then_is(references, plain_logprobs):
    """A trainer may hold the base's tensors: modules point at them."""
    base, tokenizer = build_tiny(4)
    theirs = build_tiny(3)[0].state_dict()
    for name, module in base.named_modules():
        for key in [key for key, value in module._parameters.items() if value is not None]:
            module._parameters[key] = torch.nn.Parameter(theirs[f"{name}.{key}"], requires_grad=False)
    sampler = HFSampler()
    sampler.add_adapter("a", base, tokenizer, shape=SHAPES["a"], tensors=tensors(references["a"]))
    [scored] = sampler.score(PolicyRef("a"), [(5, 6, 7)], [(8, 9)])
    assert scored == pytest.approx(plain_logprobs(references["a"], (5, 6, 7), (8, 9), 1.0), abs=2e-6)
    assert base.lm_head.weight.data_ptr() == theirs["lm_head.weight"].data_ptr()


def test_adapters_that_do_not_fit_are_refused_and_change_nothing(adapted, references):
    sampler, base = adapted
    good = tensors(references["a"])
    short = dict(good)
    first = next(iter(short))
    del short[first]
    with pytest.raises(ConfigError, match=rf"adapter of policy 'a': {first} is missing"):
        sampler.load("a", short, 1)
    with pytest.raises(ConfigError, match="extra is unknown"):
        sampler.load("a", good | {"extra": torch.zeros(1)}, 1)
    with pytest.raises(ConfigError, match=r"is \(4, 64\) and not \(8, 64\)"):
        sampler.add_adapter("d", base, None, shape=AdapterShape(8, 1.0, SHAPES["a"].targets), tensors=good)
    with pytest.raises(ConfigError, match="'model.norm' is a Qwen2RMSNorm"):
        sampler.add_adapter("d", base, None, shape=AdapterShape(4, 1.0, ("model.norm",)), tensors={})
    with pytest.raises(ConfigError, match="'nowhere' is not there; its first ones are model.layers.0.self_attn.q_proj"):
        sampler.add_adapter("d", base, None, shape=AdapterShape(4, 1.0, ("nowhere",)), tensors={})
    with pytest.raises(DuplicateId):
        sampler.add_adapter("a", base, build_tiny(3)[1], shape=SHAPES["a"], tensors=good)
    with pytest.raises(UnknownId):
        sampler.load("d", good, 1)
    assert sampler.version(PolicyRef("a")) == 0


@pytest.mark.parametrize("settings", [{"rank": 0, "targets": ("a",)}, {"rank": 4, "targets": ()}])
def test_shapes_that_are_none_are_refused(settings):
    with pytest.raises(ConfigError, match="a rank above 0 and targets"):
        AdapterShape(alpha=1.0, **settings)


def test_a_model_is_either_a_policy_of_its_own_or_a_base(adapted, references):
    sampler, base = adapted
    with pytest.raises(ConfigError, match="policy 'whole' has the model of policy 'a'"):
        sampler.add("whole", base, build_tiny(3)[1])
    own = build_tiny(3)
    sampler.add("own", *own)
    with pytest.raises(ConfigError, match="the base is the model of policy 'own' itself"):
        sampler.add_adapter("d", *own, shape=SHAPES["a"], tensors=tensors(references["a"]))


def test_a_diverged_adapter_fails_alone(adapted, references):
    sampler, _ = adapted
    sick = {name: value * float("nan") for name, value in tensors(references["b"]).items()}
    sampler.load("b", sick, 7)
    for (name, _, _), found in zip(mixed(), draw(sampler, mixed()), strict=True):
        if name == "b":
            assert isinstance(found, SamplerError)
            assert "policy 'b' at version 7 gave logits that are no distribution" in str(found)
        else:
            assert len(found.token_ids) >= 1


@pytest.mark.parametrize("first", [["a"], ["a", "b", "c"], ["b", "a@latest"]])
def test_what_a_model_can_do_is_decided_alike_whoever_asks_first(adapted, references, first):
    """Whichever path a model takes shows in the last bits: a run that is resumed must not take another."""
    sampler, _ = adapted
    first_asked = [(name, (3, 4, 5 + at), SamplingParams(max_tokens=1, seed=at)) for at, name in enumerate(first)]
    draw(sampler, first_asked)
    network = sampler._policies.resolve(PolicyRef("a")).network
    assert network._lean is not None and network.suits_slots is None
    other, (base, tokenizer) = HFSampler(), build_tiny(3)
    for name, shape in SHAPES.items():
        other.add_adapter(name, base, tokenizer, shape=shape, tensors=tensors(references[name]))
    short = [(name, (9, 8, at), SamplingParams(max_tokens=1, seed=at)) for at, name in enumerate("abcab")]
    assert draw(sampler, short) == draw(other, short)
    assert draw(sampler, mixed()) == draw(other, mixed())
    assert network.suits_slots
    other.close()
