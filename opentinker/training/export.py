"""A saved policy as a folder that plain transformers or PEFT load. No verl here.

The forms are those of `opentinker.runs.forms`. `hf` and `merged` are models like any other: `model: FOLDER` starts a new run
from them. Under `peft` a `tiny` base, which exists nowhere else, is written beside the adapter as `base/`. Its path in
`adapter_config.json` is an absolute one, since PEFT reads relative ones from wherever the process stands.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedModel

from opentinker.config import PolicyConfig, RunConfig
from opentinker.errors import CheckpointError
from opentinker.runs.checkpoints import Checkpoint, share
from opentinker.runs.forms import Form, choose_export
from opentinker.runs.writing import writing
from opentinker.training import state
from opentinker.training.adapters import merge, write_peft
from opentinker.training.bringup import quiet
from opentinker.training.models import TINY, load_model, load_tokenizer

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
        WriteFailed: no space or no right.
    """
    chosen = choose_export(config, checkpoint, Path(folder), policy, form, ema)
    name, settings = chosen.policy, config.policies[chosen.policy]
    saved = checkpoint.policy_folder(name)
    with _whole(Path(folder)) as partial, quiet():
        if settings.adapter is None:
            _write_full(saved, partial, name, settings, ema)
        else:
            _write_adapter(saved, partial, Path(folder), name, settings, chosen.form, ema)
    return chosen.form


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder aside that becomes `folder` at the end, and is gone if anything fails."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        try:
            inside = partial / "export"
            inside.mkdir()  # with the usual rights, which mkdtemp does not give
            yield inside
            share(inside)
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
