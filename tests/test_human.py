from __future__ import annotations

import asyncio

import pytest
from gymnasium.spaces import Discrete

from opentinker.envs.codec import TextCodec
from opentinker.errors import SeatOut
from opentinker.human import HumanSeat, Left, WatchedSeat, printable
from opentinker.players import make_player
from opentinker.seats import ScriptedSeat
from opentinker.testing import FunctionSeat
from opentinker.types import Attempt, Decision, Seat

SPACE = TextCodec(Discrete(1), Discrete(3), action_names=("left", "stay", "right"))


def human(*lines: str, role: str | None = None) -> tuple[HumanSeat, list[str]]:
    """A seat whose human writes these lines and then goes away, and what it was shown."""
    shown: list[str] = []
    left = iter(lines)

    def read() -> str:
        for line in left:
            return line
        raise Left

    return HumanSeat("ann", show=shown.append, read=read, seen=lambda agent: f"seen by {agent}", role=role), shown


def test_the_human_sees_messages_observation_and_legal_actions_and_its_action_is_played():
    seat, shown = human(" right ", role="guard")
    seat.tell("bob", "go on")
    seat.tell("", "a notice")
    decision = asyncio.run(seat.decide("where?", SPACE, [1, 0, 1]))
    assert decision == Decision((Attempt((), None, " right ", 2, True),), 2, n_legal=2)
    (question,) = shown
    assert question.splitlines()[:4] == ["--- ann (guard) ---", "bob: go on", "a notice", "where?"]
    assert question.splitlines()[-1] == "legal: left, right"
    assert isinstance(seat, Seat) and not seat.trainable and seat.policy is None and seat.final_prompt("x") == ()


def test_a_wrong_action_is_explained_and_asked_again():
    seat, shown = human("fly", "stay", "\x1b[2Jleft", "left")
    decision = asyncio.run(seat.decide("where?", SPACE, [1, 0, 1]))
    assert [(attempt.reply, attempt.valid) for attempt in decision.attempts] == [
        ("fly", False), ("stay", False), ("\x1b[2Jleft", False), ("left", True),
    ]  # fmt: skip
    assert "'fly' is no legal action" in shown[1] and "'stay' is no legal action: not legal now" in shown[2]
    assert "\x1b" not in "".join(shown)


def test_commands_are_no_actions():
    seat, shown = human(":seen", ":seen bob", ":help", ":hlep", "left")
    assert asyncio.run(seat.decide("where?", SPACE)).attempts == (Attempt((), None, "left", 0, True),)
    assert shown[1:3] == ["seen by None", "seen by bob"]
    assert ":quit" in shown[3] and shown[4].startswith(":hlep is no command")


@pytest.mark.parametrize("lines", [[":quit"], [" :quit "], [], ["fly"]])
def test_whoever_leaves_or_has_nothing_more_to_say_is_out(lines):
    seat, _ = human(*lines)
    with pytest.raises(SeatOut, match="ann is out") as out:
        asyncio.run(seat.decide("where?", SPACE))
    assert out.value.reason == "truncate"


def test_a_watched_seat_keeps_its_prompts_and_changes_nothing():
    prompts = iter([(97,), (97, 98), (99,)])  # a, then a longer a, then another beginning
    inner = FunctionSeat("bob", lambda *_: Decision((Attempt(next(prompts), None, "left", 0, True),), 0), policy="learner")
    seat = WatchedSeat(inner, lambda ids: "".join(map(chr, ids)))
    for _ in range(3):
        assert asyncio.run(seat.decide("where?", SPACE)).action == 0
    assert seat.seen == ["ab", "c"]
    seat.role = "guard"
    seat.tell("ann", "hello")
    assert inner.role == seat.role == "guard" and inner.heard == [("ann", "hello")]
    assert (seat.agent, seat.policy, seat.label, seat.trainable) == ("bob", "learner", "function", False)
    assert seat.final_prompt("ab") == (97, 98) and isinstance(seat, Seat)


def test_a_watched_script_keeps_what_it_was_asked_and_its_player_the_raw_observation():
    worlds = []

    def player(situation):
        worlds.append(situation.world)
        return 1

    seat = WatchedSeat(ScriptedSeat("bob", player), None)
    seat.see({"raw": 1})
    assert asyncio.run(seat.decide("where?", SPACE)).action == 1
    assert seat.seen == ["where?"] and worlds == [{"raw": 1}]
    assert WatchedSeat(ScriptedSeat("bob", make_player("random")), None).label == "random_legal"


def test_what_would_steer_a_terminal_is_written_out():
    assert printable("a\tb\nc é 漢 🂡") == "a\tb\nc é 漢 🂡"
    assert printable("\x1b[31m\r\x00\x9b\u202e\ud800") == "\\x1b[31m\\r\\x00\\x9b\\u202e\\ud800"


def test_of_a_very_long_reply_only_the_beginning_is_shown():
    wrong, command = "x" * 3_000_000, ":" + "y" * 3_000_000
    seat, shown = human(wrong, command, "left")
    decision = asyncio.run(seat.decide("where?", SPACE))
    assert decision.attempts[0].reply == wrong  # the record has it all
    assert f"'{'x' * 200}... (3000000 characters)' is no legal action" in shown[1]
    assert all(len(text) < 1000 for text in shown)
