"""Environments: any Gymnasium or PettingZoo world, text-native ones of our own, and the handle they are played through."""

if __name__ != "opentinker.envs":
    raise ImportError(
        f"this folder was imported as {__name__!r}, but it is a part of OpenTinker: import opentinker.envs instead"
    )

from opentinker.envs.check import Finding, check_env
from opentinker.envs.codec import TextCodec
from opentinker.envs.handle import EnvHandle, open_env
from opentinker.envs.registry import ENVS, env_ids, make_env, register_env
from opentinker.envs.text import TextAECEnv, TextEnv, TextParallelEnv, TextSpace
from opentinker.envs.world import AgentTurn, EnvStats

__all__ = [
    "ENVS",
    "AgentTurn",
    "EnvHandle",
    "EnvStats",
    "Finding",
    "TextAECEnv",
    "TextCodec",
    "TextEnv",
    "TextParallelEnv",
    "TextSpace",
    "check_env",
    "env_ids",
    "make_env",
    "open_env",
    "register_env",
]
