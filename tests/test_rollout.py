"""Groups of episodes from real environments, seats and the embedded sampler."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.config import load_config
from opentinker.coordinators import Coordinator
from opentinker.envs.registry import ENVS
from opentinker.errors import ConfigError, EnvError, RolloutFailed
from opentinker.rollout import Rollout, rollout, run_async, too_many
from opentinker.run import Silent, Trainer
from opentinker.samples import to_samples
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.testing import RaisingEnv, ScriptedSampler, SlowEnv
from opentinker.types import Completion, EpisodeStatus, FinishReason

CONFIG = {
    "seed": 5,
    "env": {"id": "opentinker.testing:SlowEnv", "kwargs": {"seconds": 0.0}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last", "on_invalid": {"penalty": -1}}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 4}}},
    "rollout": {"groups": 6, "group_size": 2, "max_failed_fraction": 0.5},
}


class _Host:
    def __init__(self, context: int = 1024) -> None:
        model, self.words = build_tiny(5)
        self.sampler = HFSampler()
        self.sampler.add("learner", model, self.words)
        self.context = context

    def tokenizer(self, policy):
        return self.words

    def max_context(self, policy):
        return self.context


def _collect(overrides=(), steps=1, host=None, config=CONFIG):
    async def main():
        session = Rollout(load_config(config, overrides), host or _Host())
        try:
            return session, [await session.collect(step) for step in range(1, steps + 1)]
        finally:
            await session.close()

    return asyncio.run(main())


class Mute(Coordinator):
    """Forgot to await."""

    async def play(self, env, table):
        await env.reset(seed=table.seed)
        table.end("agent", True, False)


def test_a_step_in_which_nobody_is_asked_anything_is_refused():
    with pytest.raises(RolloutFailed, match="nobody was asked anything in any of 12 episodes.*await table.ask"):
        _collect([f"coordinator.id={__name__}:Mute"])


def test_an_agent_without_a_seat_is_told_with_a_near_name():
    with pytest.raises(ConfigError, match=r"agent 'agent' has no seat: `agents` has \['agnt'\]; did you mean 'agnt'\?"):
        _collect(config={**CONFIG, "agents": {"agnt": {"policy": "learner"}}})


def _episodes(groups):
    return [episode for group in groups for episode in group.episodes]


def test_episodes_come_in_groups_in_order_and_alike_for_a_step():
    _, (groups,) = _collect()
    assert [(episode.group, episode.member) for episode in _episodes(groups)] == [(g, m) for g in range(6) for m in range(2)]
    assert [episode.id for episode in groups[2].episodes] == ["000001/0002/00", "000001/0002/01"]
    _, (again,) = _collect()
    assert [e.turns for e in _episodes(again)] == [e.turns for e in _episodes(groups)]
    _, (narrow,) = _collect(["rollout.concurrency=3"])
    assert [[t.reply for t in e.turns] for e in _episodes(narrow)] == [[t.reply for t in e.turns] for e in _episodes(groups)]


class Flaky(SlowEnv):
    """Cannot be made the third time."""

    made = 0

    def __init__(self) -> None:
        Flaky.made += 1
        if Flaky.made == 3:
            raise OSError("no licence left")
        super().__init__(0.0)


class Once(RaisingEnv):
    """Raises in its first episode's step, and is useless from then on."""

    made = 0

    def __init__(self) -> None:
        Once.made += 1
        super().__init__(at=1 if Once.made == 1 else 10**9)


@pytest.fixture
def own_envs():
    for id, made in {"test_flaky": Flaky, "test_once": Once}.items():
        made.made = 0
        if id not in ENVS:
            ENVS.register(id, made)


def test_an_environment_that_cannot_be_made_costs_its_own_episode_only(own_envs):
    session, (groups,) = _collect(["env={id: test_flaky, isolation: thread}"])
    failed = [episode for episode in _episodes(groups) if episode.status is EpisodeStatus.FAILED]
    assert len(failed) == 1 and len(_episodes(groups)) == 12
    assert "no licence left" in failed[0].error and "could not be made" in failed[0].error
    assert session.env_stats.errors == 1


def test_an_environment_that_raised_is_not_used_again(own_envs):
    _, steps = _collect(["env={id: test_once, isolation: thread}", "rollout.concurrency=1"], steps=2)
    statuses = [[episode.status for episode in _episodes(groups)] for groups in steps]
    assert [row.count(EpisodeStatus.FAILED) for row in statuses] == [1, 0]
    assert Once.made == 2  # the first, and the one that took its place


def test_too_many_failures_end_the_rollout_and_keep_their_evidence():
    with pytest.raises(RolloutFailed, match=r"12 of 12 episodes failed.*max_failed_fraction") as failure:
        _collect(["env={id: 'opentinker.testing:RaisingEnv', kwargs: {at: 1}}"])
    assert len(failure.value.episodes) == 12 and "Traceback" in failure.value.episodes[0].error
    assert "Traceback" not in str(failure.value)


@given(st.integers(1, 2000), st.data())
def test_exactly_the_allowed_fraction_may_fail_and_not_one_more(played, data):
    failed = data.draw(st.integers(0, played))
    assert not too_many(failed, played, failed / played)
    assert failed == played or too_many(failed + 1, played, failed / played)


@pytest.mark.parametrize(("failed", "played", "allowed"), [(29, 100, 0.29), (57, 100, 0.57), (7, 70, 0.1), (0, 5, 0.0)])
def test_a_fraction_written_in_decimals_is_met_exactly(failed, played, allowed):
    assert not too_many(failed, played, allowed)
    assert too_many(failed + 1, played, allowed)


def test_a_run_bears_the_fraction_it_is_told_to_and_no_more():
    troubled = ["env={id: 'opentinker.testing.trouble:TroubledEnv', kwargs: {kinds: [step raises]}}", "rollout.groups=20"]
    _, (groups,) = _collect([*troubled, "rollout.max_failed_fraction=1"])
    failed = [episode for episode in _episodes(groups) if episode.status is EpisodeStatus.FAILED]
    assert 2 <= len(failed) <= 10 and len(_episodes(groups)) == 40
    _, (same,) = _collect([*troubled, f"rollout.max_failed_fraction={len(failed) / 40}"])
    assert [e.status for e in _episodes(same)] == [e.status for e in _episodes(groups)]
    with pytest.raises(RolloutFailed) as failure:
        _collect([*troubled, f"rollout.max_failed_fraction={(len(failed) - 1) / 40}"])
    assert f"{len(failed)} of 40 episodes failed, more than rollout.max_failed_fraction=" in str(failure.value)
    assert f"the first: episode {failed[0].id} of " in str(failure.value)
    assert "RuntimeError: the world broke in step" in str(failure.value) and "trouble.py" in str(failure.value)
    assert [episode.id for episode in failure.value.episodes] == [episode.id for episode in failed]


def test_a_fraction_of_zero_lets_no_game_fail():
    _, (groups,) = _collect(["rollout.max_failed_fraction=0"])
    assert len(_episodes(groups)) == 12
    troubled = ["env={id: 'opentinker.testing.trouble:TroubledEnv', kwargs: {kinds: [step raises]}}", "rollout.groups=20"]
    with pytest.raises(RolloutFailed, match="max_failed_fraction=0.0 allows"):
        _collect([*troubled, "rollout.max_failed_fraction=0"])


class Unlucky(SlowEnv):
    """Cannot be made, or not be reset, so many times."""

    left = 0
    where = "reset"

    def __init__(self):
        super().__init__(0.0)
        self._strike("constructor")

    def reset(self, **settings):
        self._strike("reset")
        return super().reset(**settings)

    def _strike(self, where):
        if where == Unlucky.where and Unlucky.left:
            Unlucky.left -= 1
            raise OSError("not now")


@pytest.mark.parametrize("where", ["constructor", "reset"])
@pytest.mark.parametrize(("times", "allowed", "starts"), [(2, 0.5, True), (3, 0.5, False), (1, 0.0, False)])
def test_the_first_look_bears_failures_where_the_run_does(where, times, allowed, starts):
    if "test_unlucky" not in ENVS:
        ENVS.register("test_unlucky", Unlucky)
    Unlucky.left, Unlucky.where = times, where
    config = {**CONFIG, "env": {"id": "test_unlucky"}, "rollout": {"groups": 2, "max_failed_fraction": allowed}}
    if starts:
        assert len(rollout(config, _Host())) == 2
    else:
        with pytest.raises((RolloutFailed, EnvError), match="not now"):
            rollout(config, _Host())


def test_the_first_prompt_must_fit_into_the_model():
    with pytest.raises(ConfigError, match="has room for 8"):
        rollout(CONFIG, _Host(context=8))


def test_rollout_is_one_public_call():
    groups = rollout(CONFIG, _Host(), step=1, groups=2)
    assert len(groups) == 2 and groups[0].task == CONFIG["env"]["id"]
    _, (same,) = _collect(["rollout.groups=2"])
    assert [e.turns for e in _episodes(groups)] == [e.turns for e in _episodes(same)]


DIALOGUE = {
    **CONFIG,
    "env": {"id": "opentinker.testing.trouble:TroubledEnv"},
    "agents": {"agent": {"policy": "learner", "memory": "full", "system": "Say a word.", "on_invalid": {"penalty": -1}}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 8}}},
}


def _dialogues(answer):
    host = _Host()
    host.sampler = ScriptedSampler(answer, tokenizer=host.words)
    _, (groups,) = _collect(host=host, config=DIALOGUE)
    samples, stats = to_samples(groups, {e.id: (1.0,) * len(e.turns) for e in _episodes(groups)})
    return host.words, groups, samples, stats


def test_t2_in_a_dialogue_the_loss_stands_on_the_replies_and_on_nothing_else():
    """Read back as text: under the mask is what was said, outside of it all that was shown. Upside down it would be red."""
    words, groups, samples, _ = _dialogues(lambda request: ("low", "mid", "high")[request.key[3]])
    assert len(samples) == len(_episodes(groups)) == 12
    for sample, episode in zip(samples, _episodes(groups), strict=True):
        said = [id for id, loss in zip(sample.token_ids, sample.loss_mask, strict=True) if loss]
        shown = [id for id, loss in zip(sample.token_ids, sample.loss_mask, strict=True) if not loss]
        assert tuple(said) == sum((turn.completion.token_ids for turn in episode.turns), ())
        assert words.decode(said, skip_special_tokens=True) == "lowmidhigh"
        assert all(turn.observation in words.decode(shown) for turn in episode.turns)
        assert "Say a word." in words.decode(shown)
        assert not any(logprob for logprob, loss in zip(sample.logprobs, sample.loss_mask, strict=True) if not loss)


def _silent(request):
    return Completion((), (), "", FinishReason.CONTEXT, request.ref.name, 0)


def test_t4_silence_in_the_middle_of_a_dialogue_costs_that_turn_its_loss_and_no_other():
    words, groups, samples, stats = _dialogues(lambda r: _silent(r) if r.key[3] == 1 else "low")
    assert (stats.empty, stats.turns, stats.splits, len(samples)) == (12, 24, 0, 12)
    for sample, episode in zip(samples, _episodes(groups), strict=True):
        said = tuple(id for id, loss in zip(sample.token_ids, sample.loss_mask, strict=True) if loss)
        assert said == episode.turns[0].completion.token_ids + episode.turns[2].completion.token_ids
        assert (episode.turns[1].reply, episode.turns[1].valid) == ("", False)
        assert episode.turns[2].prompt_ids[: len(episode.turns[1].prompt_ids)] == episode.turns[1].prompt_ids


@pytest.mark.parametrize("at", [0, 2])
def test_t4_silence_at_the_start_or_the_end_leaves_no_prompt_to_train(at):
    _, groups, samples, stats = _dialogues(lambda r: _silent(r) if r.key[3] == at else "low")
    assert (stats.empty, stats.turns, len(samples)) == (12, 24, 12)
    kept = [number for number in range(3) if number != at]
    for sample, episode in zip(samples, _episodes(groups), strict=True):
        said = tuple(id for id, loss in zip(sample.token_ids, sample.loss_mask, strict=True) if loss)
        assert said == sum((episode.turns[number].completion.token_ids for number in kept), ())


class _NoFolder:
    def write_episodes(self, *_):
        pass


def test_t4_a_step_in_which_nobody_says_anything_is_skipped_and_says_so():
    host = _Host()
    host.sampler = ScriptedSampler(_silent, tokenizer=host.words)  # this host has no update: nothing may ask for one
    trainer = Trainer(load_config(DIALOGUE), host, Silent())

    async def main():
        try:
            await trainer.check()
            return await trainer._step(_NoFolder(), 1)
        finally:
            await trainer.rollout.close()

    row = asyncio.run(main())
    assert row["train/learner/skipped"] == 1 and row["train/all/empty"] == 36 and row["train/all/samples"] == 0
    assert row["rollout/all/episodes"] == 12 and row["rollout/all/failed"] == 0 and row["rollout/agent/invalid_rate"] == 1
    assert row["rollout/learner/reply_tokens_mean"] == 0 and "train/learner/loss" not in row


@pytest.mark.parametrize("settings", [{"groups": 0}, {"groups": -1}, {"group_size": 0}, {"concurrency": 0}])
def test_less_than_one_of_anything_is_refused(settings):
    async def main():
        session = Rollout(load_config(CONFIG), _Host())
        try:
            await session.collect(1, **settings)
        finally:
            await session.close()

    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name} is .*; give a whole number, at least 1"):
        asyncio.run(main())
    with pytest.raises(ConfigError, match="groups is 0"):
        rollout(CONFIG, _Host(), groups=0)


def test_an_interrupt_where_a_loop_already_runs_cancels_waits_and_is_raised():
    told: list[str] = []
    main = threading.main_thread()

    async def work():
        try:
            threading.Timer(0.05, signal.pthread_kill, [main.ident, signal.SIGINT]).start()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            told.append("cancelled")
            raise

    async def cell():
        with pytest.raises(KeyboardInterrupt):
            run_async(work)
        told.append("raised")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(cell())
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert told == ["cancelled", "raised"]
    assert not [thread for thread in threading.enumerate() if thread.name == "opentinker-run"]
