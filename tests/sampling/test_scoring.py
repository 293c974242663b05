import pytest

from opentinker.errors import ConfigError, UnknownId
from opentinker.types import PolicyRef

LEARNER = PolicyRef("learner")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("max_batch", [2, 256])
def test_score_equals_a_plain_forward(tiny, make_sampler, plain_logprobs, temperature, max_batch):
    prompts = [(5, 6, 7), (8,), (5, 6, 7), (9, 10), (5, 6, 7)]
    completions = [(20, 21), (30, 31, 32, 33), (), (40,), (20, 21)]
    scores = make_sampler(max_batch=max_batch).score(LEARNER, prompts, completions, temperature)
    for prompt, completion, scored in zip(prompts, completions, scores, strict=True):
        assert scored == pytest.approx(plain_logprobs(tiny[0], prompt, completion, temperature), abs=1e-5)


def test_nothing_to_score(make_sampler):
    assert make_sampler().score(LEARNER, [], []) == []


@pytest.mark.parametrize(
    ("prompts", "completions", "temperature", "message"),
    [
        ([(1,)], [], 1.0, "1 prompts but 0 completions"),
        ([(1,), ()], [(1,), (2,)], 1.0, "row 1 has an empty prompt"),
        ([(1,)], [(259,)], 1.0, "row 0 cannot be scored: id 259 is none"),
        ([(1,) * 1000], [(2,) * 25], 1.0, "row 0 cannot be scored: it has 1025 ids, the model reads 1024"),
        ([(1,)], [(1,)], 0.0, "at least 1e-06, given: 0.0"),
    ],
)
def test_rows_that_cannot_be_scored(make_sampler, prompts, completions, temperature, message):
    with pytest.raises(ConfigError, match=message):
        make_sampler().score(LEARNER, prompts, completions, temperature)


def test_unknown_policy(make_sampler):
    with pytest.raises(UnknownId, match="unknown policy 'nobody'"):
        make_sampler().score(PolicyRef("nobody"), [(1,)], [(1,)])
