"""The configuration: one tree of typed values, validated once at the door. Shapes only; ids resolve where they are used."""

from opentinker.config.load import load_config
from opentinker.config.reference import configuration_page, describe_config
from opentinker.config.strict_yaml import dump_yaml, parse_yaml
from opentinker.config.tree import (
    AdapterConfig,
    CoordinatorConfig,
    EnvConfig,
    EvaluateConfig,
    KeepBest,
    OnInvalid,
    OptimConfig,
    PolicyConfig,
    RolloutConfig,
    RunConfig,
    RuntimeConfig,
    SamplingConfig,
    SeatConfig,
    TrainConfig,
    WarmStart,
    Window,
)
from opentinker.config.values import Schedule, Settings

__all__ = [
    "AdapterConfig",
    "CoordinatorConfig",
    "EnvConfig",
    "EvaluateConfig",
    "KeepBest",
    "OnInvalid",
    "OptimConfig",
    "PolicyConfig",
    "RolloutConfig",
    "RunConfig",
    "RuntimeConfig",
    "SamplingConfig",
    "Schedule",
    "SeatConfig",
    "Settings",
    "TrainConfig",
    "WarmStart",
    "Window",
    "configuration_page",
    "describe_config",
    "dump_yaml",
    "load_config",
    "parse_yaml",
]
