import asyncio

from opentinker.coordinators import Simultaneous, play_episode
from opentinker.envs.handle import open_env
from opentinker.errors import SamplerError
from opentinker.testing import BirthsEnv, CountingPace
from opentinker.types import EpisodeStatus


def play(at, coordinator=None, **settings):
    return asyncio.run(play_episode(coordinator or Simultaneous(), at.env, at.table, **settings))


def rows(episode):
    return [(turn.agent, turn.action, turn.reward) for turn in episode.turns]


def matrix_game(**kwargs):
    return open_env("matrix_game", kwargs)


def test_e10_at_a_barrier_the_second_does_not_see_the_firsts_action(seated):
    views = []
    for first in ("rock", "paper", "scissors"):
        at = seated(matrix_game(), {"player_0": first, "player_1": "rock"})
        episode = play(at)
        views.append(at.seats["player_1"].seen)
    assert views[0] == views[1] == views[2] and len(views[0]) == 1
    assert rows(episode) == [("player_0", "scissors", -1.0), ("player_1", "rock", 1.0)]
    assert episode.status is EpisodeStatus.TERMINATED


def test_e10_a_later_round_shows_what_was_played(seated):
    at = seated(matrix_game(rounds=2), {"player_0": ["rock", "paper"], "player_1": ["scissors", "paper"]})
    episode = play(at)
    assert "scissors-rock" in at.seats["player_1"].seen[1]
    assert rows(episode) == [
        ("player_0", "rock", 1.0),
        ("player_1", "scissors", -1.0),
        ("player_0", "paper", 0.0),
        ("player_1", "paper", 0.0),
    ]


def test_agents_are_born_and_die_during_the_episode(seated):
    answers = {
        "worker_0": ["spawn", "spawn", "work"],
        "worker_1": ["quit"],
        "worker_2": ["work"],
    }
    at = seated(BirthsEnv(most=3), answers)
    episode = play(at)
    assert rows(episode) == [
        ("worker_0", "spawn", 0.0),
        ("worker_0", "spawn", 0.0),
        ("worker_1", "quit", 0.0),
        ("worker_0", "work", 1.0),
        ("worker_2", "work", 1.0),
    ]
    assert episode.status is EpisodeStatus.TRUNCATED
    assert set(episode.final_prompts) == {"worker_0", "worker_2"}  # worker_1 ended by itself


def test_e7_a_failing_sampler_releases_the_partner_and_ends_the_game(seated):
    released = []
    pace = CountingPace()
    pace.enter()

    async def waiting(observation):
        try:
            await asyncio.Event().wait()
        finally:
            released.append(True)

    async def failing(observation):
        await asyncio.sleep(0)
        raise SamplerError("out of memory")

    at = seated(matrix_game(), {"player_0": waiting, "player_1": failing}, pace=pace)
    episode = play(at, episode_timeout=10)
    assert released == [True]
    assert (episode.status, episode.outcome["out"]) == (EpisodeStatus.FAILED, {"player_1": "failed"})
    assert "out of memory" in episode.error and "in failing" in episode.error
    assert "deadline" not in episode.outcome
    assert pace.count == 1


def test_a_cap_on_steps_truncates(seated):
    at = seated(BirthsEnv(most=1, steps=9), {"worker_0": "work"})
    episode = play(at, Simultaneous(max_turns=2))
    assert (episode.status, episode.outcome) == (EpisodeStatus.TRUNCATED, {"max_turns": 2})
    assert rows(episode) == [("worker_0", "work", 1.0), ("worker_0", "work", 1.0)]
    assert episode.final_prompts == {"worker_0": tuple(map(ord, "step 2, 1 at work"))}


class SilentEnv(BirthsEnv):
    """Leaves an agent that quits out of its answer, flags and all."""

    def step(self, actions):
        answer = super().step(actions)
        gone = [agent for agent, quits in answer[2].items() if quits]
        return tuple({agent: value for agent, value in part.items() if agent not in gone} for part in answer)


def test_an_agent_left_out_of_an_answer_is_asked_no_more(seated):
    at = seated(SilentEnv(most=2), {"worker_0": ["spawn", "work", "work"], "worker_1": ["quit"]})
    episode = play(at)
    assert [turn.agent for turn in episode.turns] == ["worker_0", "worker_0", "worker_1", "worker_0"]


def test_a_cap_that_the_end_meets_changes_nothing(seated):
    for world in (SilentEnv(most=1), BirthsEnv(most=1)):
        episode = play(seated(world, {"worker_0": ["work", "quit"]}), Simultaneous(max_turns=2))
        assert (episode.status, episode.outcome) == (EpisodeStatus.TERMINATED, {})


class MaskedEnv(BirthsEnv):
    """Says in its infos that nobody may quit."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return observations, {agent: {"action_mask": [1, 1, 0]} for agent in infos}

    def step(self, actions):
        *told, infos = super().step(actions)
        return (*told, {agent: {"action_mask": [1, 1, 0]} for agent in infos})


def test_masks_in_the_infos_reach_the_seats(seated):
    episode = play(seated(MaskedEnv(most=1), {"worker_0": ["work", "quit"]}))
    assert [turn.n_legal for turn in episode.turns] == [2, 2]
    assert episode.outcome["forfeit"] == "worker_0"


def test_partners_wait_side_by_side(seated):
    gate = []

    async def meet(observation):
        gate.append(observation)
        while len(gate) < 2:  # only a barrier that asks both at once lets either go on
            await asyncio.sleep(0)
        return "rock"

    episode = play(seated(matrix_game(), {"player_0": meet, "player_1": meet}), episode_timeout=5)
    assert episode.status is EpisodeStatus.TERMINATED
