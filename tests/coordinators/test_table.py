"""Every row of the table of calls in the design, one by one."""

import asyncio
import json
import logging

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from opentinker.coordinators import Query, Table
from opentinker.envs.codec import TextCodec
from opentinker.errors import CoordinationError, EnvError, SamplerError, SeatOut
from opentinker.testing import BirthsEnv, FunctionSeat, OffTurnDeathEnv, SlowEnv
from opentinker.types import Attempt, Decision, EpisodeStatus, Verdict


def run(main):
    return asyncio.run(main())


async def hang(observation):
    await asyncio.Event().wait()


def forfeiting(others):
    attempt = Attempt((), None, "?", None, False, "no move", penalty=-2.0)
    return lambda observation: Decision((attempt,), None, Verdict.FORFEIT, "no move", others=others)


# ask


def test_ask_returns_the_action_and_writes_a_turn(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    action = asyncio.run(at.table.ask("agent", "which way?"))
    episode = at.table.freeze()
    (turn,) = episode.turns
    assert action == "go"
    assert (turn.agent, turn.role, turn.policy, turn.index, turn.attempt) == ("agent", "agent", "learner", 0, 0)
    assert (turn.observation, turn.reply, turn.action, turn.valid, turn.n_legal) == ("which way?", "go", "go", True, 1)
    assert (turn.trainable, turn.reward, turn.penalty, turn.phase) == (True, 0.0, 0.0, "")
    assert (episode.id, episode.env, episode.seed, episode.status) == ("1/0/0", "SlowEnv", 7, EpisodeStatus.TERMINATED)


def test_ask_renders_what_is_no_text_and_takes_the_mask_from_it(seated):
    at = seated(SlowEnv(0), {"agent": "1"})
    space = Dict(observation=Box(0, 1, (2,), np.int8), action_mask=Box(0, 1, (3,), np.int8))
    codec = TextCodec(space, Discrete(3))
    at.env.codec = lambda agent: codec
    masks = []
    at.seats["agent"]._answer = lambda observation, space, mask: masks.append(mask) or "1"
    observation = {"observation": np.array([1, 0], np.int8), "action_mask": np.array([0, 1, 1], np.int8)}

    async def main():
        return [
            await at.table.ask("agent", observation),
            await at.table.ask("agent", observation, mask=np.array([0, 1, 0], np.int8)),
        ]

    assert run(main) == [1, 1]
    assert [mask.tolist() for mask in masks] == [[0, 1, 1], [0, 1, 0]]  # one handed in goes before the observation's own
    assert "mask" not in at.seats["agent"].seen[0]
    assert [turn.n_legal for turn in at.table.freeze().turns] == [2, 1]


def test_ask_with_a_space_of_its_own(seated):
    at = seated(SlowEnv(0), {"agent": "yes"})
    votes = TextCodec(Discrete(2), Discrete(2), action_names=["no", "yes"])
    assert asyncio.run(at.table.ask("agent", "agreed?", space=votes)) == 1


def test_attempts_of_one_decision_share_its_index_and_the_last_gets_the_reward(seated):
    first = Attempt((1,), None, "up", None, False, "no such way", penalty=-0.5)
    second = Attempt((1, 2), None, "go", "go", True)
    at = seated(SlowEnv(0), {"agent": lambda observation: Decision((first, second), "go", n_legal=1)})

    async def main():
        await at.table.ask("agent", "which way?")
        at.table.reward("agent", 1.0)
        await at.table.ask("agent", "and now?")

    run(main)
    rows = [(turn.index, turn.attempt, turn.valid, turn.reward, turn.penalty) for turn in at.table.freeze().turns]
    assert rows == [(0, 0, False, 0.0, -0.5), (0, 1, True, 1.0, 0.0), (1, 0, False, 0.0, -0.5), (1, 1, True, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("verdict", "reason"), [(Verdict.FORFEIT, "forfeit"), (Verdict.TRUNCATE, "truncate")], ids=["forfeit", "truncate"]
)
def test_ask_raises_seat_out_by_the_seats_verdict(seated, verdict, reason):
    attempt = Attempt((), None, "?", None, False, "no move", penalty=-2.0)
    at = seated(SlowEnv(0), {"agent": lambda observation: Decision((attempt,), None, verdict, "no move")})
    with pytest.raises(SeatOut, match=rf"agent is out \({reason}\): no move"):
        asyncio.run(at.table.ask("agent", "?"))
    episode = at.table.freeze()
    assert episode.outcome["out"] == {"agent": reason}
    assert episode.outcome.get("forfeit") == ("agent" if reason == "forfeit" else None)
    assert episode.turns[0].penalty == -2.0  # the attempt that put it out is on the record


def test_ask_raises_seat_out_when_the_seat_fails_and_keeps_the_traceback(seated, caplog):
    def broken(observation):
        raise SamplerError("the server is gone")

    at = seated(SlowEnv(0), {"agent": broken})
    with pytest.raises(SeatOut, match="the server is gone") as caught:
        asyncio.run(at.table.ask("agent", "?"))
    assert caught.value.reason == "failed"
    assert isinstance(caught.value.__cause__, SamplerError)
    assert "in broken" in at.table.freeze().outcome["tracebacks"]["agent"]
    assert "in broken" in caplog.text and "SlowEnv (seed 7)" in caplog.text


def test_ask_raises_seat_out_when_the_player_runs_out_of_time(seated):
    at = seated(SlowEnv(0), {"agent": hang}, turn_timeout=0.02)
    with pytest.raises(SeatOut, match=r"agent is out \(timeout\): no decision within 0.02 s"):
        asyncio.run(at.table.ask("agent", "what next?"))
    episode = at.table.freeze(EpisodeStatus.TRUNCATED)
    assert episode.turns == ()
    assert episode.final_prompts == {"agent": tuple(map(ord, "what next?"))}


def test_a_seats_own_timeout_error_is_a_failure_not_a_deadline(seated):
    def refused(observation):
        raise TimeoutError("the server did not answer")

    at = seated(SlowEnv(0), {"agent": refused}, turn_timeout=60)
    with pytest.raises(SeatOut, match=r"failed\): TimeoutError: the server"):
        asyncio.run(at.table.ask("agent", "?"))


def test_a_seat_that_swallows_its_cancellation_is_late_all_the_same(seated):
    async def stubborn(observation):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "go"

    at = seated(SlowEnv(0), {"agent": stubborn}, turn_timeout=0.02)
    with pytest.raises(SeatOut, match="timeout"):
        asyncio.run(at.table.ask("agent", "?"))
    assert at.table.freeze().turns == ()


def test_who_is_out_stays_out(seated):
    at = seated(SlowEnv(0), {"agent": forfeiting("keep")})

    async def main():
        for _ in range(2):
            with pytest.raises(SeatOut, match="forfeit"):
                await at.table.ask("agent", "?")
        assert at.table.out == {"agent": "forfeit"}

    run(main)
    assert len(at.seats["agent"].seen) == 1


@pytest.mark.parametrize(
    ("decision", "fault"),
    [
        (Decision((Attempt((), None, "", None, True),), None), "on no action"),
        (Decision((), "go"), "without an attempt"),
    ],
)
def test_a_decision_that_no_record_can_hold_is_a_failure_of_the_seat(seated, decision, fault):
    at = seated(SlowEnv(0), {"agent": lambda observation: decision})
    with pytest.raises(SeatOut, match=fault):
        asyncio.run(at.table.ask("agent", "?"))
    assert at.table.freeze().turns == ()


def test_ask_refuses_an_agent_that_ended_is_deciding_or_is_late(seated):
    at = seated(OffTurnDeathEnv(), {"player_0": hang, "player_1": "wait", "player_2": "wait"})

    async def main():
        at.table.end("player_1", True, False)
        with pytest.raises(CoordinationError, match="player_1 was asked after table.end"):
            await at.table.ask("player_1", "?")
        first = asyncio.create_task(at.table.ask("player_0", "?"))
        await asyncio.sleep(0)
        with pytest.raises(CoordinationError, match="player_0 was asked while it is still deciding"):
            await at.table.ask("player_0", "?")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        at.table.freeze()
        with pytest.raises(CoordinationError, match="player_2 was asked after the episode had ended"):
            await at.table.ask("player_2", "?")

    run(main)


def test_a_cancelled_request_under_a_seat_is_a_failure_of_the_seat(seated):
    async def closed(observation):
        asyncio.get_running_loop().call_soon(request.cancel)
        await request

    at = seated(SlowEnv(0), {"agent": closed})

    async def main():
        global request
        request = asyncio.get_running_loop().create_future()
        with pytest.raises(SeatOut, match="failed"):
            await at.table.ask("agent", "?")

    run(main)


# ask_all


def test_ask_all_is_a_barrier_on_one_state(seated):
    trace = []
    buffer = np.zeros(2, np.int8)

    def late(agent):
        async def answer(observation):
            trace.append((agent, "sees", observation))
            buffer[:] = 9  # an environment that writes into what it gave out
            await asyncio.sleep(0)
            trace.append((agent, "acts"))
            return "1"

        return answer

    at = seated(OffTurnDeathEnv(2), {"player_0": late("player_0"), "player_1": late("player_1")})
    codec = TextCodec(Box(0, 9, (2,), np.int8), Discrete(3))
    at.env.codec = lambda agent: codec
    actions = asyncio.run(at.table.ask_all({"player_0": Query(buffer), "player_1": Query(buffer)}))
    assert actions == {"player_0": 1, "player_1": 1}
    assert [entry[:2] for entry in trace] == [
        ("player_0", "sees"), ("player_1", "sees"), ("player_0", "acts"), ("player_1", "acts"),
    ]  # fmt: skip
    assert "9" not in trace[0][2] and trace[0][2] == trace[1][2]


def test_ask_all_of_nobody_and_of_one(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    assert asyncio.run(at.table.ask_all({})) == {}
    assert asyncio.run(at.table.ask_all({"agent": Query("?")})) == {"agent": "go"}


def test_e7_one_failure_at_a_barrier_releases_the_partner_at_once(seated):
    released = []

    async def slow(observation):
        try:
            await asyncio.Event().wait()
        finally:
            released.append(True)

    async def broken(observation):
        await asyncio.sleep(0)
        raise SamplerError("gone")

    at = seated(OffTurnDeathEnv(2), {"player_0": slow, "player_1": broken})
    with pytest.raises(SeatOut, match=r"player_1 is out \(failed\)"):
        asyncio.run(asyncio.wait_for(at.table.ask_all({"player_0": Query("a"), "player_1": Query("b")}), 2))
    assert released == [True]
    assert at.table.freeze(EpisodeStatus.TRUNCATED).outcome["out"] == {"player_1": "failed"}


def test_who_was_asked_when_the_game_was_decided_has_no_next_prompt(seated):
    at = seated(OffTurnDeathEnv(2), {"player_0": hang, "player_1": forfeiting("keep")})
    with pytest.raises(SeatOut):
        asyncio.run(at.table.ask_all({"player_0": Query("a"), "player_1": Query("b")}))
    assert at.table.freeze().final_prompts == {}
    assert at.table.freeze(EpisodeStatus.TRUNCATED).final_prompts == {"player_0": (97,)}


def test_a_partner_that_turns_its_release_into_an_error_is_not_out(seated):
    async def rude(observation):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SamplerError("request cancelled") from None

    at = seated(OffTurnDeathEnv(2), {"player_0": rude, "player_1": forfeiting("keep")})
    with pytest.raises(SeatOut, match=r"player_1 is out \(forfeit\)"):
        asyncio.run(at.table.ask_all({"player_0": Query("a"), "player_1": Query("b")}))
    assert at.table.out == {"player_1": "forfeit"}


def test_ask_all_can_wait_for_the_others_instead(seated):
    at = seated(OffTurnDeathEnv(3), {"player_0": "wait", "player_1": forfeiting("keep"), "player_2": "shoot"})
    queries = {agent: Query("?") for agent in at.seats}
    assert asyncio.run(at.table.ask_all(queries, on_out="skip")) == {"player_0": "wait", "player_2": "shoot"}
    assert at.table.out == {"player_1": "forfeit"}


# tell


def test_tell_reaches_the_seats_and_the_record(seated):
    at = seated(OffTurnDeathEnv(3), {f"player_{number}": "wait" for number in range(3)})

    async def main():
        at.table.tell("player_1", "hello", sender="player_0")
        await at.table.ask("player_1", "?")
        at.table.tell(["player_0", "player_2"], "done", sender="referee")

    run(main)
    assert at.seats["player_1"].heard == [("player_0", "hello")]
    assert at.seats["player_0"].heard == at.seats["player_2"].heard == [("referee", "done")]
    rows = [(message.sender, message.to, message.text, message.turn) for message in at.table.freeze().messages]
    assert rows == [("player_0", ("player_1",), "hello", 0), ("referee", ("player_0", "player_2"), "done", 1)]


# reward, end


def test_a_coordinator_cannot_end_a_game_by_a_text(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    for flags, name in (("no", False), "terminated"), ((False, "no"), "truncated"):
        with pytest.raises(EnvError, match=f"gave agent as {name} 'no'; give True or False"):
            at.table.end("agent", *flags)
    at.table.end("agent", np.bool_(False), 1)
    assert at.table.freeze().status is EpisodeStatus.TRUNCATED


def test_a_reward_belongs_to_the_latest_turn_and_before_the_first_to_the_episode(seated):
    at = seated(SlowEnv(0), {"agent": "go"})

    async def main():
        at.table.reward("agent", 10.0)
        await at.table.ask("agent", "1")
        at.table.reward("agent", 1.0)
        at.table.reward("agent", 0.5)
        await at.table.ask("agent", "2")
        at.table.reward("agent", np.float32(2.0))

    run(main)
    episode = at.table.freeze()
    assert [turn.reward for turn in episode.turns] == [1.5, 2.0]
    assert episode.rewards == {"agent": 13.5}


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), None, "much"])
def test_a_reward_that_is_no_finite_number_is_the_environments_error(seated, wrong):
    at = seated(SlowEnv(0), {"agent": "go"})
    with pytest.raises(EnvError, match=r"'SlowEnv' \(seed 7\) gave agent the reward .*; give a finite number"):
        at.table.reward("agent", wrong)


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([(True, False), (True, False)], EpisodeStatus.TERMINATED),
        ([(True, False), (False, True)], EpisodeStatus.TRUNCATED),
        ([(True, True), (True, True)], EpisodeStatus.TERMINATED),  # ended inside its rules, at the limit
        ([], EpisodeStatus.TERMINATED),
    ],
)
def test_end_decides_the_status(seated, ends, status):
    at = seated(OffTurnDeathEnv(2), {"player_0": "wait", "player_1": "wait"})
    for agent, (terminated, truncated) in zip(at.seats, ends, strict=False):
        at.table.end(agent, terminated, truncated, observation=f"{agent}'s last")
    episode = at.table.freeze()
    assert episode.status is status
    cut = {"player_1": tuple(map(ord, "player_1's last"))} if status is EpisodeStatus.TRUNCATED else {}
    assert episode.final_prompts == cut


# assign_role, phase, rng, seed, note


def test_assign_role_moves_prompts_and_turns_from_then_on(seated):
    at = seated(SlowEnv(0), {"agent": "go"})

    async def main():
        await at.table.ask("agent", "1")
        at.table.assign_role("agent", "judge")
        await at.table.ask("agent", "2")

    run(main)
    episode = at.table.freeze()
    assert [turn.role for turn in episode.turns] == ["agent", "judge"]
    assert at.seats["agent"].role == "judge" and episode.roles == {"agent": "judge"}


def test_phases_nest_and_side_conversations_keep_theirs_apart(seated):
    at = seated(OffTurnDeathEnv(3), {f"player_{number}": "wait" for number in range(3)})

    async def side(agent, phase):
        async with at.table.phase(phase):
            await asyncio.sleep(0)
            await at.table.ask(agent, "?")

    async def main():
        async with at.table.phase("debate"):
            await at.table.ask("player_0", "?")
            async with at.table.phase("critique"):
                await at.table.ask("player_0", "?")
            await asyncio.gather(side("player_1", "left"), side("player_2", "right"))
            await at.table.ask("player_0", "?")
        await at.table.ask("player_0", "?")

    run(main)
    assert [turn.phase for turn in at.table.freeze().turns] == ["debate", "critique", "left", "right", "debate", ""]


def test_a_phase_ends_with_the_player_who_leaves_in_it(seated):
    at = seated(OffTurnDeathEnv(2), {"player_0": forfeiting("keep"), "player_1": "wait"})

    async def main():
        with pytest.raises(SeatOut):
            async with at.table.phase("bids"):
                await at.table.ask("player_0", "?")
        await at.table.ask("player_1", "?")

    run(main)
    assert [turn.phase for turn in at.table.freeze().turns] == ["bids", ""]


def test_members_of_a_group_share_seed_and_generator(seated):
    draws = [
        [seated(SlowEnv(0), {"agent": "go"}, seed=seed, member=member).table.rng.random() for member in range(2)]
        for seed in (7, 8)
    ]
    assert draws[0][0] == draws[0][1] != draws[1][0] == draws[1][1]
    assert seated(SlowEnv(0), {"agent": "go"}, seed=8).table.seed == 8


def test_notes_stand_in_the_outcome(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    at.table.note("winner", "agent")
    assert at.table.freeze().outcome == {"winner": "agent"}


def test_notes_can_always_be_written_as_json(seated):
    class Mute:
        def __str__(self):
            raise ValueError("no words")

    class Odd(dict):
        def items(self):
            raise OSError

    at = seated(SlowEnv(0), {"agent": "go"})
    ring: dict = {"a": 1}
    ring["me"], ring["twice"] = ring, [ring]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    board = [1, 2]
    for key, value in {
        "ring": ring, "deep": deep, "huge": 10**5000, "small": 10**500, "mute": Mute(), "odd": Odd(a=1), "board": board,
        "array": np.arange(3), "scalar": np.float32(0.5), "nan": float("nan"), "pair": (True, None), "keys": {1: {"a": {2}}},
        "in_huge": [{"n": -(10**5000)}], "bytes": b"x",
    }.items():  # fmt: skip
        at.table.note(key, value)
    at.table.note(3, "key")
    board.append(3)
    outcome = at.table.freeze().outcome
    assert json.loads(json.dumps(outcome))["huge"] == hex(10**5000)
    assert outcome["ring"]["a"] == 1 and isinstance(outcome["ring"]["me"], str)
    assert outcome["small"] == 10**500 and outcome["in_huge"] == [{"n": hex(-(10**5000))}]
    assert (outcome["mute"], outcome["bytes"]) == ("<Mute that has no text: ValueError>", "b'x'")
    assert (outcome["board"], outcome["array"], outcome["scalar"], outcome["pair"]) == ([1, 2], [0, 1, 2], 0.5, [True, None])
    assert outcome["keys"] == {"1": {"a": "{2}"}} and outcome["3"] == "key" and outcome["nan"] != outcome["nan"]


def test_an_agent_is_named_by_a_text(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    with pytest.raises(CoordinationError, match=r"an agent's name is a text, given: 5"):
        asyncio.run(at.table.ask(5, "?"))


def test_a_mask_that_is_none_is_the_environments_fault_and_names_the_agent(seated):
    at = seated(SlowEnv(0), {"agent": "go"})
    with pytest.raises(EnvError, match=r"SlowEnv \(seed 7\): asking agent: the action mask is no list.*given: 'no'"):
        asyncio.run(at.table.ask("agent", "?", mask="no"))
    assert "out" not in at.table.freeze().outcome


# forfeits and what they do to the others, opponents, seats


@pytest.mark.parametrize(("others", "trained"), [("drop", [False, True]), ("keep", [True, True])])
def test_a_forfeit_drops_or_keeps_the_others_turns(seated, others, trained):
    at = seated(OffTurnDeathEnv(2), {"player_0": "wait", "player_1": forfeiting(others)})

    async def main():
        await at.table.ask("player_0", "?")
        with pytest.raises(SeatOut):
            await at.table.ask("player_1", "?")

    run(main)
    assert [turn.trainable for turn in at.table.freeze().turns] == trained


def test_seats_that_do_not_train_are_opponents():
    from opentinker.envs.handle import EnvHandle

    env = EnvHandle.wrap(OffTurnDeathEnv(2), isolation="inline")
    called = []

    def seat_of(agent):
        called.append(agent)
        return FunctionSeat(agent, lambda *asked: "wait", trainable=agent == "player_0", label=f"label of {agent}")

    table = Table(env, seat_of, episode_id="e", seed=0)

    async def main():
        for agent in ("player_0", "player_1", "player_0"):
            await table.ask(agent, "?")

    run(main)
    episode = table.freeze()
    assert episode.opponents == {"player_1": "label of player_1"}
    assert [turn.trainable for turn in episode.turns] == [True, False, True]
    assert called == ["player_0", "player_1"]  # one fresh seat an agent and an episode


def test_an_agent_born_during_the_episode_is_seated_when_it_first_matters(seated):
    at = seated(BirthsEnv(), {"worker_0": "work", "worker_3": "work"})
    assert asyncio.run(at.table.ask("worker_3", "?")) == "work"
    assert list(at.table.freeze().roles) == ["worker_3"]


def test_a_seat_that_cannot_build_its_final_prompt_fails_the_episode(seated, caplog):
    at = seated(SlowEnv(0), {"agent": "go"})

    def broken(observation):
        raise ValueError("template without a place for this")

    at.seats["agent"].final_prompt = broken
    at.table.end("agent", False, True, observation="last")
    with caplog.at_level(logging.ERROR):
        episode = at.table.freeze()
    assert episode.status is EpisodeStatus.FAILED
    assert "template without a place" in episode.error and "template without a place" in caplog.text


@pytest.mark.parametrize("on_out", ["release", "skip"])
def test_the_turns_of_a_barrier_stand_in_the_order_of_its_queries(seated, on_out):
    """Whoever is answered first depends on who else is served then, in games that have nothing to do with this one."""
    gates = {name: asyncio.Event() for name in ("worker_0", "worker_1", "worker_2")}

    def answer(name):
        async def wait(observation):
            await gates[name].wait()
            return "quit" if name == "worker_0" else "work"

        return wait

    at = seated(BirthsEnv(), {name: answer(name) for name in gates})

    async def main():
        asked = asyncio.ensure_future(at.table.ask_all({name: Query("?") for name in gates}, on_out=on_out))
        for name in ("worker_2", "worker_0", "worker_1"):
            await asyncio.sleep(0)
            gates[name].set()
            await asyncio.sleep(0.01)
        return await asked

    assert list(run(main)) == list(gates)
    assert [turn.agent for turn in at.table.freeze().turns] == list(gates)


def test_the_decisions_before_a_player_leaves_a_barrier_stand_in_order_too(seated):
    async def late(observation):
        await asyncio.sleep(0.02)
        return "work"

    async def leave(observation):
        await asyncio.sleep(0.05)
        return forfeiting("keep")(observation)

    at = seated(BirthsEnv(), {"worker_0": late, "worker_1": "work", "worker_2": leave})

    async def main():
        with pytest.raises(SeatOut):
            await at.table.ask_all({name: Query("?") for name in ("worker_0", "worker_1", "worker_2")})

    run(main)
    assert [turn.agent for turn in at.table.freeze().turns] == ["worker_0", "worker_1", "worker_2"]


def test_c7_only_what_a_truncated_agent_would_have_seen_next_is_kept_for_bootstrapping(seated):
    at = seated(OffTurnDeathEnv(3), {"player_0": "wait", "player_1": "wait", "player_2": "wait"})
    at.table.end("player_0", True, False, observation="won")
    at.table.end("player_1", False, True, observation="cut")
    at.table.end("player_2", True, True, observation="both")
    assert at.table.freeze().final_prompts == {"player_1": tuple(map(ord, "cut"))}
