"""Groups of episodes from real environments, seats and the embedded sampler."""

from __future__ import annotations

import asyncio

import pytest

from opentinker.config import load_config
from opentinker.envs.registry import ENVS
from opentinker.errors import ConfigError, RolloutFailed
from opentinker.rollout import Rollout, rollout
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.testing import RaisingEnv, SlowEnv
from opentinker.types import EpisodeStatus

CONFIG = {
    "seed": 5,
    "env": {"id": "opentinker.testing:SlowEnv", "kwargs": {"seconds": 0.0}},
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "memory": "last", "on_invalid": {"penalty": -1}}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 4}}},
    "rollout": {"groups": 6, "group_size": 2, "max_failed": 0.5},
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
    with pytest.raises(RolloutFailed, match=r"12 of 12 episodes failed.*max_failed") as failure:
        _collect(["env={id: 'opentinker.testing:RaisingEnv', kwargs: {at: 1}}"])
    assert len(failure.value.episodes) == 12 and "Traceback" in failure.value.episodes[0].error
    assert "Traceback" not in str(failure.value)


def test_the_first_prompt_must_fit_into_the_model():
    with pytest.raises(ConfigError, match="has room for 8"):
        rollout(CONFIG, _Host(context=8))


def test_rollout_is_one_public_call():
    groups = rollout(CONFIG, _Host(), step=1, groups=2)
    assert len(groups) == 2 and groups[0].task == CONFIG["env"]["id"]
    _, (same,) = _collect(["rollout.groups=2"])
    assert [e.turns for e in _episodes(groups)] == [e.turns for e in _episodes(same)]
