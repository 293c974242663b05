"""A policy on disk, without pickle: equal bits come back.

A saved policy is a folder with

- `weights/`: configuration, tokenizer and model in Hugging Face layout, or an adapter in PEFT's (`adapters.py`);
- `ema.safetensors`: averaged weights, where they are kept;
- `optimizer.safetensors`: AdamW's moments and step counts, for policies that train;
- `state.json`: format, policy, version, whether it trains, and of an adapter the digest of its base and a tiny one's seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.config import PolicyConfig
from opentinker.errors import CheckpointError, ConfigError
from opentinker.runs.forms import EMA as EMA
from opentinker.training.adapters import AdapterSpec, describe, fingerprint, read_peft, write_peft
from opentinker.training.models import load_model, model_folder

FORMAT = 1
WEIGHTS, OPTIMIZER, STATE = "weights", "optimizer.safetensors", "state.json"


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What `state.json` holds."""

    policy: str
    version: int
    trainable: bool
    base: str = ""
    """Under an adapter, `adapters.fingerprint` of the base; else empty."""
    base_seed: int | None = None
    """What a `tiny` base was drawn from: with it the base can be had again, whatever the seed of who asks."""
    format: int = FORMAT


def write(
    folder: Path,
    state: PolicyState,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, torch.Tensor],
    ema: Mapping[str, torch.Tensor] | None,
    optimizer: Mapping[str, torch.Tensor] | None,
    adapter: AdapterSpec | None = None,
) -> None:
    """Writes a policy; `state.json` comes last.

    Args:
        folder: made where it is missing.
        state: name and version.
        model: for its configuration and layout; its own weights are not written.
        tokenizer: saved beside the weights.
        weights: by their Hugging Face names, or an adapter's by PEFT's.
        ema: likewise, or None.
        optimizer: by any names, or None for a policy that does not train.
        adapter: which one the weights are; None: they are the model's.
    """
    (folder / WEIGHTS).mkdir(parents=True, exist_ok=True)
    if adapter is None:
        model.save_pretrained(folder / WEIGHTS, state_dict=_owned(weights))
    else:
        write_peft(folder / WEIGHTS, adapter, weights)
    tokenizer.save_pretrained(folder / WEIGHTS)
    for name, tensors in ((EMA, ema), (OPTIMIZER, optimizer)):
        if tensors is None:
            (folder / name).unlink(missing_ok=True)
        else:
            save_file(_owned(tensors), folder / name)
    (folder / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")


def read_state(folder: Path, policy: str, settings: PolicyConfig) -> PolicyState:
    """The state of a saved policy.

    Args:
        folder: of the policy.
        policy: its name.
        settings: it is trainable, and has an adapter, as these say.

    Raises:
        CheckpointError: it is missing, torn, of another format, another policy or another kind.
    """
    path = folder / STATE
    try:
        state = PolicyState(**json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CheckpointError(f"{str(folder)!r} holds no saved policy: {error}") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{str(path)!r} is torn or altered: {error}") from error
    wanted = replace(state, policy=policy, trainable=settings.trainable, format=FORMAT)
    if state != wanted:
        raise CheckpointError(f"{str(path)!r} is of {asdict(state)}, but {asdict(wanted)} is asked for")
    if bool(state.base) != (settings.adapter is not None):
        held, asked = ("an adapter", "all weights") if state.base else ("all weights", "an adapter")
        raise CheckpointError(f"{str(folder)!r} holds {held} of policy {policy!r}, but the configuration says {asked}")
    return state


def check_base(folder: Path, state: PolicyState, base: str) -> None:
    """Refuses an adapter that was trained on another base.

    Args:
        folder: of the saved policy, for the message.
        state: what it says.
        base: digest of the base at hand; empty without an adapter.

    Raises:
        CheckpointError: the digests differ.
    """
    if state.base != base:
        raise CheckpointError(
            f"the adapter in {str(folder)!r} was trained on another base: its digest is {state.base}, that of the base at "
            f"hand {base}; give policy {state.policy!r} the model, and the seed, that it had"
        )


def read_base(
    folder: Path, policy: str, settings: PolicyConfig, work_dir: Path, known: dict[Path, PreTrainedModel]
) -> tuple[Path, PreTrainedModel, AdapterSpec]:
    """The base under a saved adapter, had again from where the configuration says.

    Args:
        folder: of the saved policy.
        policy: its name.
        settings: with an adapter.
        work_dir: where a `tiny` base is written.
        known: bases read before, by folder: adapters share them; this one is added.

    Returns:
        The base's folder, the base, and what the adapter is on it.

    Raises:
        CheckpointError: as `read_state` and `check_base`.
        ConfigError: the base is not there, or the adapter does not fit it.
    """
    saved = read_state(folder, policy, settings)
    drawn = settings if saved.base_seed is None else settings.model_copy(update={"seed": saved.base_seed})
    place = model_folder(policy, drawn, 0, work_dir)
    if place not in known:
        known[place] = load_model(place)
    spec = describe(policy, settings, known[place], fingerprint(known[place]))
    check_base(folder, saved, spec.base)
    return place, known[place], spec


def read_weights(folder: Path, adapter: AdapterSpec | None = None) -> dict[str, torch.Tensor]:
    """All weights by name, tied ones under each of their names; or an adapter's tensors.

    Raises:
        CheckpointError: they cannot be read, or are of another adapter.
    """
    if adapter is not None:
        return read_peft(folder / WEIGHTS, adapter)
    try:
        return dict(load_model(folder / WEIGHTS).state_dict())
    except (ConfigError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the weights in {str(folder)!r}: {error}") from error


def read_tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """The tensors of one file.

    Raises:
        CheckpointError: it is missing or torn.
    """
    try:
        return load_file(folder / name)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {str(folder / name)!r}: {error}") from error


def _owned(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    # safetensors refuses tensors that share memory
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
