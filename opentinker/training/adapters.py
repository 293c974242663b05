"""LoRA adapters as data: which layers get one, how they start, how they lie on disk. No verl here.

An adapter of rank r on a linear layer W (out, in) is A (r, in) and B (out, r); the layer then computes
W x + (alpha / r) B A x (Hu et al. 2021, arXiv:2106.09685). Tensors go by the names of PEFT's `adapter_model.safetensors`:
`base_model.model.<layer>.lora_A.weight` and `….lora_B.weight`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from opentinker.config import AdapterConfig, PolicyConfig
from opentinker.errors import CheckpointError, ConfigError
from opentinker.sampling.adapters import AdapterShape, tensor_names

ALL = "all-linear"
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """What stays the same while an adapter learns."""

    shape: AdapterShape
    targets: tuple[str, ...]
    """Its layers as PEFT's configuration names them."""
    base: str
    """`fingerprint` of the base."""
    base_name: str
    """What PEFT's configuration names as the base: a folder, a hub id, or `tiny`."""


def describe(policy: str, settings: PolicyConfig, base: PreTrainedModel, digest: str) -> AdapterSpec:
    """The adapter of a policy on its base.

    Args:
        policy: its name, for messages.
        settings: with an adapter.
        base: the model under it.
        digest: its `fingerprint`.

    Raises:
        ConfigError: as `adapter_shape`.
    """
    assert settings.adapter is not None
    shape = adapter_shape(policy, settings.adapter, base)
    return AdapterSpec(shape, short_targets(shape, base), digest, settings.model)


def adapter_shape(policy: str, adapter: AdapterConfig, base: PreTrainedModel) -> AdapterShape:
    """Rank, alpha and the full names of the layers that get an adapter.

    `all-linear` means all linear layers but the one that gives the logits. Other targets are full names or their ends, as in
    `q_proj` or `layers.0.self_attn.q_proj`.

    Args:
        policy: its name, for messages.
        adapter: its configuration.
        base: the model under the adapter.

    Raises:
        ConfigError: a target names no layer (near names are suggested), one that is not linear, or the output layer; or
            the model has no linear layer.
    """
    return AdapterShape(adapter.rank, adapter.alpha, _resolve(f"policies.{policy}.adapter.targets", adapter.targets, base))


def _resolve(key: str, given: str | Sequence[str], base: PreTrainedModel) -> tuple[str, ...]:
    head = base.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear = [name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)]
    targets = [given] if isinstance(given, str) else given
    if ALL in targets:
        found = {name for name in linear if base.get_submodule(name) is not head}
        if not found:
            raise ConfigError(
                f"{key}: {type(base).__name__} has no linear layer but its output; adapters need torch's Linear"
            )
        return tuple(sorted(found))
    offered = [name for name in linear if base.get_submodule(name) is not head]
    found = set()
    for target in targets:
        matches = [name for name in linear if name == target or name.endswith(f".{target}")]
        if not matches:
            raise ConfigError(f"{key}: {_why_not(target, offered, base)}")
        if any(base.get_submodule(name) is head for name in matches):
            raise ConfigError(f"{key}: {target!r} is the output layer, which verl's engine cannot adapt; leave it out")
        found |= set(matches)
    return tuple(sorted(found))


def _why_not(target: str, linear: Sequence[str], base: PreTrainedModel) -> str:
    ends = {name.rsplit(".", 1)[-1] for name in linear}
    others = [
        type(module).__name__
        for name, module in base.named_modules()
        if name and (name == target or name.endswith(f".{target}"))
    ]
    if others:
        return f"{target!r} is a {others[0]}, and only linear layers get an adapter: {', '.join(sorted(ends))} or {ALL!r}"
    near = difflib.get_close_matches(target, [*ends, ALL, *linear], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {', '.join(sorted(ends))}, or say {ALL!r}"
    return f"{target!r} names no layer of the model; {hint}"


def initial_tensors(shape: AdapterShape, base: PreTrainedModel, seed: int) -> dict[str, torch.Tensor]:
    """An adapter that changes nothing yet: A uniform in ±1/√in, B zero, as PEFT does. Equal seeds give equal bits.

    Args:
        shape: its layers exist in `base`.
        base: for the sizes of the layers.
        seed: in [0, 2**63).
    """
    draw = torch.Generator().manual_seed(seed)
    tensors = {}
    for name in shape.targets:
        size_out, size_in = _linear(base, name).weight.shape
        bound = 1.0 / math.sqrt(size_in)
        a, b = tensor_names(name)
        tensors[a] = torch.empty(shape.rank, size_in).uniform_(-bound, bound, generator=draw)
        tensors[b] = torch.zeros(size_out, shape.rank)
    return tensors


@torch.no_grad()
def merge(base: PreTrainedModel, shape: AdapterShape, tensors: Mapping[str, torch.Tensor]) -> None:
    """Adds an adapter to the base's own weights, in place."""
    for name in shape.targets:
        weight = _linear(base, name).weight
        a, b = (tensors[key] for key in tensor_names(name))
        weight.add_((b.to(weight) @ a.to(weight)) * (shape.alpha / shape.rank))


def _linear(base: PreTrainedModel, name: str) -> torch.nn.Linear:
    module = base.get_submodule(name)
    assert isinstance(module, torch.nn.Linear)
    return module


def fingerprint(base: PreTrainedModel) -> str:
    """A digest of all weights by name: equal for equal bits, however they were loaded."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(base.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def short_targets(shape: AdapterShape, base: PreTrainedModel) -> tuple[str, ...]:
    """The layers' last names where these mean exactly the same layers, else their full names."""
    ends = tuple(sorted({name.rsplit(".", 1)[-1] for name in shape.targets}))
    return ends if _resolve("targets", ends, base) == shape.targets else shape.targets


def write_peft(folder: Path, adapter: AdapterSpec, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes an adapter in PEFT's layout; the folder exists, the tensors go by PEFT's names."""
    from peft import LoraConfig, TaskType

    shape = adapter.shape
    # PEFT calls it an int, and takes any number
    alpha: Any = int(shape.alpha) if float(shape.alpha).is_integer() else shape.alpha
    config: dict[str, Any] = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=shape.rank,
        lora_alpha=alpha,
        target_modules=list(adapter.targets),
        base_model_name_or_path=adapter.base_name,
        inference_mode=True,
    ).to_dict()  # type: ignore[no-untyped-call]
    config["target_modules"] = sorted(adapter.targets)  # PEFT keeps a set, whose order changes from process to process
    text = json.dumps(config, indent=2, sort_keys=True, default=list)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, folder / TENSORS)


def read_peft(folder: Path, adapter: AdapterSpec) -> dict[str, torch.Tensor]:
    """The tensors of an adapter that `write_peft` wrote.

    Raises:
        CheckpointError: files are missing or torn, or rank or alpha are others.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        saved = (config["r"], config["lora_alpha"])
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the adapter in {str(folder)!r}: {error!r}") from error
    shape = adapter.shape
    if saved != (shape.rank, shape.alpha):
        raise CheckpointError(
            f"the adapter in {str(folder)!r} has rank {saved[0]} and alpha {saved[1]}, but the configuration says rank "
            f"{shape.rank} and alpha {shape.alpha:g}; set them back, or start another run with name=…"
        )
    return tensors
