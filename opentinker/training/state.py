"""A policy on disk, without pickle: equal bits come back.

A saved policy is a folder with

- `weights/`: configuration, tokenizer and model in Hugging Face layout;
- `ema.safetensors`: averaged weights, where they are kept;
- `optimizer.safetensors`: AdamW's moments and step counts, for policies that train;
- `state.json`: format, policy, version, and whether it trains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.errors import CheckpointError, ConfigError
from opentinker.training.models import load_model

FORMAT = 1
WEIGHTS, EMA, OPTIMIZER, STATE = "weights", "ema.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What `state.json` holds."""

    policy: str
    version: int
    trainable: bool
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
) -> None:
    """Writes a policy; `state.json` comes last.

    Args:
        folder: made where it is missing.
        state: name and version.
        model: for its configuration and layout; its own weights are not written.
        tokenizer: saved beside the weights.
        weights: by their Hugging Face names.
        ema: likewise, or None.
        optimizer: by any names, or None for a policy that does not train.
    """
    (folder / WEIGHTS).mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / WEIGHTS, state_dict=_owned(weights))
    tokenizer.save_pretrained(folder / WEIGHTS)
    for name, tensors in ((EMA, ema), (OPTIMIZER, optimizer)):
        if tensors is None:
            (folder / name).unlink(missing_ok=True)
        else:
            save_file(_owned(tensors), folder / name)
    (folder / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")


def read_state(folder: Path, policy: str, trainable: bool) -> PolicyState:
    """The state of a saved policy.

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
    wanted = PolicyState(policy, state.version, trainable)
    if state != wanted:
        raise CheckpointError(f"{str(path)!r} is of {asdict(state)}, but {asdict(wanted)} is asked for")
    return state


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All weights by name, tied ones under each of their names.

    Raises:
        CheckpointError: they cannot be read.
    """
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
