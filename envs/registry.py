"""Ids to environments: our own, Gymnasium's, PettingZoo's, and any class by its import path."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from opentinker.envs.adapters import gymnasium as gymnasium_adapter
from opentinker.envs.adapters import mpe as mpe_adapter
from opentinker.envs.adapters import openspiel as openspiel_adapter
from opentinker.envs.adapters import pettingzoo as pettingzoo_adapter
from opentinker.envs.adapters import reasoning as reasoning_adapter
from opentinker.envs.adapters import textarena as textarena_adapter
from opentinker.envs.adapters.vector import brought
from opentinker.errors import ConfigError, OpenTinkerError, UnknownId, error_text, value_text
from opentinker.registry import Registry, load_object

Factory = Callable[..., Any]

ENVS: Registry[Factory] = Registry("environment")
"""Environments with an id of their own; the foreign families have registries themselves."""

_BUILTIN = {
    "bandit": "opentinker.envs.tasks.bandit:Bandit",
    "connect_four": "opentinker.envs.games.connect_four:ConnectFour",
    "gomoku": "opentinker.envs.games.gomoku:Gomoku",
    "halves": "opentinker.envs.games.halves:Halves",
    "kuhn_poker": "opentinker.envs.games.kuhn_poker:KuhnPoker",
    "leduc_poker": "opentinker.envs.games.leduc_poker:LeducPoker",
    "matrix_game": "opentinker.envs.games.matrix_game:MatrixGame",
    "negotiation": "opentinker.envs.games.negotiation:Negotiation",
    "tictactoe": "opentinker.envs.games.tictactoe:TicTacToe",
}
for _id, _entry in _BUILTIN.items():
    ENVS.register(_id, _entry)

_FAMILIES = {
    "gymnasium": gymnasium_adapter,
    "mpe": mpe_adapter,
    "openspiel": openspiel_adapter,
    "pettingzoo": pettingzoo_adapter,
    "reasoning": reasoning_adapter,
    "textarena": textarena_adapter,
}
_SLOW = ("openspiel", "reasoning", "textarena")
"""Their names take an import of seconds; near names are looked for among them only for ids that begin like theirs."""
_HINT = "other forms: gymnasium/…, pettingzoo/…, mpe/…, openspiel/…, reasoning/…, textarena/…, package.module:Class"


def register_env(id: str, factory: Factory | str) -> None:
    """Gives an environment an id.

    Args:
        id: without a slash or a colon, which belong to the other forms of ids.
        factory: a class or function that returns an environment, or its import path `package.module:Name`.

    Raises:
        ConfigError: the id has a slash or a colon.
        DuplicateId: the id is taken.
    """
    if "/" in id or ":" in id or not id:
        raise ConfigError(f"an environment's id has no '/' and no ':', given: {id!r}")
    ENVS.register(id, factory)


def make_env(id: str, **kwargs: Any) -> Any:
    """Makes an environment.

    Args:
        id: `kuhn_poker`, `gymnasium/FrozenLake-v1`, `pettingzoo/classic/tictactoe_v3` or `package.module:Class`.
        kwargs: of its constructor. PettingZoo ids also take `api="parallel"`.

    Raises:
        UnknownId: no such id, with near names.
        ConfigError: a class that cannot be imported, arguments it does not take or cannot work with, or a package that is
            missing.
    """
    return build(id, kwargs)


def build(id: str, kwargs: Mapping[str, Any]) -> Any:
    """`make_env` with the arguments in a mapping."""
    return prepare(id, kwargs)()


def prepare(id: str, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """What `make_env` would call, looked up and with its arguments checked. Raises like `make_env`."""
    factory = _resolve(id)
    _check_arguments(id, factory, kwargs)
    return functools.partial(_made, id, factory, dict(kwargs))


def _made(id: str, factory: Factory, kwargs: Mapping[str, Any]) -> Any:
    try:
        return brought(factory(**kwargs))
    except OpenTinkerError:
        raise
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        if not kwargs:  # then nobody but the environment can be at fault
            raise
        raise ConfigError(
            f"environment {id!r} cannot be made with {value_text(dict(kwargs))}: {error_text(error)}; correct its arguments"
        ) from error


def _resolve(id: str) -> Factory:
    if id in ENVS:
        return ENVS.get(id)
    family, slash, rest = id.partition("/")
    if slash and family in _FAMILIES:
        if not _FAMILIES[family].known(rest):
            raise _unknown(id)
        return functools.partial(_FAMILIES[family].make, rest)
    if ":" in id:
        return _callable(id)
    raise _unknown(id)


def env_ids(family: str | None = None) -> list[str]:
    """The ids of our own environments, or of a family: `gymnasium`, `pettingzoo`.

    Raises:
        UnknownId: no such family.
    """
    if family is None:
        return list(ENVS)
    if family not in _FAMILIES:
        raise UnknownId("family of environments", family, _FAMILIES)
    return [f"{family}/{name}" for name in _FAMILIES[family].names()]


def canonical_id(id: str) -> str:
    """The one spelling of an id that may be written in several, for comparisons: with the version that it stands for."""
    family, slash, rest = id.partition("/")
    return f"{family}/{_FAMILIES[family].canonical(rest)}" if slash and family in _FAMILIES else id


def is_builtin(id: str) -> bool:
    """Whether an environment comes with this package; those never block."""
    return id in _BUILTIN


def _unknown(id: str) -> UnknownId:
    if _is_module(id):
        return UnknownId("environment", id, (), f"it is a module: name the class in it, {id}:Class")
    looked = [family for family in _FAMILIES if family not in _SLOW or id.startswith(f"{family}/")]
    known = [*env_ids(), *(name for family in looked for name in env_ids(family))]
    near = difflib.get_close_matches(id, known, n=1, cutoff=0.5)
    return UnknownId("environment", id, known if near else env_ids(), _HINT)


def _is_module(id: str) -> bool:
    """Whether a package or module of this name (of its first part) is there; nothing is imported."""
    top, *rest = id.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return False
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # `__main__` has none
        return False
    return spec is not None and (spec.has_location or bool(rest))


def _callable(path: str) -> Factory:
    found: Any = load_object(path)
    if not callable(found):
        raise ConfigError(f"{path!r} is no class or function but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _check_arguments(id: str, factory: Factory, kwargs: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # built-in callables may have none
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        names = [name for name in signature.parameters if name != "kwargs"]
        wrong = [difflib.get_close_matches(str(key), names, n=1) for key in kwargs if key not in names]
        near = [match[0] for match in wrong if match]
        hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(names) or 'no arguments'}"
        raise ConfigError(f"environment {id!r}: {error}{hint}") from error
