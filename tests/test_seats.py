import asyncio
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from gymnasium.spaces import Discrete

from opentinker.coordinators import Simultaneous, Table, play_episode
from opentinker.envs import open_env
from opentinker.envs.codec import TextCodec
from opentinker.envs.text import TextSpace
from opentinker.errors import ConfigError, SamplerError, UnknownId
from opentinker.formats import ActionFormat
from opentinker.players import make_player, random_legal
from opentinker.render import make_renderer
from opentinker.seats import InvalidRule, PolicySeat, ScriptedSeat
from opentinker.seeding import derive
from opentinker.testing import ScriptedSampler
from opentinker.types import Completion, EpisodeStatus, FinishReason, PolicyRef, SamplingParams, Seat, Verdict

chat = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "fixtures" / "chat.py")))
TOKENIZER = chat.build_tokenizer("chatml")
RENDERER = make_renderer(TOKENIZER)
LETTERS = TextCodec(TextSpace(100), TextSpace(choices=("p", "b")))
MOVES = TextCodec(TextSpace(100), Discrete(3), action_names=("left", "stay", "right"))
IM_END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")


def seat(replies, **settings):
    sampler = replies if hasattr(replies, "sample") else ScriptedSampler(replies, tokenizer=TOKENIZER)
    defaults = {
        "ref": PolicyRef("learner"),
        "sampler": sampler,
        "renderer": RENDERER,
        "params": SamplingParams(max_tokens=64),
        "seed_key": (7, "train", 3),
        "place": (2, 1),
    }
    made = PolicySeat("player_0", **{**defaults, **settings})
    return made, sampler


def decide(made, observation="Card K.", space=LETTERS, mask=None):
    return asyncio.run(made.decide(observation, space, mask))


def prompts(sampler):
    return [request.prompt for request in sampler.requests]


def turns(*said):
    """A ChatML dialogue, user and assistant in turn, up to the next generation prompt."""
    roles = ("user", "assistant")
    text = "".join(f"<|im_start|>{roles[n % 2]}\n{text}<|im_end|>\n" for n, text in enumerate(said))
    return f"{text}<|im_start|>assistant\n"


def test_a_decision_holds_prompt_completion_and_action():
    made, sampler = seat(["b"])
    assert isinstance(made, Seat)
    decision = decide(made)
    (attempt,) = decision.attempts
    assert (decision.action, decision.verdict, decision.n_legal) == ("b", Verdict.ACT, 2)
    assert attempt.valid
    assert attempt.prompt_ids == RENDERER.start(None, "Card K.") == sampler.requests[0].prompt_ids
    assert attempt.completion.token_ids == (*TOKENIZER.encode("b"), IM_END)
    assert (attempt.reply, attempt.action, attempt.error, attempt.penalty) == ("b", "b", "", 0.0)
    assert (made.agent, made.role, made.policy, made.trainable, made.label) == (
        "player_0",
        "player_0",
        "learner",
        True,
        "learner@latest",
    )


def test_spaces_that_explain_themselves_stand_behind_the_observation():
    made, sampler = seat(["stay"])
    assert decide(made, "where?", MOVES, [1, 1, 0]).n_legal == 2
    assert prompts(sampler) == [turns("where?\nAnswer with one of: left, stay.")]


# Memory.


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("full", ["o1", "o1 p o2", "o1 p o2 b o3", "o1 p o2 b o3 p o4"]),
        ("last", ["o1", "o2", "o3", "o4"]),
        (1, ["o1", "o1 p o2", "o2 b o3", "o3 p o4"]),
        (2, ["o1", "o1 p o2", "o1 p o2 b o3", "o2 b o3 p o4"]),
    ],
)
def test_memory_says_what_prompts_still_show(memory, expected):
    made, sampler = seat(["p", "b", "p", "b"], memory=memory)
    for number in range(1, 5):
        decide(made, f"o{number}")
    assert prompts(sampler) == [turns(*said.split()) for said in expected]


def test_t3_a_window_drops_whole_segments():
    """Turn 2 extends turn 1; turn 3 starts at o2, so it starts with neither, and holds turn 2's sampled ids untouched."""
    made, _ = seat(["p", "b", "p"], memory=1)
    one, two, three = (decide(made, f"o{number}").attempts[0] for number in (1, 2, 3))
    so_far = one.prompt_ids + one.completion.token_ids
    assert two.prompt_ids[: len(so_far)] == so_far
    so_far = two.prompt_ids + two.completion.token_ids
    assert three.prompt_ids[: len(so_far)] != so_far
    start = RENDERER.start(None, "o2")
    assert three.prompt_ids == start + two.completion.token_ids + RENDERER.extend(two.completion, "o3")


def test_t3_a_template_that_drops_thinking_does_not_extend():
    tokenizer = chat.build_tokenizer("forgetful")
    made, sampler = seat(
        ScriptedSampler(["<think>hm</think>\n\np", "b"], tokenizer=tokenizer),
        renderer=make_renderer(tokenizer),
        format=ActionFormat("answer", lambda text: text.split("</think>")[-1], str, ""),
    )
    one, two = decide(made, "o1").attempts[0], decide(made, "o2").attempts[0]
    assert one.valid
    assert prompts(sampler)[1] == turns("o1", "p", "o2")
    so_far = one.prompt_ids + one.completion.token_ids
    assert two.prompt_ids[: len(so_far)] != so_far


def test_a_template_whose_past_reads_differently_is_written_whole():
    tokenizer = chat.build_tokenizer("late_system", eos="<|endoftext|>")
    sampler = ScriptedSampler(["p", "b", "p"], tokenizer=tokenizer)
    made, _ = seat(sampler, renderer=make_renderer(tokenizer), system="S", memory=1)
    for number in (1, 2, 3):
        decide(made, f"o{number}")
    assert prompts(sampler) == [
        "[INST] S\n\no1[/INST]",
        "[INST] o1[/INST]p<|endoftext|>[INST] S\n\no2[/INST]",
        "[INST] o2[/INST]b<|endoftext|>[INST] S\n\no3[/INST]",
    ]


def test_t1_what_was_sampled_is_never_written_anew():
    """The model spells `ab` as two tokens; the tokenizer knows it as one."""
    a, b, ab = TOKENIZER.convert_tokens_to_ids(["a", "b", "ab"])
    sampled = Completion((a, b, IM_END), (-1.0,) * 3, "ab", FinishReason.EOS, "learner", 4)
    made, sampler = seat([sampled, "ab"])
    space = TextCodec(TextSpace(100), TextSpace(choices=("ab",)))
    first = decide(made, "o1", space).attempts[0]
    assert first.completion is sampled
    decide(made, "o2", space)
    later = sampler.requests[1].prompt_ids
    start = len(first.prompt_ids)
    assert later[start : start + 3] == (a, b, IM_END)
    assert ab not in later


def test_an_empty_reply_is_a_turn_like_others():
    nothing = Completion((IM_END,), (-1.0,), "", FinishReason.EOS, "learner", 0)
    made, sampler = seat([nothing, "p"], rule=InvalidRule(retries=1))
    first, second = decide(made).attempts
    assert first.error == "malformed: the reply is empty"
    assert prompts(sampler)[1].startswith(turns("Card K.")[:-1] + "\n<|im_end|>\n<|im_start|>user\n")
    assert second.valid


@pytest.mark.parametrize("looked_at", [True, False])
def test_a_cancelled_decision_leaves_no_trace(looked_at):
    calls = []

    async def reply(request):
        calls.append(request)
        if len(calls) == 1:
            return "junk"
        if len(calls) == 2:
            await asyncio.sleep(3600)
        return "p"

    made, sampler = seat(reply, rule=InvalidRule(retries=5))
    made.tell("host", "hello")

    async def play():
        task = asyncio.ensure_future(made.decide("o1", LETTERS))
        while len(calls) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if looked_at:
            assert TOKENIZER.decode(made.final_prompt("o1")) == turns("host: hello\no1")
        return await made.decide("o1", LETTERS)

    decision = asyncio.run(play())
    assert prompts(sampler)[2] == prompts(sampler)[0] == turns("host: hello\no1")
    assert len(decision.attempts) == 1
    assert sampler.requests[2].params.seed == sampler.requests[0].params.seed


# Messages, roles, system prompts.


def test_messages_and_observation_are_one_user_message():
    made, sampler = seat(["p", "b"])
    made.tell("alice", "I bet.")
    made.tell("", "Two minutes left.")
    decide(made, "o1")
    made.tell("bob", "Fold!")
    decide(made, "o2")
    assert prompts(sampler) == [
        turns("alice: I bet.\nTwo minutes left.\no1"),
        turns("alice: I bet.\nTwo minutes left.\no1", "p", "bob: Fold!\no2"),
    ]


def test_what_is_told_during_a_decision_waits_for_the_next():
    def reply(request):
        made.tell("late", "psst")
        return "p"

    made, sampler = seat(reply, memory="last")
    decide(made, "o1")
    decide(made, "o2")
    assert prompts(sampler) == [turns("o1"), turns("late: psst\no2")]


def test_the_formats_hint_ends_the_system_prompt():
    made, sampler = seat(["<action>b</action>"], system="Play well.", format="tag")
    assert decide(made).action == "b"
    assert prompts(sampler)[0].startswith(
        "<|im_start|>system\nPlay well.\n\nPut your action between <action> and </action>.<|im_end|>\n"
    )


def test_a_system_prompt_joins_the_first_message_where_there_is_no_such_role():
    tokenizer = chat.build_tokenizer("alternating", eos="<|endoftext|>")
    sampler = ScriptedSampler(["p", "b"], tokenizer=tokenizer)
    made, _ = seat(sampler, renderer=make_renderer(tokenizer), system="S", memory=1)
    decide(made, "o1")
    decide(made, "o2")
    assert prompts(sampler)[1] == "<s>[INST] S\n\no1 [/INST]p<|endoftext|>[INST] o2 [/INST]"


def test_final_prompt_is_what_the_next_request_would_have_been():
    made, sampler = seat(["p", "b", "p"], memory=1)
    decide(made, "o1")
    decide(made, "o2")
    made.tell("alice", "hi")
    final = made.final_prompt("o3")
    assert made.final_prompt("o3") == final
    decide(made, "o3")
    assert sampler.requests[2].prompt_ids == final


# Invalid replies.


def test_retry_shows_the_reply_and_what_was_wrong():
    made, sampler = seat(["x", "y", "b", "p"], rule=InvalidRule(retries=2, penalty=-0.5))
    decision = decide(made, "o1")
    wrong = "This is not a legal action: no such action. Legal: p, b. Answer again."
    assert decision.action == "b"
    assert [attempt.valid for attempt in decision.attempts] == [False, False, True]
    assert [attempt.penalty for attempt in decision.attempts] == [-0.5, -0.5, 0.0]
    assert [attempt.action for attempt in decision.attempts] == [None, None, "b"]
    assert [attempt.error for attempt in decision.attempts] == ["malformed: no such action"] * 2 + [""]
    decide(made, "o2")
    asked = ["o1", "x", wrong, "y", wrong]
    assert prompts(sampler) == [turns("o1"), turns(*asked[:3]), turns(*asked), turns(*asked, "b", "o2")]


def test_retries_come_and_go_with_their_decision():
    made, sampler = seat(["x", "p", "b", "p"], rule=InvalidRule(retries=1), memory=1)
    for number in (1, 2, 3):
        decide(made, f"o{number}")
    wrong = "This is not a legal action: no such action. Legal: p, b. Answer again."
    assert prompts(sampler)[2:] == [turns("o1", "x", wrong, "p", "o2"), turns("o2", "b", "o3")]


def test_fallback_plays_a_legal_action_and_says_so():
    made, _ = seat(["x"] * 50, rule=InvalidRule("fallback", penalty=-1.0))
    played = set()
    for _ in range(50):
        decision = decide(made, "o", MOVES, [1, 0, 1])
        (attempt,) = decision.attempts
        assert (decision.verdict, decision.n_legal) == (Verdict.ACT, 2)
        assert (attempt.valid, attempt.action, attempt.penalty) == (False, None, -1.0)
        name = ("left", "stay", "right")[decision.action]
        assert attempt.error == f"malformed: no such action; played {name!r} instead"
        played.add(decision.action)
    assert played == {0, 2}


@pytest.mark.parametrize("others", ["keep", "drop"])
def test_forfeit_ends_the_game_for_the_player(others):
    made, _ = seat(["x", "x"], rule=InvalidRule("forfeit", retries=1, penalty=-2.0, others=others))
    decision = decide(made)
    assert (decision.verdict, decision.action, decision.others) == (Verdict.FORFEIT, None, others)
    assert decision.reason == "malformed: no such action"
    assert [attempt.penalty for attempt in decision.attempts] == [-2.0, -2.0]


def test_truncate_cuts_the_game_off():
    made, _ = seat(["x"], rule=InvalidRule("truncate"))
    decision = decide(made)
    assert (decision.verdict, decision.action, decision.others) == (Verdict.TRUNCATE, None, "keep")


def test_t6_a_cut_reply_is_parsed_first_and_kept_apart_from_a_malformed_one():
    long = TextCodec(TextSpace(100), TextSpace(choices=("ppp",)))
    made, _ = seat(["pppp"], params=SamplingParams(max_tokens=3))
    (attempt,) = decide(made, space=long).attempts
    assert (attempt.completion.finish_reason, attempt.valid, attempt.error) == (FinishReason.LENGTH, True, "")
    made, _ = seat(["pxpp"], params=SamplingParams(max_tokens=3), rule=InvalidRule("forfeit"))
    assert decide(made).reason == "length: no such action"
    made, _ = seat(["pxpp"], rule=InvalidRule("forfeit"))
    assert decide(made).reason == "malformed: no such action"


@pytest.mark.parametrize(("reason", "word"), [(FinishReason.CONTEXT, "context"), (FinishReason.ABORTED, "aborted")])
def test_the_reason_a_reply_ended_is_the_reason_it_is_invalid(reason, word):
    cut = Completion((), (), "", reason, "learner", 0)
    made, _ = seat([cut], rule=InvalidRule("truncate"))
    assert decide(made).reason == f"{word}: the reply is empty"


def test_a_reply_that_ends_at_the_context_says_so():
    room = len(RENDERER.start(None, "Card K.")) + 2
    made, sampler = seat(["xyz"], max_context=room, rule=InvalidRule("truncate"))
    decision = decide(made)
    assert sampler.requests[0].params.max_tokens == 2
    assert decision.attempts[0].completion.finish_reason is FinishReason.CONTEXT
    assert decision.reason == "context: no such action"


@pytest.mark.parametrize(
    ("then", "verdict"), [("fallback", Verdict.ACT), ("forfeit", Verdict.FORFEIT), ("truncate", Verdict.TRUNCATE)]
)
def test_a_prompt_without_room_is_an_attempt_without_a_completion(then, verdict):
    start = len(RENDERER.start(None, "Card K."))
    made, sampler = seat([], max_context=start, rule=InvalidRule(then, retries=3, penalty=-1.0))
    decision = decide(made)
    (attempt,) = decision.attempts
    assert sampler.requests == []
    assert decision.verdict is verdict
    assert (attempt.completion, attempt.valid, attempt.penalty) == (None, False, -1.0)
    assert attempt.error.startswith(f"context: the prompt has {start} tokens, which leaves no room in {start}")
    assert len(attempt.prompt_ids) == start
    assert decide(made).verdict is verdict


def test_a_retry_without_room_ends_the_decision():
    room = len(RENDERER.start(None, "Card K.")) + 10
    made, _ = seat(["x"], max_context=room, rule=InvalidRule("forfeit", retries=3))
    decision = decide(made)
    assert [attempt.error.split(":")[0] for attempt in decision.attempts] == ["malformed", "context"]
    assert decision.verdict is Verdict.FORFEIT


# Requests.


def test_every_request_has_a_seed_of_its_own():
    made, sampler = seat(["x", "p", "b"], rule=InvalidRule(retries=1))
    decide(made)
    decide(made)
    keys = [(2, 1, "player_0", 0, 0), (2, 1, "player_0", 0, 1), (2, 1, "player_0", 1, 0)]
    assert [request.key for request in sampler.requests] == keys
    assert [request.params.seed for request in sampler.requests] == [derive(7, "train", 3, *key) for key in keys]


def test_requests_carry_the_seats_sampling_and_version():
    params = SamplingParams(5, 0.5, 0.9, 3, ("\n",))
    made, sampler = seat(["p\nq"], params=params, trainable=False, ref=PolicyRef.parse("learner@ema"))
    assert decide(made).action == "p"
    (request,) = sampler.requests
    assert replace(request.params, seed=None) == params
    assert (str(request.ref), made.label, made.policy) == ("learner@ema", "learner@ema", "learner")


def test_t5_what_the_sampler_raises_comes_through():
    made, _ = seat([SamplerError("gone")])
    with pytest.raises(SamplerError, match="gone"):
        decide(made)


def test_a_known_prompt_costs_no_encoding(monkeypatch):
    made, _ = seat(["p", "b", "p"], memory="last")
    decide(made, "o1")

    def refuse(*args, **kwargs):
        raise AssertionError("encoded again")

    for name in ("encode", "apply_chat_template"):
        made, _ = seat(ScriptedSampler([Completion((5,), (-1.0,), "p", FinishReason.EOS, "learner", 0)]), memory="last")
        with monkeypatch.context() as patch:
            patch.setattr(TOKENIZER, name, refuse)
            assert decide(made, "o1").action == "p"


# Warm starts.


@pytest.mark.parametrize(
    ("max_tokens", "ids", "reason"), [(1, ("b",), FinishReason.LENGTH), (2, ("b", "<|im_end|>"), FinishReason.EOS)]
)
def test_a_driver_answers_as_the_policy_would_have_to(max_tokens, ids, reason):
    made, sampler = seat([], params=SamplingParams(max_tokens), driver=make_player("always:b"))
    decision = decide(made)
    (attempt,) = decision.attempts
    assert sampler.requests == []
    assert (decision.action, attempt.valid, attempt.reply) == ("b", True, "b")
    assert TOKENIZER.convert_ids_to_tokens(list(attempt.completion.token_ids)) == list(ids)
    assert (attempt.completion.finish_reason, attempt.completion.policy) == (reason, "learner")
    assert len(attempt.completion.logprobs) == max_tokens


@pytest.mark.parametrize("format", ["plain", "tag", "boxed", "json"])
def test_drivers_write_every_format(format):
    made, _ = seat([], format=format, driver=make_player("always:right"))
    for number in range(3):
        assert decide(made, f"o{number}", MOVES).action == 2


def test_a_driver_whose_move_does_not_fit_stops_the_whole_game():
    env = open_env("matrix_game")

    def seated(agent):
        return seat([], params=SamplingParams(3), driver=make_player("always:rock"))[0]

    table = Table(env, seated, episode_id="1", seed=1)
    with pytest.raises(ConfigError, match=r"always:rock answers 'rock' .* 4 tokens .* raise max_tokens"):
        asyncio.run(play_episode(Simultaneous(), env, table))


def test_a_player_that_exits_fails_its_game():
    def leave(situation):
        raise SystemExit(0)

    env = open_env("matrix_game")
    table = Table(env, lambda agent: ScriptedSeat(agent, leave), episode_id="1", seed=1)
    episode = asyncio.run(play_episode(Simultaneous(), env, table))
    assert episode.status is EpisodeStatus.FAILED and "SystemExit" in episode.error


def test_drivers_draw_from_the_requests_seed():
    one, _ = seat([], driver=random_legal)
    two, _ = seat([], driver=random_legal)
    other, _ = seat([], driver=random_legal, place=(2, 2))
    moves = [[decide(made, "o", MOVES).action for _ in range(20)] for made in (one, two, other)]
    assert moves[0] == moves[1] != moves[2]
    assert set(moves[0]) == {0, 1, 2}


def test_a_move_that_does_not_fit_is_a_fault_of_the_configuration():
    made, _ = seat([], params=SamplingParams(3), driver=make_player("always:right"))
    with pytest.raises(ConfigError, match="always:right answers 'right' for player_0, which is 5 tokens .* room for 3"):
        decide(made, "o", MOVES)


# Settings.


@pytest.mark.parametrize("params", [SamplingParams(top_p=0.9), SamplingParams(top_k=5), SamplingParams(temperature=0.0)])
def test_a_trainable_seat_samples_the_full_distribution(params):
    with pytest.raises(ConfigError, match="the seat of player_0 trains, so it must sample the full distribution"):
        seat([], params=params)
    seat([], params=params, trainable=False)


@pytest.mark.parametrize("memory", ["all", 0, -1, True, 1.5])
def test_a_memory_that_is_none_is_refused(memory):
    with pytest.raises(ConfigError, match="memory is"):
        seat([], memory=memory)


def test_settings_that_are_none_are_refused():
    with pytest.raises(UnknownId, match="action format"):
        seat([], format="xml")
    for settings in ({"then": "retry"}, {"retries": -1}, {"others": "maybe"}):
        with pytest.raises(ConfigError, match="rule for invalid actions"):
            InvalidRule(**settings)


# Scripted seats.


def scripted(player, **settings):
    return ScriptedSeat("player_1", player, seed_key=(7, "train", 3), place=(2, 1), **settings)


def test_a_scripted_seat_decides_without_tokens():
    made = scripted(make_player("always:b"), role="dealer")
    assert isinstance(made, Seat)
    decision = decide(made)
    (attempt,) = decision.attempts
    assert (decision.action, decision.n_legal, attempt.reply, attempt.valid) == ("b", 2, "b", True)
    assert (attempt.prompt_ids, attempt.completion, made.final_prompt("o")) == ((), None, ())
    assert (made.policy, made.trainable, made.label, made.role) == (None, False, "always:b", "dealer")


def test_a_scripted_player_sees_the_situation():
    seen = []

    def player(situation):
        seen.append(situation)
        return "p"

    made = scripted(player, role="dealer")
    made.tell("alice", "hi")
    mask = [1, 1]
    decide(made, "o1", LETTERS, mask)
    decide(made, "o2")
    assert [(one.agent, one.role, one.observation, one.space) for one in seen] == [
        ("player_1", "dealer", "o1", LETTERS),
        ("player_1", "dealer", "o2", LETTERS),
    ]
    assert [one.messages for one in seen] == [(("alice", "hi"),), ()]
    assert [one.seed for one in seen] == [derive(7, "train", 3, 2, 1, "player_1", turn, 0) for turn in (0, 1)]
    assert seen[0].mask is mask


def test_a_scripted_player_without_a_legal_action_forfeits():
    for player in (make_player("always:right"), lambda situation: 2):
        decision = decide(scripted(player), "o", MOVES, [1, 1, 0])
        assert (decision.verdict, decision.others) == (Verdict.FORFEIT, "keep")
        assert decision.attempts[0].error == "illegal: not legal now"
    decision = decide(scripted(make_player("always:right"), rule=InvalidRule("fallback")), "o", MOVES, [0, 1, 0])
    assert (decision.action, decision.verdict) == (1, Verdict.ACT)


def test_what_a_scripted_player_raises_comes_through():
    def player(situation):
        raise RuntimeError("bug in the script")

    with pytest.raises(RuntimeError, match="bug in the script"):
        decide(scripted(player))
