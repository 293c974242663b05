import asyncio

import gymnasium
import pytest

from opentinker.coordinators import Solo, play_episode
from opentinker.errors import ConfigError
from opentinker.testing import OffTurnDeathEnv, SlowEnv
from opentinker.types import EpisodeStatus


def play(at, coordinator=None, **settings):
    return asyncio.run(play_episode(coordinator or Solo(), at.env, at.table, **settings))


def test_each_action_gets_the_reward_of_its_step(seated):
    at = seated(SlowEnv(0, steps=3), {"agent": "go"})
    episode = play(at)
    assert episode.status is EpisodeStatus.TERMINATED
    assert at.seats["agent"].seen == ["step 0 of 3", "step 1 of 3", "step 2 of 3"]
    assert [(turn.index, turn.action, turn.reward) for turn in episode.turns] == [(n, "go", 1.0) for n in range(3)]
    assert episode.rewards == {"agent": 3.0}
    assert episode.final_prompts == {}


def test_a_time_limit_of_gymnasium_truncates_and_keeps_the_next_prompt(seated):
    at = seated(gymnasium.wrappers.TimeLimit(SlowEnv(0, steps=9), 2), {"agent": "go"})
    episode = play(at)
    assert episode.status is EpisodeStatus.TRUNCATED
    assert len(episode.turns) == 2
    assert episode.final_prompts == {"agent": tuple(map(ord, "step 2 of 9"))}


def test_a_cap_on_turns_truncates(seated):
    at = seated(SlowEnv(0, steps=9), {"agent": "go"})
    episode = play(at, Solo(max_turns=4))
    assert (episode.status, len(episode.turns), episode.outcome) == (EpisodeStatus.TRUNCATED, 4, {"max_turns": 4})
    assert episode.final_prompts == {"agent": tuple(map(ord, "step 4 of 9"))}


def test_a_cap_that_the_end_meets_changes_nothing(seated):
    at = seated(SlowEnv(0, steps=4), {"agent": "go"})
    episode = play(at, Solo(max_turns=4))
    assert (episode.status, episode.outcome) == (EpisodeStatus.TERMINATED, {})


def test_the_masks_of_gymnasiums_taxi_reach_the_seat(seated):
    masks = []
    at = seated(gymnasium.make("Taxi-v4"), {"agent": "0"})

    def answer(observation, space, mask):
        masks.append(mask)
        return space.render_action(space.sample(1, mask))

    at.seats["agent"]._answer = answer
    episode = play(at, Solo(max_turns=2))
    assert [int(sum(mask)) for mask in masks] == [turn.n_legal for turn in episode.turns]
    assert all(mask.shape == (6,) for mask in masks)


def test_the_wrong_kind_of_environment_names_the_right_coordinator(seated):
    at = seated(OffTurnDeathEnv(), {})
    with pytest.raises(ConfigError, match="Solo plays solo environments, 'OffTurnDeathEnv' is aec; use coordinator 'turns'"):
        Solo().agents(at.env)
    with pytest.raises(ConfigError, match="use coordinator 'turns'"):
        play(at)
