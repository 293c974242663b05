"""As what a saved policy can be exported: told before anything slow is imported.

- `hf`: all weights in Hugging Face layout; of a policy without an adapter.
- `merged`: the same of a LoRA policy, its adapter added to the base's weights.
- `peft`: the adapter alone in PEFT's layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from opentinker.config import PolicyConfig, RunConfig
from opentinker.errors import ConfigError, UnknownId
from opentinker.runs.checkpoints import Checkpoint

Form = Literal["hf", "peft", "merged"]
EMA = "ema.safetensors"
"""The averaged weights in a policy's folder; absent where there are none."""


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported."""

    policy: str
    form: Form
    ema: bool
    """The averaged weights instead of the newest."""


def choose_export(
    config: RunConfig, checkpoint: Checkpoint, folder: Path, policy: str | None, form: str | None, ema: bool
) -> Export:
    """What `export_policy` is to do with these arguments, which it explains.

    Raises:
        UnknownId, ConfigError: as `export_policy`.
    """
    name = _policy(config, policy)
    settings = config.policies[name]
    chosen = _form(name, settings, form)
    if ema and not (checkpoint.policy_folder(name) / EMA).is_file():
        why = "train.ema is 0" if settings.trainable else "it does not train"
        raise ConfigError(f"policy {name!r} has no averaged weights ({why}); export its newest ones, without --ema")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists and is not an empty folder; export into another one")
    return Export(name, chosen, ema)


def _policy(config: RunConfig, policy: str | None) -> str:
    if policy is None:
        if len(config.policies) != 1:
            raise ConfigError(f"the run has policies {sorted(config.policies)}; say which one with --policy NAME")
        return next(iter(config.policies))
    if policy not in config.policies:
        raise UnknownId("policy", policy, config.policies)
    return policy


def _form(name: str, settings: PolicyConfig, form: str | None) -> Form:
    suitable: tuple[Form, ...] = ("hf",) if settings.adapter is None else ("merged", "peft")
    if form is None:
        return suitable[0]
    for known in suitable:
        if form == known:
            return known
    if form not in get_args(Form):
        raise UnknownId("form", form, get_args(Form))
    kind = "all its weights are trained" if settings.adapter is None else "it is an adapter"
    raise ConfigError(f"policy {name!r} cannot be exported as {form!r}: {kind}; use {' or '.join(suitable)}")
