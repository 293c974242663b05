"""Train teams of language-model agents in any Gymnasium or PettingZoo environment, with verl.

Public names load on first use: importing the package brings in neither torch, ray nor verl.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opentinker.collector import paused_collector
from opentinker.errors import ConfigError, InvalidAction, OpenTinkerError, SeatOut
from opentinker.types import Completion, Episode, Group, PolicyRef, Sample, SamplingParams, Seat, Turn

if TYPE_CHECKING:
    from opentinker.config import load_config
    from opentinker.coordinators import Coordinator, Query, Table
    from opentinker.credit import make_credit
    from opentinker.envs import (
        TextAECEnv,
        TextCodec,
        TextEnv,
        TextParallelEnv,
        TextSpace,
        check_env,
        make_env,
        register_env,
    )
    from opentinker.evaluate import evaluate_run
    from opentinker.result import read_run
    from opentinker.rollout import rollout
    from opentinker.run import train
    from opentinker.samples import to_samples
    from opentinker.training.host import LocalHost

__version__ = "0.1.0.dev0"

__all__ = [
    "Completion",
    "ConfigError",
    "Coordinator",
    "Episode",
    "Group",
    "InvalidAction",
    "LocalHost",
    "OpenTinkerError",
    "PolicyRef",
    "Query",
    "Sample",
    "SamplingParams",
    "Seat",
    "SeatOut",
    "Table",
    "TextAECEnv",
    "TextCodec",
    "TextEnv",
    "TextParallelEnv",
    "TextSpace",
    "Turn",
    "__version__",
    "check_env",
    "evaluate_run",
    "load_config",
    "make_credit",
    "make_env",
    "read_run",
    "register_env",
    "rollout",
    "to_samples",
    "train",
]

_LAZY = {
    "load_config": "opentinker.config",
    "Coordinator": "opentinker.coordinators",
    "Query": "opentinker.coordinators",
    "Table": "opentinker.coordinators",
    "TextAECEnv": "opentinker.envs",
    "TextCodec": "opentinker.envs",
    "TextEnv": "opentinker.envs",
    "TextParallelEnv": "opentinker.envs",
    "TextSpace": "opentinker.envs",
    "check_env": "opentinker.envs",
    "evaluate_run": "opentinker.evaluate",
    "make_credit": "opentinker.credit",
    "make_env": "opentinker.envs",
    "register_env": "opentinker.envs",
    "read_run": "opentinker.result",
    "rollout": "opentinker.rollout",
    "to_samples": "opentinker.samples",
    "train": "opentinker.run",
    "LocalHost": "opentinker.training.host",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with paused_collector():
        value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `opentinker.rollout` the function: importing the module of that name would put the module in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LAZY and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
