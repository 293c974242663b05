"""Low-rank adapters over one shared base: every row of a forward pass may have another one, or none."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.nn.functional import linear
from transformers import PreTrainedModel

from opentinker.errors import ConfigError

_REMEMBERED = 16
"""Sets of adapters whose joined matrices are kept."""


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """What an adapter is before it has weights (Hu et al. 2021, "LoRA", arXiv:2106.09685).

    Raises:
        ConfigError: the rank is below 1, or there are no targets.
    """

    rank: int
    alpha: float
    """The delta is alpha / rank * B A x."""
    targets: tuple[str, ...]
    """Full names of `Linear` modules in the base, such as `model.layers.0.self_attn.q_proj`."""

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.targets:
            raise ConfigError(
                f"an adapter needs a rank above 0 and targets, given: rank {self.rank}, targets {self.targets}"
            )


def tensor_names(target: str) -> tuple[str, str]:
    """PEFT's names of a target's two matrices, A [rank, in] and B [out, rank]."""
    return f"base_model.model.{target}.lora_A.weight", f"base_model.model.{target}.lora_B.weight"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One set of weights. Compared by identity; new weights make a new one."""

    shape: AdapterShape
    down: Mapping[str, torch.Tensor]
    """By target: A, [rank, in]."""
    up: Mapping[str, torch.Tensor]
    """By target: alpha / rank * B, [out, rank]."""
    finite: bool
    """Whether all weights are numbers. One that is not must not share a forward pass: NaN times 0 is NaN."""

    @classmethod
    def of(cls, name: str, base: PreTrainedModel, shape: AdapterShape, tensors: Mapping[str, torch.Tensor]) -> Adapter:
        """Copies tensors, by PEFT's names, next to the modules they belong to.

        Raises:
            ConfigError: targets, names or shapes do not fit the base of policy `name`.
        """
        modules = linear_modules(name, base, shape)
        _check_fit(name, modules, shape, tensors)
        down: dict[str, torch.Tensor] = {}
        up: dict[str, torch.Tensor] = {}
        for target, module in modules.items():
            dtype = torch.promote_types(module.weight.dtype, torch.float32)
            a, b = (tensors[key].detach().to(module.weight.device, dtype, copy=True) for key in tensor_names(target))
            down[target], up[target] = a, b * (shape.alpha / shape.rank)
        finite = all(bool(torch.isfinite(tensor).all()) for side in (down, up) for tensor in side.values())
        return cls(shape, down, up, finite)


def linear_modules(name: str, base: PreTrainedModel, shape: AdapterShape) -> dict[str, torch.nn.Linear]:
    """The base's modules that a shape targets.

    Raises:
        ConfigError: a target is no `Linear` of the base.
    """
    found = dict(base.named_modules())
    modules: dict[str, torch.nn.Linear] = {}
    for target in shape.targets:
        module = found.get(target)
        if not isinstance(module, torch.nn.Linear):
            kind = "not there" if module is None else f"a {type(module).__name__}"
            linears = [key for key, known in found.items() if isinstance(known, torch.nn.Linear)]
            raise ConfigError(
                f"policy {name!r}: an adapter's targets are Linear modules of its base, {target!r} is {kind};"
                f" its first ones are {', '.join(linears[:4])}"
            )
        modules[target] = module
    return modules


def _check_fit(
    name: str, modules: Mapping[str, torch.nn.Linear], shape: AdapterShape, tensors: Mapping[str, torch.Tensor]
) -> None:
    expected: dict[str, tuple[int, int]] = {}
    for target, module in modules.items():
        a, b = tensor_names(target)
        expected[a], expected[b] = (shape.rank, module.in_features), (module.out_features, shape.rank)
    faults = [f"{key} is missing" for key in expected if key not in tensors]
    faults += [f"{key} is unknown" for key in tensors if key not in expected]
    faults += [
        f"{key} is {tuple(tensors[key].shape)} and not {size}"
        for key, size in expected.items()
        if key in tensors and tuple(tensors[key].shape) != size
    ]
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise ConfigError(f"these weights do not fit the adapter of policy {name!r}: {'; '.join(faults[:5])}{more}")


class _Joined(NamedTuple):
    """Several adapters' matrices for one module, one below the other: two plain products serve all rows."""

    down: torch.Tensor
    """[ranks, in]"""
    up: torch.Tensor
    """[out, ranks]"""
    owner: torch.Tensor
    """[ranks], the place of the adapter that each inner dimension belongs to."""


@dataclass(slots=True)
class _Rows:
    """Which adapter each row of a forward pass has."""

    adapters: tuple[Adapter | None, ...]
    """Distinct."""
    place: tuple[int, ...]
    """Per row, into `adapters`; empty where all rows have the only one."""
    others: dict[Hashable, torch.Tensor] = field(default_factory=dict)
    """[r, 1, ranks] by layout: the inner dimensions that are not the row's own."""


class AdapterBank:
    """Puts adapters onto a base by hooks on its modules. The base's parameters are never written.

    Without `rows` around it a forward pass is the base's own.
    """

    def __init__(self, base: PreTrainedModel) -> None:
        self.base = base
        self._hooked: set[str] = set()
        self._active: _Rows | None = None
        self._last: tuple[tuple[Adapter | None, ...], _Rows] | None = None
        self._joined: dict[tuple[Adapter | None, ...], dict[str, _Joined | None]] = {}

    def open(self, name: str, shape: AdapterShape) -> None:
        """Makes the targets of a shape ready. Raises `ConfigError` as `linear_modules`."""
        for target, module in linear_modules(name, self.base, shape).items():
            if target not in self._hooked:
                self._hooked.add(target)
                module.register_forward_hook(AdapterHook(self, target))

    def forget(self) -> None:
        """Frees what is remembered of adapters that may have been replaced."""
        self._joined.clear()
        self._last = None

    @contextmanager
    def rows(self, adapters: Sequence[Adapter | None]) -> Iterator[None]:
        """Forward passes inside have these adapters, one a row; a single one is for all rows, however many."""
        key = tuple(adapters)
        if self._last is None or self._last[0] != key:
            distinct = {adapter: place for place, adapter in enumerate(dict.fromkeys(key))}
            place = tuple(distinct[adapter] for adapter in key) if len(distinct) > 1 else ()
            self._last = key, _Rows(tuple(distinct), place)
        self._active = self._last[1]
        try:
            yield
        finally:
            self._active = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Forward passes inside are the base's own, also within `rows`."""
        active, self._active = self._active, None
        try:
            yield
        finally:
            self._active = active

    def delta(self, target: str, x: torch.Tensor) -> torch.Tensor | None:
        """What a module's output gains for input x, [r, width, in]; None where no row has an adapter there."""
        rows = self._active
        joined = None if rows is None else self._join(rows.adapters, target)
        if rows is None or joined is None:
            return None
        inner = linear(x.to(joined.down.dtype), joined.down)
        if rows.place:
            if inner.dim() != 3 or len(inner) != len(rows.place):
                raise RuntimeError(
                    f"{target} gets input of shape {tuple(x.shape)}, which is not one row for each of {len(rows.place)}:"
                    " the adapters of this base cannot be mixed there; leave it out of their targets"
                )
            inner = inner.masked_fill(_others(rows, joined), 0.0)
        return linear(inner, joined.up)

    def _join(self, adapters: tuple[Adapter | None, ...], target: str) -> _Joined | None:
        modules = self._joined.get(adapters)
        if modules is None:
            while len(self._joined) >= _REMEMBERED:
                del self._joined[next(iter(self._joined))]
            modules = self._joined[adapters] = {}
        if target not in modules:
            parts = [(at, a) for at, a in enumerate(adapters) if a is not None and target in a.down]
            modules[target] = None if not parts else _joined(parts, target)
        return modules[target]


class AdapterHook:
    """A module's forward hook. A class, so that copies of the base can be made and pickled."""

    def __init__(self, bank: AdapterBank, target: str) -> None:
        self.bank = bank
        self.target = target

    def __call__(
        self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> torch.Tensor | None:
        delta = self.bank.delta(self.target, inputs[0])
        return None if delta is None else output + delta.to(output.dtype)


def _joined(parts: Sequence[tuple[int, Adapter]], target: str) -> _Joined:
    if len(parts) == 1:
        [(at, adapter)] = parts
        down, up = adapter.down[target], adapter.up[target]
    else:
        down = torch.cat([adapter.down[target] for _, adapter in parts])
        up = torch.cat([adapter.up[target] for _, adapter in parts], dim=1)
    owner = torch.tensor([at for at, adapter in parts for _ in range(adapter.shape.rank)], device=down.device)
    return _Joined(down, up, owner)


def _others(rows: _Rows, joined: _Joined) -> torch.Tensor:
    key = (tuple(joined.owner.tolist()), joined.owner.device)
    if key not in rows.others:
        place = torch.tensor(rows.place, device=joined.owner.device)
        rows.others[key] = (joined.owner != place[:, None])[:, None]
    return rows.others[key]
