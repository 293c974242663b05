"""Ids of coordinators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from opentinker.coordinators.base import Coordinator
from opentinker.errors import ConfigError
from opentinker.registry import Registry, load_object

COORDINATORS: Registry[Callable[..., Coordinator]] = Registry("coordinator")
COORDINATORS.register("solo", "opentinker.coordinators.solo:Solo")
COORDINATORS.register("turns", "opentinker.coordinators.turns:Turns")
COORDINATORS.register("simultaneous", "opentinker.coordinators.simultaneous:Simultaneous")


def make_coordinator(id: str, **kwargs: Any) -> Coordinator:
    """A coordinator by its id or as `package.module:Class`.

    Args:
        id: a registered id (`solo`, `turns`, `simultaneous`) or an import path.
        kwargs: arguments of its constructor.

    Raises:
        UnknownId: no such id; near names are suggested.
        ConfigError: the path names no coordinator, or the constructor has no such arguments.
    """
    return coordinator_factory(id, kwargs)()


def coordinator_factory(id: str, kwargs: Mapping[str, Any]) -> Callable[[], Coordinator]:
    """What makes one fresh coordinator after the other, its id and arguments checked once.

    Raises:
        UnknownId, ConfigError: as `make_coordinator`.
    """
    factory: Any = load_object(id) if ":" in id else COORDINATORS.get(id, "or give package.module:Class")
    if not callable(factory) or (isinstance(factory, type) and not issubclass(factory, Coordinator)):
        raise ConfigError(f"{id!r} is no coordinator; give a subclass of opentinker.coordinators.Coordinator")
    signature = inspect.signature(factory)
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise ConfigError(f"coordinator {id!r} does not take {dict(kwargs)}: {error}; it takes {signature}") from error
    made = factory(**kwargs)
    if not isinstance(made, Coordinator):
        raise ConfigError(f"{id!r} made a {type(made).__name__}, which is no Coordinator")
    if not inspect.iscoroutinefunction(made.play):
        raise ConfigError(f"{id!r}: play() must be `async def play(self, env, table)`, since it awaits what agents answer")
    return functools.partial(factory, **kwargs)
