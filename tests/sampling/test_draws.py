import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opentinker.sampling.draws import Knobs, draw, restrict, uniforms
from opentinker.types import SamplingParams


def one(logits, params, uniform):
    """The id drawn from one distribution for each number in `uniform`."""
    n = len(uniform)
    return draw(torch.tensor([logits]), np.zeros(n, np.int64), Knobs.of([params] * n), np.arange(n), np.array(uniform))


def test_inverts_the_cumulative_distribution():
    # probabilities 1/2, 1/4, 0, 1/4: the id of weight 0 is never drawn, not even on its border
    logits = [np.log(2.0), 0.0, -np.inf, 0.0]
    drawn = one(logits, SamplingParams(), [0.0, 0.49, 0.51, 0.74, 0.76, 1 - 2**-52])
    assert drawn.ids.tolist() == [0, 0, 1, 1, 3, 3]
    assert drawn.logprobs == pytest.approx(np.log([0.5, 0.5, 0.25, 0.25, 0.25, 0.25]), abs=1e-6)
    assert drawn.ok.all()


def test_temperature_divides_the_logits():
    # odds 4:1 become 2:1 at temperature 2
    drawn = one([np.log(4.0), 0.0], SamplingParams(temperature=2.0), [0.66, 0.67])
    assert drawn.ids.tolist() == [0, 1]
    assert np.exp(drawn.logprobs) == pytest.approx([2 / 3, 1 / 3], abs=1e-6)


def test_greedy_takes_the_best_with_the_logprob_of_temperature_one():
    drawn = one([0.0, np.log(3.0), 0.0], SamplingParams(temperature=0.0), [0.0, 0.99])
    assert drawn.ids.tolist() == [1, 1]
    assert np.exp(drawn.logprobs) == pytest.approx([0.6, 0.6], abs=1e-6)


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        (SamplingParams(top_k=1), {1}),
        (SamplingParams(top_k=2), {1, 3}),
        (SamplingParams(top_k=99), {0, 1, 2, 3}),
        (SamplingParams(top_p=0.39), {1}),
        (SamplingParams(top_p=0.41), {1, 3}),
        (SamplingParams(top_p=0.89), {1, 3, 2}),
        (SamplingParams(top_p=1e-9), {1}),
        # of the two heaviest (.4 and .3, renewed .571 and .429), the first alone holds the share .5
        (SamplingParams(top_k=2, top_p=0.5), {1}),
    ],
)
def test_top_k_and_top_p_limit_the_ids_but_not_the_logprobs(params, allowed):
    p = np.array([0.1, 0.4, 0.2, 0.3])
    drawn = one(np.log(p).tolist(), params, np.linspace(0, 1 - 2**-52, 200))
    assert set(drawn.ids.tolist()) == allowed
    assert np.exp(drawn.logprobs) == pytest.approx(p[drawn.ids], abs=1e-6)


def test_limited_draws_keep_the_proportions():
    drawn = one(np.log([0.1, 0.4, 0.2, 0.3]).tolist(), SamplingParams(top_k=2), np.linspace(0, 1 - 2**-52, 7001))
    assert np.mean(drawn.ids == 1) == pytest.approx(4 / 7, abs=1e-3)


def test_equal_weights_are_ranked_by_id():
    kept = restrict(torch.tensor([[1.0, 2.0, 1.0, 1.0]]), torch.tensor([2]), torch.tensor([1.0]))
    assert kept.tolist() == [[1.0, 2.0, 0.0, 0.0]]


def test_rows_that_share_logits_and_rows_that_do_not():
    # three settings over two distributions in one call, in no order
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.2, 0.8]]))
    params = [SamplingParams(), SamplingParams(temperature=0.5), SamplingParams(temperature=0.0), SamplingParams()]
    drawn = draw(logits, np.array([1, 1, 1, 0]), Knobs.of(params), np.arange(4), np.array([0.1, 0.1, 0.1, 0.6]))
    # at temperature .5 the odds 1:4 are 1:16
    assert drawn.ids.tolist() == [0, 1, 1, 1]
    assert np.exp(drawn.logprobs) == pytest.approx([0.2, 16 / 17, 0.8, 0.5], abs=1e-6)


def test_what_is_no_distribution_is_said_to_be_none():
    logits = torch.tensor([[0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf], [0.0, -np.inf]])
    drawn = draw(logits, np.arange(4), Knobs.of([SamplingParams()] * 4), np.arange(4), np.full(4, 0.5))
    assert drawn.ok.tolist() == [False, False, False, True]


def test_blocks_do_not_change_the_draws(monkeypatch):
    generator = np.random.default_rng(0)
    logits, source = torch.from_numpy(generator.normal(size=(30, 7))), generator.integers(0, 30, 200)
    knobs = Knobs.of([SamplingParams(temperature=1.0 + i % 3, top_p=1.0 - 0.1 * (i % 2)) for i in range(200)])
    uniform = generator.random(200)
    whole = draw(logits, source, knobs, np.arange(200), uniform)
    monkeypatch.setattr("opentinker.sampling.draws._BLOCK", 4 * 7)
    parts = draw(logits, source, knobs, np.arange(200), uniform)
    assert whole.ids.tolist() == parts.ids.tolist()
    assert whole.logprobs == pytest.approx(parts.logprobs, abs=1e-6)


def test_uniforms_are_even_and_unrelated_between_neighbours():
    seeds = np.arange(40_000, dtype=np.uint64)
    first, second = uniforms(seeds, 0), uniforms(seeds, 1)
    for values in (first, second):
        counts = np.histogram(values, bins=20, range=(0, 1))[0]
        assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square, 19 degrees of freedom, 0.1 %
    # standard deviation of a correlation of unrelated numbers is 0.005
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02


@given(st.integers(0, 2**64 - 1), st.integers(0, 5000))
def test_uniforms_depend_on_seed_and_position_alone(seed, position):
    alone = uniforms(np.array([seed], np.uint64), position)
    among = uniforms(np.array([7, seed, 9], np.uint64), position)
    assert alone[0] == among[1]
    assert 0 <= alone[0] < 1


def test_streams_a_golden_ratio_apart_are_not_shifted_copies():
    golden = 0x9E3779B97F4A7C15
    assert uniforms(np.array([5], np.uint64), 1)[0] != uniforms(np.array([5 + golden], np.uint64), 0)[0]
