import asyncio

import pytest

from opentinker.errors import SamplerError
from opentinker.testing import CountingPace, ScriptedSampler
from opentinker.types import Completion, FinishReason, PolicyRef, SamplingParams

KEY = (0, 1, "player_0", 2, 0)


def sample(sampler, params=None, prompt="hi"):
    call = sampler.sample(PolicyRef("learner"), tuple(map(ord, prompt)), params or SamplingParams(), key=KEY)
    return asyncio.run(call)


def test_a_text_becomes_ids_and_an_end():
    # b    y    end
    # 98   121  0
    assert sample(ScriptedSampler(["by"], version=4)) == Completion(
        (98, 121, 0), (-1.0, -1.0, -1.0), "by", FinishReason.EOS, "learner", 4
    )


def test_an_empty_text_is_an_immediate_end():
    completion = sample(ScriptedSampler([""]))
    assert (completion.token_ids, completion.text, completion.finish_reason) == ((0,), "", FinishReason.EOS)


@pytest.mark.parametrize(
    ("max_tokens", "ids", "text", "reason"),
    [
        (3, (98, 121, 0), "by", FinishReason.EOS),
        (2, (98, 121), "by", FinishReason.LENGTH),  # no room for the end
        (1, (98,), "b", FinishReason.LENGTH),
    ],
)
def test_max_tokens_cuts(max_tokens, ids, text, reason):
    completion = sample(ScriptedSampler(["by"]), SamplingParams(max_tokens=max_tokens))
    assert (completion.token_ids, completion.text, completion.finish_reason) == (ids, text, reason)
    assert len(completion.logprobs) == len(ids)


def test_the_earliest_stop_string_ends_and_is_sampled_but_not_shown():
    completion = sample(ScriptedSampler(["a;b.c"]), SamplingParams(stop=(".", ";")))
    assert (completion.token_ids, completion.text, completion.finish_reason) == ((97, 59), "a", FinishReason.STOP)


def test_requests_are_kept():
    sampler = ScriptedSampler(lambda request: request.prompt.upper())
    assert sample(sampler).text == "HI"
    (request,) = sampler.requests
    assert (request.prompt, request.prompt_ids, request.key, str(request.ref)) == ("hi", (104, 105), KEY, "learner@latest")


def test_a_reply_may_be_an_error_a_completion_or_awaited():
    whole = Completion((7,), (-0.5,), "x", FinishReason.CONTEXT, "learner", 1)

    async def later(request):
        await asyncio.sleep(0)
        return whole

    assert sample(ScriptedSampler([whole])) is whole
    assert sample(ScriptedSampler(later)) is whole
    with pytest.raises(ZeroDivisionError):
        sample(ScriptedSampler([ZeroDivisionError()]))


def test_used_up_replies_name_the_request():
    with pytest.raises(SamplerError, match=r"no scripted reply is left for the request .*player_0.* the prompt 'hi'"):
        sample(ScriptedSampler([]))


class Tokenizer:
    """Two characters are one token."""

    eos_token_id = 9999

    def encode(self, text, add_special_tokens):
        assert add_special_tokens is False
        return [ord(text[at]) * 1000 + ord(text[at + 1]) for at in range(0, len(text), 2)]

    def decode(self, ids):
        return "".join(chr(id // 1000) + chr(id % 1000) for id in ids)


def test_with_a_tokenizer():
    completion = sample(ScriptedSampler(["goal"], tokenizer=Tokenizer()), SamplingParams(max_tokens=1), prompt="")
    assert (completion.token_ids, completion.text) == ((103111,), "go")
    assert sample(ScriptedSampler(["go"], tokenizer=Tokenizer()), prompt="").token_ids == (103111, 9999)


def test_a_counting_pace_counts():
    pace = CountingPace()
    pace.enter(3)
    pace.leave()
    assert (pace.count, pace.highest) == (2, 3)
    with pytest.raises(ValueError, match="3 left, but only 2 had entered"):
        pace.leave(3)
