"""`gymnasium/NAME`: everything in Gymnasium's own registry."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled, Error

from opentinker.errors import ConfigError


def names() -> list[str]:
    """All registered ids."""
    return sorted(gymnasium.registry)


def known(name: str) -> bool:
    """Whether Gymnasium can resolve an id; `module:Name` forms import the module first."""
    try:
        gymnasium.spec(canonical(name))
    except (Error, ImportError):
        return False
    return True


def make(name: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make`, without its passive checker, which would check every new object again: `check_env` is for that.

    Raises:
        ConfigError: a package that the environment needs is missing.
    """
    try:
        return gymnasium.make(canonical(name), disable_env_checker=True, **kwargs)
    except (DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"gymnasium/{name} needs a package that is not installed: {error}") from error


def canonical(name: str) -> str:
    """An id without its version is the newest one's, as Gymnasium has it."""
    head = f"{name}-v"
    versions = [id[len(head) :] for id in gymnasium.registry if id.startswith(head)]
    numbers = [int(version) for version in versions if version.isdecimal()]
    return f"{head}{max(numbers)}" if numbers and name not in gymnasium.registry else name
