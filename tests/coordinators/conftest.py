from collections.abc import Callable, Mapping
from typing import Any

import pytest

from opentinker.coordinators import Table
from opentinker.envs.handle import EnvHandle
from opentinker.testing import FunctionSeat


def make_seats(answers: Mapping[str, Any], trainable: bool = True) -> dict[str, FunctionSeat]:
    """Seats that look like a policy's; an answer is a text, a list of texts in order, or a function of the observation."""

    def answer(agent: str) -> Callable[..., Any]:
        given = answers[agent]
        if isinstance(given, str):
            return lambda observation, space, mask: given
        if callable(given):
            return lambda observation, space, mask: given(observation)
        replies = iter(given)
        return lambda observation, space, mask: next(replies)

    return {agent: FunctionSeat(agent, answer(agent), policy="learner", trainable=trainable) for agent in answers}


class Seated:
    """A table on a wrapped environment, with its seats within reach."""

    def __init__(self, env: Any, answers: Mapping[str, Any], isolation: Any = "inline", **settings: Any) -> None:
        self.env = env if isinstance(env, EnvHandle) else EnvHandle.wrap(env, isolation=isolation)
        self.seats = make_seats(answers)
        self.table = Table(self.env, self.seats.__getitem__, **{"episode_id": "1/0/0", "seed": 7, **settings})


@pytest.fixture
def seated() -> type[Seated]:
    return Seated
