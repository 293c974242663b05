"""The engine's shortcuts change nothing: against plain Hugging Face, and against verl's own engine."""

from __future__ import annotations

import os
import random

import pytest
import torch

from opentinker.training.batch import make_rows


def dialogues(sample, n=24, **settings):
    """Rows that share prompts, with one to three answers; about half have the prompts of Kuhn poker's size."""
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 259) for _ in range(size)] for size in (43, 44, 12)]
    rows = []
    for index in range(n):
        parts = [[draw.randrange(3, 259) for _ in range(draw.randint(1, 3))] for _ in range(1 + 2 * (index % 3))]
        count = sum(len(part) for part in parts[::2])
        rows.append(
            sample(
                prompts[index % 3],
                *parts,
                logprobs=[draw.uniform(-7, -4) for _ in range(count)],
                advantages=[draw.gauss(0, 1) for _ in range(count)],
                episode=f"1/{index}/0",
                **settings,
            )
        )
    return rows


def reference(plain, sample, temperature):
    ids = torch.tensor([sample.token_ids])
    with torch.no_grad():
        table = torch.log_softmax(plain(ids).logits[0].double() / temperature, dim=-1)
    scored = [i for i, mask in enumerate(sample.loss_mask) if mask]
    return [float(table[i - 1, sample.token_ids[i]]) for i in scored]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_log_probabilities_equal_hugging_face(make_worker, plain, sample, temperature):
    worker = make_worker(micro_batch_tokens=300)
    samples = dialogues(sample, temperature=temperature)
    found = worker.log_probs(make_rows(samples))
    for row, given in zip(samples, found, strict=True):
        assert given == pytest.approx(reference(plain, row, temperature), abs=1e-5)


def test_entropy_is_that_of_the_distribution_each_id_was_drawn_from(make_worker, plain, sample):
    row = sample([5, 6, 7], [8], [9], [10], temperature=0.7)
    worker = make_worker()
    worker.log_probs(make_rows([row]))
    with torch.no_grad():
        table = torch.log_softmax(plain(torch.tensor([row.token_ids])).logits[0] / 0.7, dim=-1)
    expected = -(table.exp() * table).sum(-1)[[2, 4]]
    assert worker.engine.scores.entropy == pytest.approx(expected, abs=1e-5)


def stock_gradients(tiny, train, samples, loss):
    """The same update as verl alone would compute it: its own engine, nested batches, one micro-batch."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine_workers_tinker import TinkerTrainingWorker

    from opentinker.training.bringup import quiet, verl_environment
    from opentinker.training.worker import actor_config, local, ppo_loss, sft_loss, worker_config

    with verl_environment(), quiet():
        os.environ["VERL_ENGINE_DEVICE"] = "cuda"
        worker = TinkerTrainingWorker(worker_config(str(tiny), train, {}))
        worker.reset()
    assert type(worker.engine).__name__ == "FSDPEngineWithLMHead"
    config = actor_config(train)
    worker.set_loss_fn(lambda **kwargs: {"ppo": ppo_loss, "sft": sft_loss}[loss](config=config, **kwargs))

    def nest(rows):
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    starts = [row.loss_mask.index(1) for row in samples]
    pairs = list(zip(samples, starts, strict=True))
    batch = tu.get_tensordict(
        {
            "input_ids": nest([row.token_ids for row in samples]),
            "position_ids": nest([range(len(row.token_ids)) for row in samples]),
            "loss_mask": nest([row.loss_mask for row in samples]),
            "prompts": nest([row.token_ids[:start] for row, start in pairs]),
            "responses": nest([row.token_ids[start:] for row, start in pairs]),
            "response_mask": nest([row.loss_mask[start:] for row, start in pairs]),
            "old_log_probs": nest([row.logprobs[start:] for row, start in pairs]),
            "advantages": nest([row.advantages[start:] for row, start in pairs]),
        },
        non_tensor_dict={
            "temperature": samples[0].temperature,
            "global_batch_size": len(samples),
            "calculate_entropy": train.entropy_coeff > 0 and loss == "ppo",
            "use_dynamic_bsz": False,
            "micro_batch_size_per_gpu": len(samples),
        },
    )
    metrics = tu.get(worker.forward_backward(batch), "metrics")
    return float(metrics["loss"]), {name: local(p.grad).clone() for name, p in worker.engine.module.named_parameters()}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("loss", "settings", "temperature"),
    [
        ("ppo", {}, 1.0),
        ("ppo", {"loss_agg": "token-sum", "clip_ratio": 0.05}, 1.7),
        ("ppo", {"entropy_coeff": 0.3}, 0.5),
        ("ppo", {"loss": "gspo"}, 1.0),
        ("ppo", {"loss": "sapo"}, 1.0),
        ("sft", {}, 1.0),
    ],
)
def test_gradients_equal_those_of_verls_own_engine(make_worker, gradients, sample, tiny, loss, settings, temperature):
    worker = make_worker(micro_batch_tokens=400, **settings)
    samples = dialogues(sample, temperature=temperature)
    expected_loss, expected = stock_gradients(tiny, worker.train, samples, loss)
    found = gradients(worker, samples, loss)
    assert worker.accumulate(make_rows(samples), getattr(worker, loss))["loss"] == pytest.approx(expected_loss, abs=1e-5)
    scale = max(float(value.abs().max()) for value in expected.values())
    assert found.keys() == expected.keys() and scale > 1e-3
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) <= 2e-6 * max(scale, 1.0), name
