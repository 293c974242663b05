"""The weights a sampler serves: policies by name, each with variants (`latest`, `ema`, ...), each with its version."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.errors import ConfigError, DuplicateId, UnknownId
from opentinker.sampling.network import Network
from opentinker.sampling.text import Reader
from opentinker.types import PolicyRef

LATEST = "latest"


@dataclass(slots=True)
class Served:
    """One set of weights."""

    policy: str
    variant: str
    version: int
    network: Network
    reader: Reader


class Policies:
    """Policies by name."""

    def __init__(self) -> None:
        self._policies: dict[str, dict[str, Served]] = {}
        self._resolved: dict[PolicyRef, Served] = {}

    def add(self, served: Served) -> None:
        """A new policy's latest weights.

        Raises:
            DuplicateId: the name is taken.
        """
        if served.policy in self._policies:
            raise DuplicateId(f"the sampler already serves policy {served.policy!r}; `load` gives it new weights")
        self._policies[served.policy] = {served.variant: served}
        self._resolved.clear()

    def resolve(self, ref: PolicyRef) -> Served:
        """The weights a reference names: a variant, or `latest` by its version's number.

        Raises:
            UnknownId: no such policy, or not at this version.
        """
        found = self._resolved.get(ref)
        if found is None:
            found = self._resolved[ref] = self._look_up(ref)
        return found

    def load(self, name: str, state_dict: Mapping[str, torch.Tensor], version: int, variant: str) -> None:
        """Copies weights into a variant; one not seen before gets a model of its own.

        Raises:
            UnknownId: no such policy.
            ConfigError: the names or shapes are not the model's; nothing was changed.
        """
        variants = self._variants(name)
        source = variants[LATEST]
        _check_fit(name, source.network.model, state_dict)
        served = variants.get(variant)
        if served is None:
            network = Network(copy.deepcopy(source.network.model), source.network.context)
            served = Served(name, variant, version, network, source.reader)
        with torch.no_grad():
            target = served.network.model.state_dict()
            for key, tensor in state_dict.items():
                target[key].copy_(tensor)
        served.version = version
        variants[variant] = served
        self._resolved.clear()

    def _variants(self, name: str) -> dict[str, Served]:
        if name not in self._policies:
            hint = "" if self._policies else "the sampler serves none yet: `add` one"
            raise UnknownId("policy", name, self._policies, hint)
        return self._policies[name]

    def _look_up(self, ref: PolicyRef) -> Served:
        variants = self._variants(ref.name)
        if ref.version in variants:
            return variants[ref.version]
        if ref.version == str(variants[LATEST].version):
            return variants[LATEST]
        held = ", ".join(f"{variant} is {served.version}" for variant, served in sorted(variants.items()))
        raise UnknownId(f"version of policy {ref.name!r}", ref.version, variants, held)


def make_served(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    version: int,
    eos_ids: Iterable[int] | None = None,
    context: int | None = None,
) -> Served:
    """A policy's latest weights, with end-of-text ids and context read off tokenizer and model unless given."""
    ends = _eos_ids(model, tokenizer) if eos_ids is None else frozenset(eos_ids)
    return Served(name, LATEST, version, Network(model, context), Reader(tokenizer, ends))


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Chat models name more than one end in their generation configuration."""
    generation = getattr(model, "generation_config", None)
    given = None if generation is None else generation.eos_token_id
    ends = given if isinstance(given, list) else [given]
    return frozenset(int(id) for id in [*ends, tokenizer.eos_token_id] if id is not None)


def _check_fit(name: str, model: PreTrainedModel, state_dict: Mapping[str, torch.Tensor]) -> None:
    own = model.state_dict()
    given = {own[key].data_ptr() for key in state_dict if key in own}
    # tied weights are one tensor under two names; files keep only one
    missing = sorted(key for key in own if key not in state_dict and own[key].data_ptr() not in given)
    unexpected = sorted(set(state_dict) - set(own))
    shapes = [
        f"{key} is {tuple(tensor.shape)} and not {tuple(own[key].shape)}"
        for key, tensor in state_dict.items()
        if key in own and tensor.shape != own[key].shape
    ]
    faults = [
        f"{what}: {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}"
        for what, found in (("missing", missing), ("unknown", unexpected), ("shape", shapes))
        if found
    ]
    if faults:
        raise ConfigError(f"these weights do not fit the model of policy {name!r}; {'; '.join(faults)}")
