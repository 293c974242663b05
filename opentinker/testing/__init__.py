"""Fakes for tests of environments, coordinators and seats: scripted samplers and seats, environments that misbehave."""

from opentinker.testing.envs import BirthsEnv, HangingEnv, OffTurnDeathEnv, RaisingEnv, SlowEnv
from opentinker.testing.games import play_game
from opentinker.testing.lifecycles import LifecycleAEC, LifecycleParallel
from opentinker.testing.samplers import CountingPace, Request, ScriptedSampler
from opentinker.testing.seats import FunctionSeat

__all__ = [
    "BirthsEnv",
    "CountingPace",
    "FunctionSeat",
    "HangingEnv",
    "LifecycleAEC",
    "LifecycleParallel",
    "OffTurnDeathEnv",
    "RaisingEnv",
    "Request",
    "ScriptedSampler",
    "SlowEnv",
    "play_game",
]
