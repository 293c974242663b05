"""Five hundred games at once, one in ten of which goes wrong: the others must not notice."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from opentinker.config import load_config
from opentinker.coordinators import failures
from opentinker.errors import SamplerError
from opentinker.report.record import episode_from_json, episode_to_json
from opentinker.rollout import Rollout, brief
from opentinker.sampling.draws import uniforms
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.seeding import derive
from opentinker.testing import CountingPace, ScriptedSampler
from opentinker.testing.trouble import GARBAGE, HANGING, POISON, RAISING, STRANGERS, TUPLES, WORDS, Trouble
from opentinker.types import Completion, EpisodeStatus, FinishReason

ROOT = Path(__file__).parents[1]
SEED = 37297  # with it exactly one game in ten is in trouble, and every kind of trouble comes
EPISODES = 500
ENVS = {"solo": "TroubledEnv", "turns": "TroubledAECEnv", "simultaneous": "TroubledParallelEnv"}
KINDS = {
    "solo": (*RAISING, *GARBAGE, *TUPLES),
    "turns": (*RAISING, *GARBAGE, "a stranger observes"),
    "simultaneous": (*RAISING, *GARBAGE, *TUPLES, *STRANGERS),
}
HARMLESS = "poisoned observation"
"""Trouble for the poisoned model only."""

_, TOKENIZER = build_tiny(0)


class Host:
    def __init__(self, sampler):
        self.sampler = sampler

    def tokenizer(self, policy):
        return TOKENIZER

    def max_context(self, policy):
        return 1024


def by_prompt(request):
    """A word that depends on the whole prompt; in some cases none that is legal."""
    return (*WORDS, "nothing")[zlib.crc32(repr(request.prompt_ids).encode()) % 4]


def scripted(answer=by_prompt):
    return ScriptedSampler(answer, tokenizer=TOKENIZER)


def settings(coordinator="solo", kinds=(), *, isolation="thread", groups=EPISODES, share=10, **changes):
    """The configuration of a run with trouble in one of `share` games."""
    env = {"id": f"opentinker.testing.trouble:{ENVS[coordinator]}", "isolation": isolation}
    env |= {"kwargs": {"kinds": list(kinds), "share": share, "refuse": changes.pop("refuse", 0)}}
    env |= {"step_timeout": changes.pop("step_timeout", 60.0)}
    return load_config(
        {
            "seed": SEED,
            "env": env,
            "coordinator": {"id": coordinator},
            "agents": {"*": {"policy": "learner", "memory": "full", "on_invalid": {"penalty": -1}}},
            "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": changes.pop("max_tokens", 8)}}},
            "rollout": {"groups": groups, "max_failed_fraction": 1.0, **changes},
        }
    )


def play(coordinator="solo", kinds=(), sampler=None, **changes):
    """One step's episodes, the session that played them, and the seconds it took."""
    config = settings(coordinator, kinds, **changes)

    async def main():
        session = Rollout(config, Host(sampler or scripted()))
        start = time.perf_counter()
        try:
            groups = await session.collect(1)
            return [episode for group in groups for episode in group.episodes], session, time.perf_counter() - start
        finally:
            await session.close()

    return asyncio.run(main())


def content(episode):
    """All that a trainer sees of an episode, rounding apart."""
    turns = [
        (t.agent, t.index, t.attempt, t.prompt_ids, t.completion.token_ids, t.reply, t.action, t.valid, t.reward, t.penalty)
        for t in episode.turns
    ]
    return episode.seed, episode.status, dict(episode.rewards), turns, dict(episode.final_prompts), dict(episode.roles)


def kind_of(episode, kinds, share=10):
    """Worked out anew: one seed in `share`, the kinds in turn."""
    return kinds[episode.seed // share % len(kinds)] if episode.seed % share == 0 else ""


def assert_the_others_are_as_ever(episodes, whole, but):
    """Every episode outside of `but` ended, and is the undisturbed one in all its content."""
    assert len(episodes) == len(whole)
    for episode in episodes:
        if episode.id not in but:
            assert content(episode) == whole[episode.id], episode.id


@pytest.fixture(scope="module")
def undisturbed():
    """The content of every episode of a run without trouble, by coordinator; played inline, by the scripted sampler."""
    found = {}

    def get(coordinator):
        if coordinator not in found:
            episodes, _, _ = play(coordinator, isolation="inline")
            assert all(episode.status is EpisodeStatus.TERMINATED for episode in episodes)
            assert len({episode.turns[-1].prompt_ids for episode in episodes}) > EPISODES / 2  # games that differ
            found[coordinator] = {episode.id: content(episode) for episode in episodes}
        return found[coordinator]

    return get


@pytest.fixture
def released():
    """Lets hanging environments go on when the test is over."""
    Trouble.released.clear()
    yield Trouble.released
    Trouble.released.set()


WHAT = {
    "reset raises": "RuntimeError: the world broke in reset",
    "step raises": "RuntimeError: the world broke in step",
    "step exits": "SystemExit: 3",
    "step raises GeneratorExit": "GeneratorExit: 4",
    "step raises without a text": "Speechless: (its __str__ raised ValueError)",
    "reset of one value": "from reset; return a tuple of 2",
    "step of four values": "returned 4 values from step; return a tuple of 5",
    "no observation": "gave NoneType: None",
    "observation of another type": "gave float: 3.5",
    "reward nan": "the reward nan",
    "reward infinite": "the reward -inf",
    "reward text": "the reward 'a lot'",
    "no reward": "the reward None",
    "reward too large": "the reward 1000000000000",
    "info of another type": "as info: ['a list']; give a dict",
    "flag of text": "as terminated 'no'; give True or False",
    "nothing legal": "leaves no legal action",
    "mask too short": "has 1 entries, the action space has 3",
    "mask of texts": "is no list or array of one dimension",
    "a stranger is rewarded": "named the agent 'stranger', which is none of its possible_agents: ['ann', 'bob']",
    "a stranger observes": "named the agent 'stranger', which is none of its possible_agents: ['ann', 'bob']",
}
"""What the first line of an episode's error says."""


@pytest.mark.parametrize("isolation", ["inline", pytest.param("thread", marks=pytest.mark.slow)])
@pytest.mark.parametrize("coordinator", ENVS)
def test_e6_what_raises_or_gives_garbage_costs_its_own_episode_only(coordinator, isolation, undisturbed, caplog):
    kinds = KINDS[coordinator]
    episodes, session, _ = play(coordinator, kinds, isolation=isolation)
    troubled = {episode.id: kind for episode in episodes if (kind := kind_of(episode, kinds))}
    assert len(troubled) == EPISODES // 10 and set(troubled.values()) == set(kinds)
    failed = [episode for episode in episodes if episode.status is EpisodeStatus.FAILED]
    assert {episode.id for episode in failed} == {id for id, kind in troubled.items() if kind != HARMLESS}
    assert_the_others_are_as_ever(episodes, undisturbed(coordinator), but=troubled)
    # the true traceback is on every failed episode, and whole in the log once for each place it came from
    for episode in failed:
        assert "Traceback (most recent call last)" in episode.error and f"(seed {episode.seed})" in episode.error
        assert WHAT[troubled[episode.id]] in brief(episode.error)
        assert (", in _strike)" in brief(episode.error)) == (troubled[episode.id] in RAISING)  # the true place
    lines = [record.getMessage() for record in caplog.records]
    whole = [text for text in lines if "Traceback" in text]
    assert sum("the world broke in step" in text for text in whole) == 1
    assert sum("the world broke in reset" in text for text in whole) == 1
    assert len(whole) <= len(set(troubled.values()))
    assert all(any(episode.id in text for text in lines) for episode in failed)
    assert not [record for record in caplog.records if record.name == "asyncio"]


def threads_but(before, at_most):
    """The environments' threads that are not in `before`, as soon as there are no more than so many."""
    for _ in range(200):
        left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("env ")]
        if len(left) <= at_most:
            break
        time.sleep(0.05)
    return left


@pytest.mark.parametrize("coordinator", ["solo", *(pytest.param(id, marks=pytest.mark.slow) for id in ENVS if id != "solo")])
def test_e8_hanging_environments_cost_one_timeout_together_and_nobody_waits_for_them(coordinator, undisturbed, released):
    before = set(threading.enumerate())
    episodes, session, seconds = play(coordinator, HANGING, step_timeout=2.0)
    troubled = {episode.id: kind for episode in episodes if (kind := kind_of(episode, HANGING))}
    assert len(troubled) == EPISODES // 10
    assert {episode.id for episode in episodes if episode.status is EpisodeStatus.FAILED} == set(troubled)
    assert_the_others_are_as_ever(episodes, undisturbed(coordinator), but=troubled)
    for episode in episodes:
        if kind := troubled.get(episode.id):
            assert f"(seed {episode.seed}) did not answer {kind.split()[0]}" in brief(episode.error)
    assert seconds < 2 * 2.0 + 6  # the two kinds one after the other, and room for a slow machine; not fifty times two
    assert session.env_stats.abandoned == len(troubled)
    left = threads_but(before, at_most=len(troubled))  # those of the others end
    assert len(left) == len(troubled) and all(thread.daemon for thread in left)
    released.set()
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


def test_what_cannot_be_made_costs_its_own_episode_only(undisturbed, caplog):
    episodes, session, _ = play("solo", refuse=10, isolation="inline")
    failed = {episode.id for episode in episodes if episode.status is EpisodeStatus.FAILED}
    assert len(failed) == EPISODES // 10 == session.env_stats.errors
    for episode in episodes:
        if episode.id in failed:
            why = brief(episode.error)
            assert "could not be made" in why and "OSError: no licence is left (File" in why
    assert sum("Traceback" in record.getMessage() for record in caplog.records) == 1
    assert_the_others_are_as_ever(episodes, undisturbed("solo"), but=failed)


ODD = ["", "\x00\x1b[2J", "\ud800 low", "\u202ewol", "\U0010ffff" * 50, "lo\u0301w", "low\nhigh", "ﬁ" * 2000]
ERRORS = [SamplerError("out of memory"), RuntimeError("lost"), asyncio.CancelledError(), SystemExit(3), KeyError("ids")]


@pytest.mark.parametrize("coordinator", ["solo", "simultaneous", pytest.param("turns", marks=pytest.mark.slow)])
def test_t5_a_sampler_that_fails_for_good_or_talks_nonsense_costs_its_own_episodes_only(coordinator, undisturbed):
    def answer(request):
        group, turn = request.key[0], request.key[3]
        if group % 20 == 3 and turn == 1:
            return ERRORS[group // 20 % len(ERRORS)]
        if group % 20 == 13 and turn == 1:
            return Completion((65, 66), (-1.0, -1.0), ODD[group // 20 % len(ODD)], FinishReason.EOS, "learner", 0)
        return by_prompt(request)

    sampler = scripted(answer)
    episodes, _, _ = play(coordinator, (), sampler, isolation="inline")
    failed = {episode.id for episode in episodes if episode.status is EpisodeStatus.FAILED}
    assert failed == {episode.id for episode in episodes if episode.group % 20 == 3} and len(failed) == 25
    assert all("Traceback" in episode.error for episode in episodes if episode.id in failed)
    odd = [episode for episode in episodes if episode.group % 20 == 13]
    assert {turn.reply for episode in odd for turn in episode.turns} >= set(ODD)
    for episode in odd:  # nonsense is an invalid action, and can be written and read back
        assert [turn.valid for turn in episode.turns if turn.reply in ODD] == [False] * len(episode.roles)
        assert episode_from_json(json.loads(json.dumps(episode_to_json(episode)).encode())).turns[0] == episode.turns[0]
    assert_the_others_are_as_ever(episodes, undisturbed(coordinator), but=failed | {episode.id for episode in odd})
    assert sampler.count == 0  # the pace is even again


# the embedded sampler


def model_sampler(poisoned=False):
    """Serves the tiny model; poisoned, it makes nothing of prompts that hold `POISON`."""
    model, words = build_tiny(0)
    if poisoned:
        mark = words.encode(POISON, add_special_tokens=False)

        def spoil(module, inputs, output):
            (ids,) = inputs
            if ids.shape[1] < len(mark):  # a sampled id
                return output
            hit = sum((ids.roll(-at, dims=1) == id).int() for at, id in enumerate(mark)) == len(mark)
            return output.masked_fill(hit[..., None], float("nan"))

        model.get_input_embeddings().register_forward_hook(spoil)
    sampler = HFSampler(deterministic=True)
    sampler.add("learner", model, words)
    return sampler, model


def borders(model, prompt, ids, seed):
    """For each sampled id, where its draw fell and the borders of its share of the unit interval; plain transformers."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    share = torch.softmax(logits.double(), dim=-1).cumsum(dim=-1)
    drawn = [float(uniforms(np.array([seed], dtype=np.uint64), position)[0]) for position in range(len(ids))]
    return [(float(row[id - 1]) if id else 0.0, u, float(row[id])) for row, u, id in zip(share, drawn, ids, strict=True)]


def assert_alike_but_for_rounding(episode, clean, model):
    """Token for token, unless a draw fell so close to a border that rounding decides: then nothing after it is compared."""
    for ours, theirs in zip(episode.turns, clean.turns, strict=True):
        assert (ours.agent, ours.index, ours.prompt_ids) == (theirs.agent, theirs.index, theirs.prompt_ids)
        ids, others = ours.completion.token_ids, theirs.completion.token_ids
        if ids != others:
            at = next(at for at, pair in enumerate(zip(ids, others, strict=False)) if pair[0] != pair[1])
            place = (SEED, "train", 1, episode.group, episode.member, ours.agent, ours.index, ours.attempt)
            low, u, high = borders(model, ours.prompt_ids, ids, derive(*place))[at]
            assert min(abs(u - low), abs(u - high)) < 1e-5, "another token, and not by rounding"
            return 1
        assert np.allclose(ours.completion.logprobs, theirs.completion.logprobs, atol=1e-5)
    assert content(episode)[1:3] == content(clean)[1:3]
    return 0


@pytest.mark.parametrize(
    ("coordinator", "groups"),
    [("solo", 100), *(pytest.param(id, EPISODES, marks=pytest.mark.slow) for id in ENVS)],
)
def test_a_models_tokens_stay_the_same_beside_games_that_go_wrong(coordinator, groups):
    """Who plays beside whom decides the shape of a batch, and that its rounding (about 1e-7).

    A draw moves if it falls within that of a border between two ids: about once in 100,000. Anything else that differs
    is a fault.
    """
    kinds = KINDS[coordinator] if groups == EPISODES else (HARMLESS, *RAISING)
    clean, _, _ = play(coordinator, (), model_sampler()[0], isolation="inline", groups=groups, max_tokens=2)
    sampler, model = model_sampler(poisoned=True)
    episodes, _, _ = play(coordinator, kinds, sampler, isolation="inline", groups=groups, max_tokens=2)
    troubled = {episode.id: kind for episode in episodes if (kind := kind_of(episode, kinds))}
    failed = {episode.id: episode for episode in episodes if episode.status is EpisodeStatus.FAILED}
    assert set(failed) == set(troubled)  # here the poison kills
    poisoned = [id for id, kind in troubled.items() if kind == HARMLESS]
    assert poisoned and all("NaN" in failed[id].error for id in poisoned)
    moved = sum(
        assert_alike_but_for_rounding(ours, theirs, model)
        for ours, theirs in zip(episodes, clean, strict=True)
        if ours.id not in troubled
    )
    assert moved <= 1


def test_a_draw_falls_between_the_borders_of_the_id_it_gave():
    episodes, _, _ = play("solo", (), model_sampler()[0], isolation="inline", groups=3, max_tokens=4)
    _, model = model_sampler()
    for episode in episodes:
        for turn in episode.turns:
            seed = derive(SEED, "train", 1, episode.group, 0, turn.agent, turn.index, turn.attempt)
            for low, u, high in borders(model, turn.prompt_ids, turn.completion.token_ids, seed):
                assert low - 1e-6 <= u <= high + 1e-6


# processes


@pytest.mark.slow
@pytest.mark.parametrize("coordinator", ENVS)
def test_environments_in_processes_fail_alone_too(coordinator, undisturbed):
    """Sixteen: each is an interpreter of its own, and five hundred of them do not fit into a small machine."""
    kinds = ("step raises", "step hangs", "step exits", "reward nan")
    episodes, session, _ = play(coordinator, kinds, isolation="process", groups=16, share=2, step_timeout=15.0)
    troubled = {episode.id: kind for episode in episodes if (kind := kind_of(episode, kinds, 2))}
    assert set(troubled.values()) == set(kinds) and len(troubled) < 12
    assert {episode.id for episode in episodes if episode.status is EpisodeStatus.FAILED} == set(troubled)
    whole = {episode.id: undisturbed(coordinator)[episode.id] for episode in episodes}
    assert_the_others_are_as_ever(episodes, whole, but=troubled)
    assert session.env_stats.abandoned == Counter(troubled.values())["step hangs"]


# memory


class Answering(CountingPace):
    """Answers like `by_prompt`, and remembers nothing."""

    async def sample(self, ref, prompt_ids, params, *, key):
        word = (*WORDS, "nothing")[zlib.crc32(repr(prompt_ids).encode()) % 4]
        ids = tuple(TOKENIZER.encode(word, add_special_tokens=False))
        return Completion(ids, (-1.0,) * len(ids), word, FinishReason.EOS, "learner", 0)


def census():
    """What is there that could pile up, and how many objects the collector knows in all."""
    gc.collect()
    objects = Counter(type(thing).__name__ for thing in gc.get_objects())
    names = ("EnvHandle", "EnvThread", "TextCodec", "Table", "Player", "PolicySeat", "Episode", "Turn", "Task", "coroutine")
    return {
        **{name: objects[name] for name in names},
        "tracebacks": objects["traceback"],
        "finalizers": len(weakref.finalize._registry),
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "failures": len(failures._seen),
    }, sum(objects.values())


@pytest.mark.parametrize("model", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_piles_up_over_the_steps_of_a_run(model, released, caplog):
    """The same step again and again, with raising, hanging and talkative environments that are replaced each time."""
    kinds = (*RAISING, *HANGING, *GARBAGE)
    config = settings("solo", kinds, groups=60, share=3, step_timeout=0.4)
    caplog.set_level(logging.CRITICAL, "opentinker")  # pytest keeps what is logged, and tracebacks keep much else

    async def main():
        session = Rollout(config, Host(model_sampler()[0] if model else Answering()))
        counts = []
        before = threading.active_count()
        for _ in range(6):
            released.clear()
            groups = await session.collect(1)
            failed = sum(episode.status is EpisodeStatus.FAILED for group in groups for episode in group.episodes)
            del groups
            released.set()
            while session._pool._closing or threading.active_count() > before + session._pool.idle:
                await asyncio.sleep(0.02)
            counts.append(census())
        await session.close()
        return failed, counts

    failed, counts = asyncio.run(main())
    assert 12 <= failed <= 28
    early, late = counts[2], counts[-1]
    assert late[0] == early[0]
    assert late[1] - early[1] < 30  # of all objects the collector knows; one a step and failure would be a hundred


@pytest.mark.parametrize("model", [False, True])
def test_a_steps_games_are_freed_without_the_garbage_collector(model):
    """It walks seldom while a run steps: what waits for it may be gigabytes of keys and values."""
    config = settings("simultaneous", isolation="inline", groups=20, max_tokens=2)

    async def main():
        session = Rollout(config, Host(model_sampler()[0] if model else Answering()))
        await session.collect(1)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await session.collect(2)
            gc.collect()
            return Counter(type(thing).__name__ for thing in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            await session.close()

    garbage = asyncio.run(main())
    kinds = ("Tensor", "Completion", "Turn", "Draft", "Player", "PolicySeat", "Table", "Episode", "traceback", "_Node")
    assert {kind: garbage[kind] for kind in kinds if garbage[kind]} == {}


@pytest.mark.slow
def test_memory_stays_flat_over_fifty_steps_of_training(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "memory.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["met"], figures
    assert figures["trouble"]["failed"] > 50 and figures["trouble"]["abandoned"] > 5
    assert max(figures[load]["slope"] for load in ("kuhn", "trouble")) < 0.25  # MiB a step
