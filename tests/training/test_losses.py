from __future__ import annotations

import math

import pytest

from opentinker.config import TrainConfig
from opentinker.errors import ConfigError, UnknownId
from opentinker.training.bringup import bring_up
from opentinker.training.losses import REFUSED, check_loss, merging_is_exact


@pytest.fixture(scope="module", autouse=True)
def verl():
    bring_up()


def test_an_unknown_loss_suggests_near_names():
    with pytest.raises(UnknownId, match=r"unknown policy loss 'vanila'; did you mean 'vanilla'\?"):
        check_loss("vanila")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_losses_that_cannot_be_trained_here_say_why(name):
    with pytest.raises(ConfigError, match=f"train.loss '{name}' is not supported"):
        check_loss(name)


@pytest.mark.parametrize(
    ("settings", "exact"),
    [
        ({}, True),
        ({"loss": "gpg"}, True),
        ({"loss_agg": "token-sum"}, True),
        ({"epochs": 2}, False),
        ({"mini_batches": 2}, False),
        ({"entropy_coeff": 0.01}, False),
        ({"loss": "gspo"}, False),
        ({"loss": "kl_cov"}, False),
    ],
)
def test_merging_is_exact_for_one_linear_step_only(settings, exact):
    assert merging_is_exact(TrainConfig(**settings)) is exact


def test_every_other_loss_of_verl_trains(make_worker, sample):
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    from opentinker.training.batch import make_rows
    from opentinker.training.worker import actor_config, ppo_loss

    worker = make_worker()
    samples = [sample([5, 6, 7], [8 + i], [20], [9 + i], logprobs=[-5.0, -5.5], advantages=i - 1.5) for i in range(4)]
    usable = sorted(set(POLICY_LOSS_REGISTRY) - set(REFUSED))
    assert {"vanilla", "gspo", "cispo", "sapo"} <= set(usable)
    for name in usable:
        check_loss(name)
        train = TrainConfig(loss=name)
        worker.train = train
        import functools

        worker.ppo = functools.partial(ppo_loss, config=actor_config(train))
        figures = worker.step(make_rows(samples), worker.ppo, 1e-3)
        assert math.isfinite(figures["loss"]) and figures["grad_norm"] > 0, name
