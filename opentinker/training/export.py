"""A saved policy as a folder that plain transformers or PEFT load. No verl here.

- `hf`: all weights in Hugging Face layout; of a policy without an adapter.
- `merged`: the same of a LoRA policy, its adapter added to the base's weights.
- `peft`: the adapter alone in PEFT's layout. A `tiny` base, which exists nowhere else, is written beside it as `base/`. Its
  path stands in `adapter_config.json` as an absolute one, since PEFT reads relative ones from wherever the process stands.

The first two are models like any other: `model: FOLDER` starts a new run from them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from transformers import PreTrainedModel

from opentinker.config import PolicyConfig, RunConfig
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.runs.checkpoints import Checkpoint
from opentinker.training import state
from opentinker.training.adapters import merge, write_peft
from opentinker.training.bringup import quiet
from opentinker.training.models import TINY, load_model, load_tokenizer

Form = Literal["hf", "peft", "merged"]
BASE = "base"
"""Where the base of a `peft` export lies, if it is written."""


def export_policy(
    config: RunConfig,
    checkpoint: Checkpoint,
    folder: str | Path,
    *,
    policy: str | None = None,
    form: str | None = None,
    ema: bool = False,
) -> Form:
    """Writes one policy of a checkpoint, with its tokenizer. The folder is there whole or not at all.

    Args:
        config: the run's.
        checkpoint: a verified one of that run.
        folder: missing or empty.
        policy: which one; None where the run has a single one.
        form: `hf`, `peft` or `merged`; None: `hf`, under an adapter `merged`.
        ema: the averaged weights instead of the newest.

    Returns:
        The form.

    Raises:
        UnknownId: no such policy.
        ConfigError: several policies and none named, a form that does not suit the policy, no averaged weights, a folder
            that is not empty, or a base that is not there.
        CheckpointError: the checkpoint does not fit, for instance because the base has changed.
    """
    name = _choose(config, policy)
    settings = config.policies[name]
    chosen = _form(name, settings, form)
    saved = checkpoint.policy_folder(name)
    if ema and not (saved / state.EMA).is_file():
        why = "train.ema is 0" if settings.trainable else "it does not train"
        raise ConfigError(f"policy {name!r} has no averaged weights ({why}); export its newest ones, without --ema")
    with _whole(Path(folder)) as partial, quiet():
        if settings.adapter is None:
            _write_full(saved, partial, name, settings, ema)
        else:
            _write_adapter(saved, partial, Path(folder), name, settings, chosen, ema)
    return chosen


def _choose(config: RunConfig, policy: str | None) -> str:
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


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder aside that becomes `folder` at the end, and is gone if anything fails."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists and is not an empty folder; export into another one")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        inside = partial / "export"
        inside.mkdir()  # with the usual rights, which mkdtemp does not give
        yield inside
        os.rename(inside, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_full(saved: Path, partial: Path, name: str, settings: PolicyConfig, ema: bool) -> None:
    state.read_state(saved, name, settings)
    if not ema:
        shutil.copytree(saved / state.WEIGHTS, partial, dirs_exist_ok=True)
        return
    model = load_model(saved / state.WEIGHTS)
    try:
        model.load_state_dict(state.read_tensors(saved, state.EMA))
    except RuntimeError as error:
        raise CheckpointError(f"the averaged weights in {str(saved)!r} do not fit the model: {error}") from error
    _save(model, saved, partial)


def _write_adapter(
    saved: Path, partial: Path, final: Path, name: str, settings: PolicyConfig, form: Form, ema: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder, base, adapter = state.read_base(saved, name, settings, Path(scratch), {})
        tensors = state.read_tensors(saved, state.EMA) if ema else state.read_weights(saved, adapter)
        if form == "merged":
            merge(base, adapter.shape, tensors)
            _save(base, saved, partial)
            return
        where = settings.model
        if settings.model == TINY:
            shutil.copytree(folder, partial / BASE)
            where = str(final.absolute() / BASE)
        elif Path(where).expanduser().is_dir():
            where = str(folder.absolute())
        write_peft(partial, replace(adapter, base_name=where), tensors)
        load_tokenizer(saved / state.WEIGHTS).save_pretrained(partial)


def _save(model: PreTrainedModel, saved: Path, partial: Path) -> None:
    model.save_pretrained(partial)
    load_tokenizer(saved / state.WEIGHTS).save_pretrained(partial)
