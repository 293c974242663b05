import asyncio

from gymnasium.spaces import Discrete

from opentinker.envs.codec import TextCodec
from opentinker.testing import FunctionSeat
from opentinker.types import Decision, Seat, Verdict

CODEC = TextCodec(Discrete(2), Discrete(2), action_names=["no", "yes"])


def decide(seat, observation="?"):
    return asyncio.run(seat.decide(observation, CODEC))


def test_a_reply_is_parsed():
    decision = decide(FunctionSeat("a", lambda observation, space, mask: "yes"))
    assert (decision.action, decision.verdict, decision.n_legal) == (1, Verdict.ACT, 2)
    assert [(attempt.reply, attempt.action, attempt.valid) for attempt in decision.attempts] == [("yes", 1, True)]


def test_a_reply_that_is_no_action_forfeits():
    decision = decide(FunctionSeat("a", lambda *asked: "maybe"))
    assert (decision.action, decision.verdict) == (None, Verdict.FORFEIT)
    assert decision.reason and "maybe" in decision.attempts[0].error


def test_a_function_may_decide_whole_and_await():
    whole = Decision((), "x")

    async def later(*asked):
        return whole

    assert decide(FunctionSeat("a", lambda *asked: whole)) is whole
    assert decide(FunctionSeat("a", later)) is whole


def test_it_remembers_and_is_a_seat():
    seat = FunctionSeat("a", lambda *asked: "no", role="judge", policy="learner", trainable=True, label="x")
    decide(seat, "first")
    seat.tell("b", "hello")
    assert isinstance(seat, Seat)
    assert (seat.seen, seat.heard, seat.role) == (["first"], [("b", "hello")], "judge")
    assert seat.final_prompt("ab") == (97, 98)
    assert FunctionSeat("a", lambda *asked: "no").final_prompt("ab") == ()
