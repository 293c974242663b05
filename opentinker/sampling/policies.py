"""The weights a sampler serves: policies by name, each with variants (`latest`, `ema`, ...), each with its version."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.errors import ConfigError, DuplicateId, UnknownId
from opentinker.sampling.adapters import Adapter, AdapterShape
from opentinker.sampling.network import Network, check_kind
from opentinker.sampling.text import Reader
from opentinker.types import PolicyRef

LATEST = "latest"


@dataclass(slots=True, eq=False)
class Served:
    """One set of weights: a model's own, or an adapter on a base that others share."""

    policy: str
    variant: str
    version: int
    network: Network
    reader: Reader
    context: int | None = None
    """Room for ids, prompt and completion together; None: the model knows no limit."""
    adapter: Adapter | None = None

    def room(self, prompt: Sequence[int]) -> int | None:
        """Ids that fit behind the prompt; None: no limit."""
        return None if self.context is None else max(0, self.context - len(prompt))


class Policies:
    """Policies by name."""

    def __init__(self) -> None:
        self._policies: dict[str, dict[str, Served]] = {}
        self._resolved: dict[PolicyRef, Served] = {}

    def add(self, served: Served) -> None:
        """A new policy's latest weights.

        Raises:
            DuplicateId: the name is taken.
            ConfigError: its model serves another policy already.
        """
        if served.policy in self._policies:
            raise DuplicateId(f"the sampler already serves policy {served.policy!r}; `load` gives it new weights")
        for other in self._all():
            if other.network.model is served.network.model and (other.adapter is None or served.adapter is None):
                raise ConfigError(
                    f"policy {served.policy!r} has the model of policy {other.policy!r}: give it one of its own"
                )
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

    def network(self, base: PreTrainedModel) -> Network:
        """The network of a base: that of the first adapter policy on this very object, or a new one.

        Raises:
            ConfigError: the model is another policy's own, which `load` writes.
        """
        for served in self._all():
            if served.network.model is base:
                if served.adapter is None:
                    raise ConfigError(
                        f"the base is the model of policy {served.policy!r} itself, whose weights may change: give adapters"
                        " a base of their own"
                    )
                return served.network
        return Network(base)

    def load(self, name: str, tensors: Mapping[str, torch.Tensor], version: int, variant: str) -> list[Served]:
        """Copies weights into a variant; one not seen before gets a model, or an adapter, of its own.

        Returns:
            What was replaced: references resolved earlier must not be used any more.

        Raises:
            UnknownId: no such policy.
            ConfigError: the names or shapes are not the model's; nothing was changed.
        """
        variants = self._variants(name)
        source, old = variants[LATEST], variants.get(variant)
        if source.adapter is None:
            served = _load_whole(name, source, old, tensors, variant)
        else:
            adapter = Adapter.of(name, source.network.model, source.adapter.shape, tensors)
            served = replace(source, variant=variant, adapter=adapter)
        served.version = version
        variants[variant] = served
        self._resolved.clear()
        served.network.forget()
        return [] if old is None else [old]

    def _all(self) -> Iterator[Served]:
        for variants in self._policies.values():
            yield from variants.values()

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
    """A policy's latest weights, with end-of-text ids and context read off tokenizer and model unless given.

    Raises:
        ConfigError: the model is of a kind that cannot be served.
    """
    check_kind(name, model)
    return _served(name, Network(model), tokenizer, version, eos_ids, context, None)


def make_adapted(
    name: str,
    network: Network,
    tokenizer: PreTrainedTokenizerBase,
    shape: AdapterShape,
    tensors: Mapping[str, torch.Tensor],
    version: int,
    eos_ids: Iterable[int] | None = None,
    context: int | None = None,
) -> Served:
    """A policy's latest adapter on a network, as `make_served`.

    Raises:
        ConfigError: targets, names or shapes do not fit the base, or it is of a kind that cannot be served.
    """
    check_kind(name, network.model)
    adapter = Adapter.of(name, network.model, shape, tensors)
    network.bank().open(name, shape)
    return _served(name, network, tokenizer, version, eos_ids, context, adapter)


def _served(
    name: str,
    network: Network,
    tokenizer: PreTrainedTokenizerBase,
    version: int,
    eos_ids: Iterable[int] | None,
    context: int | None,
    adapter: Adapter | None,
) -> Served:
    ends = _eos_ids(network.model, tokenizer) if eos_ids is None else frozenset(eos_ids)
    limits = [network.context if context is None else context, network.reach]
    room = min((limit for limit in limits if limit is not None), default=None)
    return Served(name, LATEST, version, network, Reader(tokenizer, ends), room, adapter)


def _load_whole(name: str, source: Served, old: Served | None, tensors: Mapping[str, torch.Tensor], variant: str) -> Served:
    _check_fit(name, source.network.model, tensors)
    network = Network(copy.deepcopy(source.network.model)) if old is None else old.network
    with torch.no_grad():
        target = network.model.state_dict()
        for key, tensor in tensors.items():
            target[key].copy_(tensor)
    return replace(source, variant=variant, network=network)


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
