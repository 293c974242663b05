"""Credit: from groups of episodes to one advantage per turn. Pure functions, on the world's rewards only.

A credit function takes groups and the state it returned last time (empty at first), and its settings by name. Penalties
for form and bonuses for entropy come afterwards, from `shaping`, so that no baseline ever contains them.

    credit = make_credit("grpo", epsilon=1e-6)
    result = credit(groups, state)
    advantages = form_penalty(groups, result.advantages)
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from opentinker.credit.base import Advantages, Baseline, CreditFn, CreditResult
from opentinker.credit.shaping import form_penalty, legal_entropy
from opentinker.errors import ConfigError, error_text
from opentinker.registry import Registry, load_object
from opentinker.types import Group

Credit: TypeAlias = Callable[[Sequence[Group], Mapping[str, Any]], CreditResult]
"""A credit function with its settings filled in."""

CREDIT: Registry[CreditFn] = Registry("credit function")
for _id, _entry in {
    "reinforce": "opentinker.credit.reinforce:reinforce",
    "grpo": "opentinker.credit.grpo:grpo",
    "dr_grpo": "opentinker.credit.grpo:dr_grpo",
    "rae": "opentinker.credit.rae:rae",
    "state_baseline": "opentinker.credit.state_baseline:state_baseline",
}.items():
    CREDIT.register(_id, _entry)


def make_credit(id: str, **settings: Any) -> Credit:
    """A credit function by id or `package.module:function`, with settings bound.

    It is called once without groups, so that settings out of range fail here and not after the first rollout.

    Raises:
        UnknownId: no such id.
        ConfigError: a setting it does not have, with the nearest name, or one out of range; or it is no credit function.
    """
    function: CreditFn = load_object(id) if ":" in id else CREDIT.get(id, "or give package.module:function")
    _refuse_unknown(id, function, settings)
    credit: Credit = functools.partial(function, **settings)
    try:
        inspect.signature(credit).bind([], {})  # before the call: `input`, say, would wait for somebody to type
        result: Any = credit([], {})
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"credit function {id!r} cannot be used: without groups it raises {error_text(error)}; "
            "it is called with (groups, state, *, settings…)"
        ) from error
    if not isinstance(result, CreditResult):
        raise ConfigError(f"credit function {id!r} returns a {type(result).__name__}; it must return a CreditResult")
    return credit


def _refuse_unknown(id: str, function: CreditFn, settings: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # not callable; a class of C that tells no signature
        raise ConfigError(f"{id!r} is no credit function: {error}") from error
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                advice = f"did you mean {near[0]!r}?" if near else f"it has {known or 'none'}"
                raise ConfigError(f"credit function {id!r} has no setting {name!r}; {advice}")


__all__ = [
    "CREDIT",
    "Advantages",
    "Baseline",
    "Credit",
    "CreditFn",
    "CreditResult",
    "form_penalty",
    "legal_entropy",
    "make_credit",
]
