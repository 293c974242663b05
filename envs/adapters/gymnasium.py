"""`gymnasium/NAME`: everything in Gymnasium's own registry."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled, Error

from opentinker.envs.adapters.vector import OwnObservations, SubEnvironments
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


def make(name: str, *, num_envs: int | None = None, **kwargs: Any) -> Any:
    """`gymnasium.make`, without its passive checker, which would check every new object again: `check_env` is for that.

    Args:
        name: such as `FrozenLake-v1`.
        num_envs: None: one environment. Else so many of them in a vector environment, each an agent `env_0`, `env_1`, ...
            of a parallel one; see `SubEnvironments`.
        kwargs: of the environment; with `num_envs` also `gymnasium.make_vec`'s `vectorization_mode` and `vector_kwargs`,
            such as `{"autoreset_mode": "SameStep"}`.

    Raises:
        ConfigError: a package that the environment needs is missing, or Gymnasium cannot make it.
    """
    full = canonical(name)
    if num_envs is not None and (isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1):
        raise ConfigError(f"gymnasium/{name}: num_envs must be a whole number from 1 on (given: {num_envs!r})")
    try:
        if num_envs is None:
            return gymnasium.make(full, disable_env_checker=True, **kwargs)
        return SubEnvironments(gymnasium.make_vec(full, num_envs, **_vector_arguments(full, kwargs)))
    except (DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"gymnasium/{name} needs a package that is not installed: {error}") from error
    except Error as error:
        raise ConfigError(f"gymnasium/{name} cannot be made: {error}") from error


def _vector_arguments(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    mode = kwargs.get("vectorization_mode")
    if mode is None and gymnasium.spec(name).vector_entry_point is None:
        mode = "sync"
    if mode not in ("sync", "async"):  # its own class takes neither wrappers nor the checker's switch
        return kwargs
    return {**kwargs, "vectorization_mode": mode, "wrappers": [OwnObservations], "disable_env_checker": True}


def canonical(name: str) -> str:
    """An id without its version is the newest one's, as Gymnasium has it."""
    head = f"{name}-v"
    versions = [id[len(head) :] for id in gymnasium.registry if id.startswith(head)]
    numbers = [int(version) for version in versions if version.isdecimal()]
    return f"{head}{max(numbers)}" if numbers and name not in gymnasium.registry else name
