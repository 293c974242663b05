"""Packing: what comes out is what went in, told by reading it back the long way."""

import fcntl
import json
import random
from pathlib import Path

import pytest

from opentinker.report.page.episodes import CHUNK_EPISODES, Line, Packer, choose, find_lines
from opentinker.report.record import episode_to_json
from opentinker.report.runs import RunRecord
from opentinker.testing.runs import made_up_games, made_up_turn, write_run


def lines(run):
    return list(find_lines(0, RunRecord.read(run)))


def unfold(chunk, place):
    """A prompt of a chunk, by its definition."""
    base, keep, *rest = chunk["p"][place]
    return (unfold(chunk, base)[:keep] if base >= 0 else []) + rest


def unpacked(chunk, number):
    """(agent, prompt, sampled, log-probs, observation, reward) of each turn."""
    s = chunk["s"]
    return [
        (s[turn[0]], unfold(chunk, turn[7]), turn[8][0], turn[8][1], s[turn[9]], turn[14]) for turn in chunk["e"][number][0]
    ]


def test_every_turn_comes_back(tmp_path):
    games = list(made_up_games(600))
    packer = Packer()
    chunks = list(packer.chunks(lines(write_run(tmp_path / "run", {}, [], games))))
    index = packer.index()
    assert [len(chunk["e"]) for chunk in chunks] == [CHUNK_EPISODES, CHUNK_EPISODES, 600 - 2 * CHUNK_EPISODES]
    for row, game in enumerate(games):
        assert index["s"][index["id"][row]] == game.id
        found = unpacked(chunks[index["chunk"][row]], index["slot"][row])
        for turn, (agent, prompt, sampled, logprobs, observation, reward) in zip(game.turns, found, strict=True):
            assert (agent, tuple(prompt), tuple(sampled)) == (turn.agent, turn.prompt_ids, turn.completion.token_ids)
            assert logprobs == pytest.approx(turn.completion.logprobs, rel=1e-4)
            assert (observation, reward) == (turn.observation, turn.reward)
    assert packer.unread == {}
    assert set(packer.used[0]["learner"]) == {
        id for game in games for t in game.turns for id in (*t.prompt_ids, *t.completion.token_ids)
    }


def test_a_growing_dialogue_is_kept_once(tmp_path):
    draw = random.Random(1)
    prompt, turns = [draw.randrange(1000) for _ in range(500)], []
    for number in range(20):
        turns.append(made_up_turn("a", prompt, "ok", index=number))
        prompt = [*prompt, *turns[-1].completion.token_ids, *(draw.randrange(1000) for _ in range(10))]
    turns.append(made_up_turn("a", prompt[:300] + [7, 8], "ok", index=20))  # the front of it only
    (game,) = made_up_games(1)
    episode = type(game)(
        **{name: getattr(game, name) for name in game.__slots__} | {"turns": tuple(turns), "roles": {"a": "a"}}
    )
    (chunk,) = Packer().chunks(lines(write_run(tmp_path / "run", {}, [], [episode])))
    assert [tuple(prompt) for _, prompt, *_ in unpacked(chunk, 0)] == [turn.prompt_ids for turn in turns]
    assert sum(map(len, chunk["p"])) < 500 + 20 * 14 + 3 * 21


def test_lines_that_are_no_episode_are_counted_and_break_nothing(tmp_path):
    run = write_run(tmp_path / "run", {}, [], made_up_games(3))
    (file,) = (run / "episodes").iterdir()
    good = json.loads(file.read_text().splitlines()[0])
    bad = [
        '{"turns": [',
        "nonsense",
        json.dumps({**good, "turns": 3}),
        json.dumps({**good, "status": "odd"}),
        json.dumps({**good, "rewards": [1]}),
        json.dumps({**good, "turns": [{**good["turns"][0], "prompt_ids": [-1]}]}),
        json.dumps({**good, "turns": [{**good["turns"][0], "prompt_ids": [True]}]}),
        json.dumps({**good, "turns": [{**good["turns"][0], "version": float("nan")}]}),
        json.dumps({**good, "turns": [{**good["turns"][0], "reward": None}]}),
        json.dumps({**good, "roles": 5}),
    ]
    with file.open("a") as out:
        out.write("\n".join(bad) + '\n\n{"kind": "summary"}\n')  # the last is another record and no torn episode
    packer = Packer()
    (chunk,) = packer.chunks(lines(run))
    assert len(chunk["e"]) == 3 == len(packer.index()["id"])
    assert packer.unread[0] == len(bad)
    json.dumps([chunk, packer.index()], allow_nan=False)


def test_an_episode_that_a_running_run_is_writing_is_not_torn(tmp_path):
    run = write_run(tmp_path / "run", {}, [], made_up_games(2))
    (file,) = (run / "episodes").iterdir()
    file.write_bytes(file.read_bytes()[:-50])
    assert len(lines(run)) == 2
    with (run / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert len(lines(run)) == 1


def line(number, failed=False, length=10):
    return Line(0, "training", Path("x"), number, length, failed)


def test_the_choice_keeps_failures_and_spreads_the_rest():
    all_ = [line(number, failed=number in (17, 50)) for number in range(100)]
    assert choose(all_, 100) == all_ == choose(all_, 1000)
    kept = [entry.offset for entry in choose(all_, 7)]
    assert len(kept) == 7 and kept == sorted(kept) and {17, 50} <= set(kept)
    others = [offset for offset in kept if offset not in (17, 50)]
    assert others == [0, 20, 40, 60, 80] or max(b - a for a, b in zip(others, others[1:], strict=False)) <= 22
    assert choose(all_, 0) == []


def test_failures_do_not_push_everything_else_out():
    kept = choose([line(number, failed=number < 90) for number in range(100)], 10)
    assert sum(entry.failed for entry in kept) == 5


def test_the_choice_stays_below_its_bytes():
    assert sum(entry.length for entry in choose([line(n, length=n) for n in range(100)], 100, max_bytes=1000)) <= 1000
    assert choose([line(0, length=5000)], 10, max_bytes=1000) == []


def test_evaluations_have_the_step_of_their_file_and_training_that_of_the_id(tmp_path):
    run = write_run(tmp_path / "run", {}, [], made_up_games(1))
    (game,) = made_up_games(1)
    (run / "evaluations").mkdir()
    (run / "evaluations" / "step-000120-20260101T000000.jsonl").write_text(json.dumps(episode_to_json(game)) + "\n")
    (run / "play").mkdir()
    (run / "play" / "evening.jsonl").write_text(json.dumps(episode_to_json(game)) + "\n")
    packer = Packer()
    list(packer.chunks(lines(run)))
    index = packer.index()
    kinds = [index["s"][place] for place in index["kind"]]
    assert list(zip(kinds, index["step"], strict=True)) == [("training", 10), ("play", -1), ("evaluation", 120)]
