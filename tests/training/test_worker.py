"""What the configuration says reaches verl's loss and optimiser, and the figures are what they claim to be."""

from __future__ import annotations

import math

import pytest
import torch

from opentinker.training.batch import make_rows


def flat(tensors):
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def weights_of(worker):
    return {name: value.clone() for name, value in worker.weights().items()}


def on_policy(worker, samples):
    """The samples with this worker's own log-probabilities, as a sampler would have given them."""
    from dataclasses import replace

    result = []
    for row, found in zip(samples, worker.log_probs(make_rows(samples)), strict=True):
        values = iter(found)
        result.append(replace(row, logprobs=tuple(next(values) if scored else 0.0 for scored in row.loss_mask)))
    return result


def test_p7_learning_rate_betas_decay_and_clipping_reach_adamw(make_worker, gradients, sample):
    """Two steps by hand: m, v and decoupled weight decay with the given betas, on the clipped gradient."""
    optim = {"lr": 5.0, "betas": (0.5, 0.7), "weight_decay": 0.1, "clip": 0.25}
    worker = make_worker(optim=optim, steps=3)
    rates = (0.01, 0.003)
    samples = [sample([5, 6, 7], [8 + i], logprobs=[-5.0], advantages=4.0 - i) for i in range(6)]
    expected, m, v = weights_of(worker), {}, {}
    for step, lr in enumerate(rates, start=1):
        grads = gradients(worker, samples)
        norm = math.sqrt(sum(float(grad.double().square().sum()) for grad in grads.values()))
        assert norm > 0.25, "or clipping would not be tested"
        figures = worker.step(make_rows(samples), worker.ppo, lr)
        assert figures["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert figures["lr"] == lr
        for name, grad in grads.items():
            grad = grad.double() * 0.25 / (norm + 1e-6)
            m[name] = 0.5 * m.get(name, 0.0) + 0.5 * grad
            v[name] = 0.7 * v.get(name, 0.0) + 0.3 * grad**2
            mean, square = m[name] / (1 - 0.5**step), v[name] / (1 - 0.7**step)
            expected[name] = expected[name].double() * (1 - lr * 0.1) - lr * mean / (square.sqrt() + 1e-8)
    found = weights_of(worker)
    # where the gradient is as small as epsilon, float32 moves the quotient
    difference = (flat(found) - flat(expected).float()).abs()
    assert float(difference.median()) < 1e-6 and float(difference.max()) < 1e-3
    for group in worker.engine.optimizer.param_groups:
        assert (group["lr"], group["betas"], group["weight_decay"]) == (0.003, (0.5, 0.7), 0.1)
    assert worker.engine.optimizer_config.clip_grad == 0.25


def test_p7_clip_ratio_is_the_bound_that_clips(make_worker, gradients, sample):
    """At a ratio of e^0.3 = 1.35 a positive advantage is clipped (no gradient) by 0.2, not by 0.4."""
    base = sample([5, 6, 7], [8])
    tight, loose = make_worker(clip_ratio=0.2), make_worker(clip_ratio=0.4)
    logprob = tight.log_probs(make_rows([base]))[0][0]
    row = sample([5, 6, 7], [8], logprobs=[logprob - 0.3], advantages=1.0)
    assert float(flat(gradients(tight, [row])).abs().max()) == 0
    assert float(flat(gradients(loose, [row])).abs().max()) > 1e-3
    assert tight.step(make_rows([row]), tight.ppo, 0.0)["clip_fraction"] == 1
    assert loose.step(make_rows([row]), loose.ppo, 0.0)["clip_fraction"] == 0


def test_p7_entropy_coefficient_adds_the_gradient_of_the_entropy(make_worker, gradients, sample):
    plain, bonus = make_worker(), make_worker(entropy_coeff=0.5)
    samples = on_policy(plain, [sample([5, 6, 7], [8], advantages=0.0)])
    assert float(flat(gradients(plain, samples)).abs().max()) == 0
    before = bonus.accumulate(make_rows(samples), bonus.ppo)["entropy"]
    bonus.apply(1e-3)
    after = bonus.accumulate(make_rows(samples), bonus.ppo)["entropy"]
    assert after > before
    bonus.engine.optimizer_zero_grad()


def test_p7_loss_agg_divides_by_tokens_or_not_at_all(make_worker, gradients, sample):
    samples = [sample([5, 6, 7], [8, 9, 10], advantages=0.3), sample([5, 6], [8], advantages=-1.0)]
    mean, total = make_worker(), make_worker(loss_agg="token-sum")
    samples = on_policy(mean, samples)
    torch.testing.assert_close(flat(gradients(total, samples)), 4 * flat(gradients(mean, samples)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss_agg", ["token-mean", "token-sum"])
@pytest.mark.parametrize("loss", ["vanilla", "gpg", "cispo", "dppo_tv", "dppo_kl"])
def test_merged_rows_give_the_gradient_of_the_rows_themselves(make_worker, gradients, sample, loss, loss_agg):
    from opentinker.samples import merge_identical

    worker = make_worker(loss=loss, loss_agg=loss_agg)
    samples = on_policy(
        worker,
        [sample([5, 6, 7 + i % 2], [8 + i % 3, 9], [4], [3], advantages=(-1) ** i * (i + 1) / 7) for i in range(24)],
    )
    merged = merge_identical(samples)
    assert len(merged) == 6 and sum(row.weight for row in merged) == 24
    expected = flat(gradients(worker, samples))
    assert float(expected.abs().max()) > 1e-3
    assert float((flat(gradients(worker, merged)) - expected).abs().max()) <= 1e-6


def test_figures_count_merged_rows_by_weight(make_worker, sample):
    worker = make_worker()
    rows = [sample([5, 6, 7], [8], logprobs=[-5.0]), sample([5, 6], [9], logprobs=[-6.0])]
    many = worker.accumulate(make_rows([rows[0]] * 3 + [rows[1]]), worker.ppo)
    few = worker.accumulate(
        make_rows([sample([5, 6, 7], [8], logprobs=[-5.0], weight=3, advantages=3.0), rows[1]]), worker.ppo
    )
    worker.engine.optimizer_zero_grad()
    for name in ("loss", "kl", "entropy", "tokens"):
        assert few[name] == pytest.approx(many[name], rel=1e-5), name
    assert (many["rows"], few["rows"]) == (4, 2)
    first, second = worker.log_probs(make_rows(rows))
    assert many["kl"] == pytest.approx((3 * (-5.0 - first[0]) + (-6.0 - second[0])) / 4, abs=1e-5)


def test_micro_batches_do_not_change_the_gradient(make_worker, gradients, sample):
    samples = [sample([5, 6, 7][: 1 + i % 3], [8 + i, 9], advantages=i - 3.0, logprobs=[-5, -5]) for i in range(9)]
    whole, parts = make_worker(), make_worker(micro_batch_tokens=12)
    for loss in ("ppo", "sft"):
        expected = flat(gradients(whole, samples, loss))
        assert float((flat(gradients(parts, samples, loss)) - expected).abs().max()) <= 1e-6


def test_t2_glue_and_prompt_carry_no_gradient(make_worker, gradients, sample):
    """The loss moves by the sampled ids' log-probabilities alone: -(log p(8) + log p(10)) / 2 for a supervised step."""
    worker = make_worker()
    row = sample([5, 6], [8], [30, 31, 32], [10])
    found = worker.log_probs(make_rows([row]))[0]
    assert len(found) == 2
    loss = worker.accumulate(make_rows([row]), worker.sft)["loss"]
    worker.engine.optimizer_zero_grad()
    assert loss == pytest.approx(-sum(found) / 2, abs=1e-5)


def test_a_supervised_step_counts_rows_by_weight(make_worker, gradients, sample):
    worker = make_worker()
    rows = [sample([5, 6], [8]), sample([7], [9])]
    many = flat(gradients(worker, [rows[0]] * 3 + [rows[1]], "sft"))
    few = flat(gradients(worker, [sample([5, 6], [8], weight=3), rows[1]], "sft"))
    torch.testing.assert_close(few, many, rtol=1e-5, atol=1e-6)


def test_optimizer_state_comes_back_bit_for_bit(make_worker, sample):
    one, two = make_worker(), make_worker()
    rows = make_rows([sample([5, 6], [8], logprobs=[-5.0])])
    for _ in range(2):
        one.step(rows, one.ppo, 1e-2)
    two.load_weights({name: value.clone() for name, value in one.weights().items()})
    two.load_optimizer_state({name: value.clone() for name, value in one.optimizer_state().items()})
    for worker in (one, two):
        worker.step(rows, worker.ppo, 1e-2)
    for name, value in one.weights().items():
        assert torch.equal(value, two.weights()[name]), name
