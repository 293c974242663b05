"""`pettingzoo/FAMILY/NAME`: everything in PettingZoo's own registry."""

from __future__ import annotations

from typing import Any, Literal

import pettingzoo  # type: ignore[import-untyped]
from pettingzoo.env_registry.exceptions import FailedToImport, PettingZooRegistryError  # type: ignore[import-untyped]

from opentinker.errors import ConfigError, MissingExtra, message_text

EXTRA = "classic"
"""The family whose packages an extra of ours brings, and its name."""
_REGISTRIES = {"aec": pettingzoo.aec_registry, "parallel": pettingzoo.parallel_registry}


def names() -> list[str]:
    """All registered ids, in the form in which PettingZoo's documentation writes them."""
    ids = {id for registry in _REGISTRIES.values() for id in registry}
    return sorted("_v".join(id.rsplit("-v", 1)) for id in ids)


def known(name: str) -> bool:
    """Whether PettingZoo can resolve an id in either API."""
    return any(_found(api, name) for api in _REGISTRIES)


def canonical(name: str) -> str:
    """An id with its version, in the form of `names`; one that is not known stays as it is."""
    for api in _REGISTRIES:
        if _found(api, name):
            return "_v".join(pettingzoo.spec(api, name).id.rsplit("-v", 1))
    return name


def make(name: str, *, api: Literal["aec", "parallel"] | None = None, **kwargs: Any) -> Any:
    """`pettingzoo.make`.

    Args:
        name: such as `classic/tictactoe_v3`.
        api: None takes the AEC version, or the parallel one where that is the only one.
        kwargs: of the environment.

    Raises:
        ConfigError: no version with this API, or a package that the environment needs is missing.
        MissingExtra: a package that a classic game needs is missing.
    """
    if api is None:
        api = "aec" if _found("aec", name) else "parallel"
    if api not in _REGISTRIES or not _found(api, name):
        offered = [known for known in _REGISTRIES if _found(known, name)]
        raise ConfigError(f"pettingzoo/{name} has no api {api!r}; it has: {', '.join(offered)}")
    # pygame's banner on standard output is kept away by importing pettingzoo, which sets PYGAME_HIDE_SUPPORT_PROMPT.
    try:
        return pettingzoo.make(api, name, **kwargs)
    except (FailedToImport, ImportError) as error:
        why = message_text(error.__cause__ or error)
        family, _, game = name.rpartition("/")
        if family == EXTRA:
            raise MissingExtra(f"pettingzoo/{name} ({why})", EXTRA) from error
        raise ConfigError(
            f"pettingzoo/{name} needs a package that is not installed: {why}; pip install 'pettingzoo[{family or game}]'"
        ) from error


def _found(api: str, name: str) -> bool:
    try:
        pettingzoo.spec(api, name)
    except PettingZooRegistryError:
        return False
    return True
