"""Policy losses by name, out of verl's registry."""

from __future__ import annotations

from opentinker.config import TrainConfig
from opentinker.errors import ConfigError, UnknownId

TOKEN_LOSSES = frozenset({"vanilla", "gpg", "cispo", "dppo_tv", "dppo_kl", "clip_cov", "kl_cov"})
"""Losses of verl that treat each sampled id alone, whichever row it stands in."""

LINEAR_LOSSES = frozenset({"vanilla", "gpg", "cispo", "dppo_tv", "dppo_kl"})
"""Of these, the ones whose gradient is linear in the advantage as long as the policy is the one that sampled."""

REFUSED = {
    "dro": "it needs `dro_beta`, which the configuration has no key for",
    "bypass_mode": "it needs verl's rollout correction; this package already trains on the sampler's log-probabilities",
    "geo_mean": "it averages over rows, so splitting a dialogue into rows would change the gradient",
}


def check_loss(name: str) -> None:
    """Refuses names that are not in verl's registry or cannot be trained here.

    Raises:
        UnknownId: with near names.
        ConfigError: with the reason.
    """
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    if name in REFUSED:
        raise ConfigError(f"train.loss {name!r} is not supported: {REFUSED[name]}; vanilla is the usual choice")
    if name not in POLICY_LOSS_REGISTRY:
        usable = [known for known in POLICY_LOSS_REGISTRY if known not in REFUSED]
        raise UnknownId("policy loss", name, usable, "train.loss; own ones are registered with verl's register_policy_loss")


def sees_rows(name: str) -> bool:
    """Whether the loss must be given one row a sample; assumed of losses this package does not know."""
    return name not in TOKEN_LOSSES


def merging_is_exact(train: TrainConfig) -> bool:
    """Whether identical rows with summed advantages give the gradient of the rows themselves.

    They do for one optimiser step on the samples of the current weights, where the probability ratio is 1 and the loss is
    linear in the advantage, and without an entropy bonus, which counts rows whatever their advantage.
    """
    return train.epochs == 1 and train.mini_batches == 1 and train.loss in LINEAR_LOSSES and train.entropy_coeff == 0
