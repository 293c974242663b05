"""What is read, remembered and forgotten, seen from outside: by the shapes of forward passes and by bytes."""

import asyncio
import random

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny, build_tokenizer
from opentinker.types import PolicyRef, SamplingParams

LEARNER = PolicyRef("learner")
SMALL = {"vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "initializer_range": 0.3, "max_position_embeddings": 512}


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=259, n_positions=512, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3,
                   bos_token_id=1, eos_token_id=2)
    )  # fmt: skip


def sliding():
    return MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=20))


def llama():
    return LlamaForCausalLM(LlamaConfig(**GROUPED))


def tiny():
    return build_tiny(3)[0]


def serve(build=tiny, **settings):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build().eval()
    sampler = HFSampler(**settings)
    sampler.add("learner", model, build_tokenizer(), eos_ids=[])
    return sampler, model


def talk(sampler, n=5, turns=3, *, seed=0, watch=lambda: None, same_start=False):
    """Dialogues of one prompt extending the last: (prompt, completion) by dialogue and turn. They differ in length."""

    async def dialogue(number):
        draw = random.Random(seed * 100 + number)
        history = [4] * 30 if same_start else []
        found = []
        for turn in range(turns):
            history = history + [draw.randrange(3, 259) for _ in range(20 + 5 * number)]
            size, own = 3 + (number + turn) % 4, seed * 999 + number * 10 + turn
            params = SamplingParams(max_tokens=size, temperature=1.2, seed=own)
            completion = await sampler.sample(LEARNER, history, params, key=(number, 0, "a", turn, 0))
            found.append((tuple(history), completion))
            history = history + list(completion.token_ids)
            watch()
        sampler.leave()
        return found

    async def main():
        sampler.enter(n)
        return await asyncio.wait_for(asyncio.gather(*[dialogue(number) for number in range(n)]), 60)

    return asyncio.run(main())


def ids(found):
    return [[completion.token_ids for _, completion in dialogue] for dialogue in found]


def logprobs(found):
    return [lp for dialogue in found for _, completion in dialogue for lp in completion.logprobs]


@pytest.mark.parametrize("build", [tiny, gpt2, llama, sliding])
@pytest.mark.parametrize("deterministic", [True, False])
def test_dialogues_have_the_log_probs_of_a_plain_forward(build, deterministic, plain_logprobs):
    sampler, model = serve(build, deterministic=deterministic)
    for dialogue in talk(sampler, same_start=True):
        for prompt, completion in dialogue:
            expected = plain_logprobs(model, prompt, completion.token_ids, 1.2)
            assert completion.logprobs == pytest.approx(expected, abs=1e-5)
    sampler.close()


def watch_shapes(model):
    shapes = []
    model.register_forward_pre_hook(lambda module, args, kwargs: shapes.append(tuple(args[0].shape)), with_kwargs=True)
    return shapes


def ask(sampler, prompts, n=2, first=0):
    async def main():
        params = [SamplingParams(max_tokens=n, seed=number) for number in range(len(prompts))]
        return await asyncio.gather(
            *[sampler.sample(LEARNER, p, params[at], key=(first + at, 0, "a", 0, 0)) for at, p in enumerate(prompts)]
        )

    return asyncio.run(main())


def test_a_turn_reads_only_what_is_new():
    sampler, model = serve(deterministic=False)
    shapes = watch_shapes(model)  # a hook, so that the model itself is called
    ask(sampler, [(200,)])
    shapes.clear()
    prompts = [tuple(range(10 + at, 80 + at)) for at in range(3)]
    first = ask(sampler, prompts, 4)
    assert shapes == [(3, 70), (3, 1), (3, 1), (3, 1)]
    shapes.clear()
    # of the reply the last id was drawn and not read: it and eight new ones
    ask(sampler, [(*p, *c.token_ids, *range(8)) for p, c in zip(prompts, first, strict=True)], 2)
    assert shapes == [(3, 9), (3, 1)]
    shapes.clear()
    # two that begin like another, read apart since they differ so much; and one that is known whole but for its last id
    ask(sampler, [(*prompts[0][:50], *range(100, 120)), (*prompts[2][:50], 9), prompts[1]], 1)
    assert shapes == [(2, 1), (1, 20)]
    sampler.close()


def test_the_prompt_that_a_group_shares_is_read_once_even_where_the_group_does_not_fit_at_once():
    sampler, model = serve(max_batch=2)
    shapes = watch_shapes(model)
    ask(sampler, [(200,)])
    shapes.clear()
    prompt = tuple(range(10, 80))
    found = ask(sampler, [prompt] * 5, 3)
    assert [shape for shape in shapes if shape[1] > 1] == [(1, 70)]
    assert len({completion.token_ids for completion in found}) > 1


@pytest.mark.parametrize(("mib", "deterministic"), [(0, True), (0.001, True), (0.1, True), (0.1, False)])
def test_memory_for_what_was_read_is_bounded_and_changes_no_result(mib, deterministic):
    sizes = []
    small, _ = serve(deterministic=deterministic, kv_cache_mib=mib)
    found = talk(small, n=8, turns=4, watch=lambda: sizes.append(small._prefixes.bytes))
    large, _ = serve(deterministic=deterministic)
    expected = talk(large, n=8, turns=4, watch=lambda: sizes.append(-large._prefixes.bytes))
    assert max(sizes) <= mib * (1 << 20)
    assert (max(sizes) > 0) is (mib == 0.1)
    assert min(sizes) < -0.2 * (1 << 20)  # without a bound it would be more
    assert ids(found) == ids(expected)
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-5)
    small.close(), large.close()


def test_in_step_a_run_that_goes_on_and_one_that_is_resumed_there_are_equal_bit_for_bit():
    whole, _ = serve()
    talk(whole, seed=1)
    assert whole._prefixes.bytes == 0  # all have left
    first = talk(whole, seed=2)
    resumed, _ = serve()
    assert talk(resumed, seed=2) == first


def test_new_weights_forget_what_the_old_ones_read(plain_logprobs):
    sampler, _ = serve(deterministic=False)
    prompt = tuple(range(10, 90))
    ask(sampler, [prompt])
    assert sampler._prefixes.bytes > 0
    new = build_tiny(5)[0]
    sampler.load("learner", new.state_dict(), 1)
    assert sampler._prefixes.bytes == 0
    [found] = ask(sampler, [prompt], 5)
    assert found.logprobs == pytest.approx(plain_logprobs(new, prompt, found.token_ids, 1.0), abs=1e-5)
    sampler.close()


def test_sick_weights_are_not_remembered_and_healthy_ones_later_do_well(plain_logprobs):
    sampler, model = serve()
    good = {name: value.clone() for name, value in model.state_dict().items()}
    sampler.load("learner", {name: value * float("nan") for name, value in good.items()}, 1)

    async def main():
        params = [SamplingParams(max_tokens=4, seed=number) for number in (1, 2)]
        asked = [sampler.sample(LEARNER, tuple(range(10, 90)), p, key=(p.seed, 0, "a", 0, 0)) for p in params]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert all("no distribution" in str(error) for error in asyncio.run(main()))
    sampler.load("learner", good, 2)
    for completion in asyncio.run(main()):
        expected = plain_logprobs(model, tuple(range(10, 90)), completion.token_ids, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
    [network] = sampler._pool._engines
    assert network.suits_slots
