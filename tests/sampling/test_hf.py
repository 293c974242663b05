import asyncio
import random
import threading
import time
from collections import Counter

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM, Phi3Config, Phi3ForCausalLM

from opentinker.errors import ConfigError, SamplerError, UnknownId
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import FinishReason, PolicyRef, SamplingParams

LEARNER = PolicyRef("learner")
PROMPTS = [tuple(range(10, 10 + n)) for n in (3, 17, 9, 1)]


def key(group, turn=0):
    return (group, 0, "agent", turn, 0)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 1.7])
def test_logprobs_are_those_of_a_plain_forward(tiny, make_sampler, ask, plain_logprobs, temperature):
    """Prompts of different lengths, limits, settings and stop strings in one batch; one prompt twice."""
    pairs = [
        (PROMPTS[0], SamplingParams(max_tokens=30, temperature=temperature, seed=1)),
        (PROMPTS[1], SamplingParams(max_tokens=7, temperature=temperature, seed=2)),
        (PROMPTS[2], SamplingParams(max_tokens=1, temperature=temperature, seed=3)),
        (PROMPTS[3], SamplingParams(max_tokens=20, temperature=temperature, top_p=0.8, seed=4)),
        (PROMPTS[0], SamplingParams(max_tokens=25, temperature=temperature, top_k=5, seed=5)),
        (PROMPTS[1], SamplingParams(max_tokens=12, temperature=1.1, stop=("e",), seed=6)),
    ]
    for (prompt, params), completion in zip(pairs, ask(make_sampler(), pairs), strict=True):
        expected = plain_logprobs(tiny[0], prompt, completion.token_ids, params.temperature)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
        if completion.finish_reason is FinishReason.LENGTH:
            assert len(completion.token_ids) == params.max_tokens
        assert (completion.policy, completion.version) == ("learner", 0)


def test_first_ids_are_distributed_as_the_softmax(tiny, make_sampler, ask):
    prompt, temperature, n = PROMPTS[0], 1.7, 4000
    params = [SamplingParams(max_tokens=1, temperature=temperature, seed=seed) for seed in range(n)]
    drawn = Counter(c.token_ids[0] for c in ask(make_sampler(), [(prompt, p) for p in params]))
    with torch.no_grad():
        p = torch.softmax(tiny[0](torch.tensor([prompt])).logits[0, -1] / temperature, dim=-1).double()
    common = (p * n >= 5).nonzero()[:, 0].tolist()
    counts = [drawn[id] for id in common] + [n - sum(drawn[id] for id in common)]
    expected = [p[id].item() * n for id in common] + [n - p[common].sum().item() * n]
    statistic = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    degrees = len(common)
    assert degrees > 5
    # a chi-square value has mean d and variance 2d: five standard deviations above
    assert statistic < degrees + 5 * (2 * degrees) ** 0.5


def test_second_ids_are_distributed_as_the_softmax_after_the_first(tiny, make_sampler, ask):
    prompt, n = PROMPTS[0], 3000
    pairs = [(prompt, SamplingParams(max_tokens=2, temperature=0.7, seed=seed)) for seed in range(n)]
    seconds: dict[int, list[int]] = {}
    for completion in ask(make_sampler(), pairs):
        if len(completion.token_ids) == 2:
            seconds.setdefault(completion.token_ids[0], []).append(completion.token_ids[1])
    first, drawn = max(seconds.items(), key=lambda item: len(item[1]))
    with torch.no_grad():
        p = torch.softmax(tiny[0](torch.tensor([[*prompt, first]])).logits[0, -1] / 0.7, dim=-1)
    top = int(p.argmax())
    share, q = drawn.count(top) / len(drawn), p[top].item()
    assert abs(share - q) < 5 * (q * (1 - q) / len(drawn)) ** 0.5


def test_greedy_is_the_argmax_at_every_step(tiny, make_sampler, ask):
    [completion] = ask(make_sampler(), [(PROMPTS[0], SamplingParams(max_tokens=12, temperature=0.0))])
    ids = list(PROMPTS[0])
    for id in completion.token_ids:
        with torch.no_grad():
            assert id == int(tiny[0](torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(id)


def test_a_seed_gives_its_completion_whoever_else_is_in_the_batch(make_sampler, ask):
    sampler = make_sampler()
    mine = (PROMPTS[2], SamplingParams(max_tokens=20, temperature=1.3, seed=77))
    others = [(PROMPTS[i % 4], SamplingParams(max_tokens=5 + 3 * i, temperature=0.9, seed=i)) for i in range(9)]
    [alone] = ask(sampler, [mine])
    among = ask(sampler, [*others[:4], mine, *others[4:]])[4]
    assert among.token_ids == alone.token_ids
    assert among.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_other_seeds_differ_and_missing_seeds_are_fresh(make_sampler, ask):
    params = [SamplingParams(max_tokens=16, temperature=1.5, seed=seed) for seed in (1, 2, None, None)]
    drawn = ask(make_sampler(), [(PROMPTS[0], p) for p in params])
    assert len({c.token_ids for c in drawn}) == 4


def test_t4_an_immediate_end_is_the_end_id_and_no_text(tiny, ask):
    model, tokenizer = build_tiny(3)
    sampler = HFSampler()
    sampler.add("learner", model, tokenizer)
    with torch.no_grad():
        model.lm_head.weight[2] = 0
        first = model(torch.tensor([PROMPTS[0]]), output_hidden_states=True).hidden_states[-1][0, -1]
        model.lm_head.weight[2] = first * 100  # the end's logit after this prompt is above all others
    [completion] = ask(sampler, [(PROMPTS[0], SamplingParams(max_tokens=5, seed=1))])
    assert completion.token_ids == (2,)
    assert completion.text == ""
    assert completion.finish_reason is FinishReason.EOS
    assert completion.logprobs == pytest.approx((0.0,), abs=1e-6)


def test_an_end_id_is_kept_and_left_out_of_the_text(tiny, make_sampler, ask):
    sampler = HFSampler()
    sampler.add("learner", *tiny, eos_ids=range(130, 259))  # half of all ids
    pairs = [(PROMPTS[0], SamplingParams(max_tokens=20, temperature=1.5, seed=seed)) for seed in range(20)]
    for completion in ask(sampler, pairs):
        assert completion.finish_reason is FinishReason.EOS
        assert [id >= 130 for id in completion.token_ids] == [False] * (len(completion.token_ids) - 1) + [True]
        assert completion.text == tiny[1].decode(list(completion.token_ids[:-1]))


def test_stop_strings_end_the_text_and_ids_stay_as_sampled(tiny, make_sampler, ask):
    sampler = make_sampler()
    params = SamplingParams(max_tokens=40, temperature=1.2, seed=5)
    [free] = ask(sampler, [(PROMPTS[1], params)])
    # two ids from the middle whose text occurs nowhere before
    at = next(i for i in range(10, 38) if (s := tiny[1].decode(list(free.token_ids[i : i + 2]))).isascii()
              and s not in tiny[1].decode(list(free.token_ids[: i + 1])))  # fmt: skip
    stop = tiny[1].decode(list(free.token_ids[at : at + 2]))
    stopping = SamplingParams(max_tokens=40, temperature=1.2, seed=5, stop=("\x00never", stop))
    cut, again = ask(sampler, [(PROMPTS[1], stopping), (PROMPTS[1], params)])
    assert cut.finish_reason is FinishReason.STOP
    assert cut.token_ids == free.token_ids[: at + 2]
    assert cut.text == tiny[1].decode(list(free.token_ids[:at]))
    assert again.token_ids == free.token_ids


def test_t6_length_is_the_reason_when_max_tokens_were_sampled(make_sampler, ask):
    [completion] = ask(make_sampler(), [(PROMPTS[0], SamplingParams(max_tokens=4, seed=3))])
    assert completion.finish_reason is FinishReason.LENGTH
    assert len(completion.token_ids) == 4


@pytest.mark.parametrize(("used", "n", "reason"), [(1020, 4, "context"), (1024, 0, "context"), (1100, 0, "context"),
                                                   (1019, 5, "length")])  # fmt: skip
def test_context_is_the_reason_when_the_model_has_no_room(tiny, make_sampler, ask, plain_logprobs, used, n, reason):
    prompt = tuple(10 + i % 7 for i in range(used))
    [completion] = ask(make_sampler(), [(prompt, SamplingParams(max_tokens=5, seed=3))])
    assert completion.finish_reason == reason
    assert len(completion.token_ids) == len(completion.logprobs) == n
    if n:
        expected = plain_logprobs(tiny[0], prompt, completion.token_ids, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
    else:
        assert completion.text == ""


def test_t5_a_failing_model_fails_the_requests_of_its_batch_only(tiny, caplog):
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.config = build_tiny(1)[0], tiny[0].config

        def get_input_embeddings(self):
            return self.inner.get_input_embeddings()

        def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
            raise FloatingPointError("the card fell out")

    sampler = HFSampler()
    sampler.add("learner", *tiny)
    sampler.add("broken", Broken(), tiny[1])

    async def main():
        refs = [LEARNER, PolicyRef("broken"), LEARNER, PolicyRef("broken")]
        params = SamplingParams(max_tokens=2, seed=1)
        asked = [sampler.sample(ref, PROMPTS[i], params, key=key(i)) for i, ref in enumerate(refs)]
        first = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
        after = await sampler.sample(LEARNER, PROMPTS[0], params, key=key(0))
        return first, after

    first, after = asyncio.run(main())
    assert len(first[0].token_ids) == len(first[2].token_ids) == len(after.token_ids) == 2
    for error in (first[1], first[3]):
        assert isinstance(error, SamplerError)
        assert "policy 'broken@latest' failed on a batch of 2 requests: FloatingPointError: the card fell out" in str(error)
        assert isinstance(error.__cause__, FloatingPointError)
    assert first[1] is not first[3]
    assert "failed on a batch" in caplog.text


def test_t5_diverged_weights_give_an_error_and_no_invented_ids(ask):
    sampler = HFSampler()
    model, tokenizer = build_tiny(3)
    sampler.add("learner", model, tokenizer, version=8)
    with torch.no_grad():
        model.get_input_embeddings().weight[50] = float("nan")
    healthy, sick = (10, 11), (10, 50)

    async def main():
        params = SamplingParams(max_tokens=1, seed=1)
        asked = [sampler.sample(LEARNER, prompt, params, key=key(i)) for i, prompt in enumerate((sick, healthy))]
        return await asyncio.gather(*asked, return_exceptions=True)

    error, completion = asyncio.run(main())
    assert isinstance(error, SamplerError)
    assert "policy 'learner' at version 8 gave logits that are no distribution" in str(error)
    assert len(completion.token_ids) == 1


@pytest.mark.parametrize(("prompt", "message"), [((), "prompt is empty"), ((3, 259), "id 259 is none of the model's")])
def test_a_prompt_that_cannot_be_read_fails_alone(make_sampler, prompt, message):
    sampler = make_sampler()

    async def main():
        asked = [sampler.sample(LEARNER, p, SamplingParams(max_tokens=1), key=key(i)) for i, p in enumerate((prompt, (5,)))]
        return await asyncio.gather(*asked, return_exceptions=True)

    error, completion = asyncio.run(main())
    assert isinstance(error, SamplerError) and message in str(error)
    assert len(completion.token_ids) == 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_keys_that_do_not_compare_fail_and_do_not_hang(make_sampler, deterministic, caplog):
    sampler = make_sampler(deterministic=deterministic)

    async def main():
        sampler.enter(1)
        asked = [sampler.sample(LEARNER, (5,), SamplingParams(max_tokens=1), key=k) for k in (key(0), ("x",))]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)

    completion, error = asyncio.run(main())
    assert isinstance(error, ConfigError) and len(completion.token_ids) == 1


@pytest.mark.parametrize(
    ("prompt", "settings"),
    [((5.5,), {}), ("ab", {}), ((None,), {}), ((5,), {"max_tokens": 2.5}), ((5,), {"temperature": 1e-9}),
     ((5,), {"seed": "x"}), ((5,), {"stop": (1,)})],
)  # fmt: skip
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_request_of_wrong_types_fails_alone(make_sampler, prompt, settings, deterministic):
    sampler = make_sampler(deterministic=deterministic)

    async def main():
        sampler.enter(2)
        both = [(prompt, SamplingParams(**{"max_tokens": 1, **settings})), ((5,), SamplingParams(max_tokens=1))]

        async def ask(group, prompt, params):
            try:
                return await sampler.sample(LEARNER, prompt, params, key=key(group))
            finally:
                sampler.leave()

        asked = [ask(group, *one) for group, one in enumerate(both)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)

    error, completion = asyncio.run(main())
    assert isinstance(error, ConfigError) and len(completion.token_ids) == 1


SMALL = {"vocab_size": 259, "hidden_size": 32, "initializer_range": 0.3, "max_position_embeddings": 128}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "rope_theta": 1e4, "factor": 2.7}


def phi3():
    config = Phi3Config(
        **SMALL, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0,
        original_max_position_embeddings=48, rope_scaling=dict(LONG),
    )  # fmt: skip
    return Phi3ForCausalLM(config).eval()


def gpt_neo():
    config = GPTNeoConfig(
        **SMALL, intermediate_size=48, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=20,
        attention_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return GPTNeoForCausalLM(config).eval()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("build", "context"), [(phi3, 48), (gpt_neo, 128)])
def test_models_that_read_far_and_near_ids_otherwise_have_the_logprobs_of_whole_rows(
    tiny, ask, plain_logprobs, build, context, deterministic
):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
    sampler = HFSampler(deterministic=deterministic)
    sampler.add("learner", model, tiny[1], eos_ids=[], context=128)
    lengths = (3, 45, 21, 9)
    pairs = [(tuple(range(10, 10 + n)), SamplingParams(max_tokens=40, seed=n)) for n in lengths]
    for (prompt, _), n, completion in zip(pairs, lengths, ask(sampler, pairs), strict=True):
        assert len(completion.token_ids) == min(40, context - n)
        expected = plain_logprobs(model, prompt, completion.token_ids, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
    sampler.close()


def test_unknown_policies_and_bad_settings_are_refused_at_once(make_sampler):
    sampler = make_sampler()
    sampler.enter(5)  # nothing would ever be drawn

    def ask_for(ref, params):
        return asyncio.run(asyncio.wait_for(sampler.sample(ref, (5,), params, key=key(0)), 5))

    with pytest.raises(UnknownId, match="did you mean 'learner'"):
        ask_for(PolicyRef("lerner"), SamplingParams())
    with pytest.raises(UnknownId, match="unknown version of policy 'learner' '3'"):
        ask_for(PolicyRef("learner", "3"), SamplingParams())
    with pytest.raises(ConfigError, match="temperature"):
        ask_for(LEARNER, SamplingParams(temperature=-1.0))


def test_p3_completions_carry_the_version_they_were_drawn_with(make_sampler, ask):
    sampler = HFSampler()
    sampler.add("learner", *build_tiny(3))
    sampler.add("other", *build_tiny(5), version=40)
    greedy = [(PROMPTS[1], SamplingParams(max_tokens=6, temperature=0.0))]
    [old] = ask(sampler, greedy)
    sampler.load("learner", build_tiny(4)[0].state_dict(), 1)
    sampler.load("learner", build_tiny(3)[0].state_dict(), 1, variant="ema")
    refs = ("learner", "learner@1", "learner@ema", "other")
    [new], [numbered], [ema], [other] = (ask(sampler, greedy, ref) for ref in refs)
    assert [c.version for c in (old, new, numbered, ema, other)] == [0, 1, 1, 1, 40]
    assert other.policy == "other"
    assert new.token_ids == numbered.token_ids != old.token_ids == ema.token_ids
    assert sampler.version(PolicyRef("learner")) == 1


def test_several_policies_in_one_batch_answer_as_they_do_alone(ask):
    sampler = HFSampler()
    refs = ["a", "b", "a@ema"]
    sampler.add("a", *build_tiny(1))
    sampler.add("b", *build_tiny(2))
    sampler.load("a", build_tiny(6)[0].state_dict(), 0, variant="ema")
    params = SamplingParams(max_tokens=8, seed=9)

    async def together():
        asked = [sampler.sample(PolicyRef.parse(ref), PROMPTS[0], params, key=key(i)) for i, ref in enumerate(refs)]
        return await asyncio.gather(*asked)

    alone = [ask(sampler, [(PROMPTS[0], params)], ref)[0] for ref in refs]
    assert asyncio.run(together()) == alone
    assert len({c.token_ids for c in alone}) == 3


def play(sampler, order_seed, episodes=12):
    """Episodes of different lengths, whose prompts hang on their replies; asks arrive in an order drawn from the seed."""
    shuffle = random.Random(order_seed)

    async def episode(number):
        drawn, prompt = [], (10 + number % 3, 20)
        try:
            for turn in range(1 + number % 4):
                for _ in range(shuffle.randrange(4)):
                    await asyncio.sleep(0)
                params = SamplingParams(max_tokens=1 + 3 * (number % 2), temperature=1.0, seed=100 * number + turn)
                drawn.append(await sampler.sample(LEARNER, prompt, params, key=key(number, turn)))
                prompt = (*prompt, *drawn[-1].token_ids, 30)
            return drawn
        finally:
            sampler.leave()

    async def main():
        sampler.enter(episodes)
        numbers = list(range(episodes))
        shuffle.shuffle(numbers)
        tasks = {number: asyncio.create_task(episode(number)) for number in numbers}
        await asyncio.wait_for(asyncio.gather(*tasks.values()), 20)
        return [tasks[number].result() for number in range(episodes)]

    return asyncio.run(main())


@pytest.mark.parametrize("max_batch", [256, 5])
def test_two_runs_are_equal_bit_for_bit_whatever_the_order_of_arrival(make_sampler, max_batch):
    sampler = make_sampler(max_batch=max_batch)
    assert play(sampler, 1) == play(sampler, 2) == play(make_sampler(max_batch=max_batch), 3)


def test_the_other_mode_draws_the_same_ids_up_to_rounding(make_sampler):
    in_step, free = play(make_sampler(), 1), play(make_sampler(deterministic=False), 2)
    for ours, theirs in zip(in_step, free, strict=True):
        assert [c.token_ids for c in ours] == [c.token_ids for c in theirs]


def test_identical_prompts_are_read_once_and_cached_once(tiny, ask):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.config, self.shapes = tiny[0], tiny[0].config, []

        def get_input_embeddings(self):
            return self.inner.get_input_embeddings()

        def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None,
                    logits_to_keep=0):  # fmt: skip
            self.shapes.append(tuple(input_ids.shape))
            return self.inner(
                input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=past_key_values,
                use_cache=use_cache, logits_to_keep=logits_to_keep,
            )  # fmt: skip

    counting = Counting()
    sampler = HFSampler()
    sampler.add("learner", counting, tiny[1], eos_ids=[])
    ask(sampler, [((5,), SamplingParams(max_tokens=2, seed=0))])  # at first use, what the model can do is tried
    counting.shapes.clear()
    one = [(PROMPTS[i % 2], SamplingParams(max_tokens=1, seed=i)) for i in range(20)]
    ask(sampler, one)
    assert counting.shapes == [(2, 17)]
    counting.shapes.clear()
    ask(sampler, [(PROMPTS[0], SamplingParams(max_tokens=3, seed=i)) for i in range(8)] + one[:2])
    # two prompts, then eight rows that go on
    assert counting.shapes == [(2, 17), (8, 1), (8, 1)]


def test_a_cancelled_request_does_not_hang_its_batch(make_sampler):
    sampler = make_sampler()

    async def episode(number):
        try:
            return await sampler.sample(LEARNER, PROMPTS[0], SamplingParams(max_tokens=1, seed=number), key=key(number))
        finally:
            sampler.leave()

    async def main():
        sampler.enter(3)
        first, second = (asyncio.create_task(episode(number)) for number in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        third = asyncio.create_task(episode(2))
        found = await asyncio.wait_for(asyncio.gather(first, second, third, return_exceptions=True), 5)
        assert isinstance(found[0], asyncio.CancelledError)
        assert len(found[1].token_ids) == len(found[2].token_ids) == 1

    asyncio.run(main())


def slow_sampler(tiny, seconds, **settings):
    """Every forward pass takes so long, in whatever thread it runs; the threads are noted."""
    model, tokenizer = build_tiny(3)
    threads = []

    def wait(*_):
        threads.append(threading.current_thread())
        time.sleep(seconds)

    model.register_forward_pre_hook(wait)
    sampler = HFSampler(**settings)
    sampler.add("learner", model, tokenizer)
    return sampler, threads


def test_out_of_step_the_loop_goes_on_while_the_model_works():
    model, tokenizer = build_tiny(3)
    began, go_on = threading.Event(), threading.Event()

    def wait(*_):
        began.set()
        assert go_on.wait(5), "the loop stood still"

    model.register_forward_pre_hook(wait)
    sampler = HFSampler(deterministic=False)
    sampler.add("learner", model, tokenizer)

    async def main():
        asked = asyncio.create_task(sampler.sample(LEARNER, (5,), SamplingParams(max_tokens=1), key=key(0)))
        while not began.is_set():
            await asyncio.sleep(0.001)
        go_on.set()
        assert len((await asked).token_ids) == 1

    asyncio.run(asyncio.wait_for(main(), 10))
    sampler.close()


def test_in_step_everything_happens_on_the_loops_thread(tiny, ask):
    sampler, threads = slow_sampler(tiny, 0.0)
    ask(sampler, [((5,), SamplingParams(max_tokens=2, seed=1))])
    assert set(threads) == {threading.main_thread()}


def test_out_of_step_who_comes_while_the_model_works_is_in_the_next_batch_together(tiny):
    sampler, threads = slow_sampler(tiny, 0.05, deterministic=False)

    async def main():
        params = SamplingParams(max_tokens=1, seed=1)
        first = asyncio.create_task(sampler.sample(LEARNER, (5,), params, key=key(0)))
        await asyncio.sleep(0.02)
        gone = asyncio.create_task(sampler.sample(LEARNER, (6,), params, key=key(1)))
        later = [sampler.sample(LEARNER, (7 + i,), params, key=key(2 + i)) for i in range(3)]
        asyncio.get_running_loop().call_later(0.01, gone.cancel)
        await asyncio.wait_for(asyncio.gather(first, *later), 5)

    asyncio.run(main())
    assert len(threads) == 2
    sampler.close()


def test_a_request_cancelled_while_it_is_drawn_leaves_the_others_alone(tiny):
    sampler, _ = slow_sampler(tiny, 0.05, deterministic=False)

    async def main():
        params = SamplingParams(max_tokens=1, seed=1)
        gone, kept = (asyncio.create_task(sampler.sample(LEARNER, (5 + i,), params, key=key(i))) for i in range(2))
        await asyncio.sleep(0.02)
        gone.cancel()
        assert len((await asyncio.wait_for(kept, 5)).token_ids) == 1
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())
    sampler.close()


def test_load_waits_for_the_batch_that_is_drawn(tiny):
    sampler, _ = slow_sampler(tiny, 0.05, deterministic=False)

    async def main():
        asked = asyncio.create_task(sampler.sample(LEARNER, (5,), SamplingParams(max_tokens=1, seed=1), key=key(0)))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(sampler.load, "learner", build_tiny(4)[0].state_dict(), 1)
        return await asked, await sampler.sample(LEARNER, (5,), SamplingParams(max_tokens=1, seed=1), key=key(0))

    old, new = asyncio.run(main())
    assert (old.version, new.version) == (0, 1)
    sampler.close()


def test_closing_fails_what_waits_and_takes_no_more(make_sampler):
    sampler = make_sampler()

    async def main():
        sampler.enter(2)
        waiting = asyncio.create_task(sampler.sample(LEARNER, (5,), SamplingParams(), key=key(0)))
        await asyncio.sleep(0.01)
        sampler.close()
        with pytest.raises(SamplerError, match="closed while this request waited"):
            await waiting
        with pytest.raises(SamplerError, match="the sampler is closed"):
            await sampler.sample(LEARNER, (5,), SamplingParams(), key=key(0))

    asyncio.run(main())


def test_an_interrupt_while_the_model_works_leaves_a_sampler_that_can_be_used(tiny, ask):
    model, tokenizer = build_tiny(3)
    steps = []

    def interrupt(*_):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt

    sampler = HFSampler()
    sampler.add("learner", model, tokenizer)
    pair = [(PROMPTS[0], SamplingParams(max_tokens=9, seed=4))]
    expected = ask(sampler, pair)
    hook = model.model.embed_tokens.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask(sampler, pair)
    hook.remove()
    sampler.load("learner", tiny[0].state_dict(), 0)
    assert ask(sampler, pair) == expected


@pytest.mark.parametrize(("setting", "message"), [({"max_batch": 0}, "max_batch 0"), ({"kv_cache_mib": -1}, "given: -1")])
def test_a_batch_needs_room(setting, message):
    with pytest.raises(ConfigError, match=message):
        HFSampler(**setting)


def test_the_tokens_of_one_batch_are_drawn_from_one_process_wide_generator_never(make_sampler, ask):
    """Neither Python's nor torch's global generator moves, and neither moves a draw."""
    pair = [(PROMPTS[0], SamplingParams(max_tokens=10, seed=4))]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ask(make_sampler(), pair)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert ask(make_sampler(), pair) == first
