"""`mpe/NAME`: the particle worlds of the package mpe2, which PettingZoo had as `pettingzoo.mpe` once."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from typing import Any, Literal

from opentinker.errors import ConfigError, MissingExtra

EXTRA = "mpe"
_PACKAGE = "mpe2"
_WORLD = re.compile(r".+_v\d+")
_MAKERS = {"aec": "env", "parallel": "parallel_env"}


def names() -> list[str]:
    """All worlds with their versions, `simple_spread_v3`; none without the package. Nothing is imported."""
    package = importlib.util.find_spec(_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    return sorted(module.name for module in pkgutil.iter_modules(places or []) if _WORLD.fullmatch(module.name))


def known(name: str) -> bool:
    """Whether there is such a world.

    Raises:
        MissingExtra: the package is missing, so nobody can say.
    """
    if not names():
        raise MissingExtra(f"mpe/{name}", EXTRA)
    return _full(name) is not None


def canonical(name: str) -> str:
    """An id with its version, in the form of `names`; one that is not known stays as it is."""
    return _full(name) or name


def make(name: str, *, api: Literal["aec", "parallel"] = "aec", **kwargs: Any) -> Any:
    """Makes a world.

    Args:
        name: such as `simple_spread_v3`; without a version the newest.
        api: all move at once either way: the world goes on when the last of them has chosen.
        kwargs: of the world, `max_cycles` and `continuous_actions` among them.

    Raises:
        ConfigError: no such world or api.
        MissingExtra: the package is missing.
    """
    if not known(name):
        raise ConfigError(f"mpe/{name} is none of the worlds of {_PACKAGE}: {', '.join(names())}")
    if api not in _MAKERS:
        raise ConfigError(f"mpe/{name} has no api {api!r}; it has: {', '.join(_MAKERS)}")
    # pygame's banner is kept away by `opentinker.envs`, which has imported pettingzoo.
    return getattr(importlib.import_module(f"{_PACKAGE}.{_full(name)}"), _MAKERS[api])(**kwargs)


def _full(name: str) -> str | None:
    """A world's name as the package has it: with the version given, else with the newest."""
    found, (world, _, version) = names(), name.replace("-v", "_v").rpartition("_v")
    if version.isdecimal():
        return next((full for full in found if full == f"{world}_v{version}"), None)
    return max((full for full in found if full.rpartition("_v")[0] == name), key=_version, default=None)


def _version(name: str) -> int:
    return int(name.rpartition("_v")[2])
