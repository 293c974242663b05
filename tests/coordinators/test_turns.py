import asyncio

import pytest

from opentinker.coordinators import Turns, play_episode
from opentinker.envs.handle import open_env
from opentinker.errors import InvalidAction
from opentinker.testing import OffTurnDeathEnv
from opentinker.types import Attempt, Decision, EpisodeStatus, Verdict


def play(at, coordinator=None, **settings):
    return asyncio.run(play_episode(coordinator or Turns(), at.env, at.table, **settings))


def tictactoe():
    return open_env("pettingzoo/classic/tictactoe_v3", isolation="inline")


def rows(episode):
    return [(turn.agent, turn.action, turn.reward) for turn in episode.turns]


# pettingzoo numbers the board's cells down the columns: 0, 1, 2 are a line.
FIRST_WINS = {"player_1": ["0", "1", "2"], "player_2": ["3", "4"]}


def test_c2_a_winning_move_is_credited_once_to_each(seated):
    at = seated(tictactoe(), FIRST_WINS)
    episode = play(at)
    assert rows(episode) == [
        ("player_1", 0, 0.0),
        ("player_2", 3, 0.0),
        ("player_1", 1, 0.0),
        ("player_2", 4, -1.0),  # lost by the other's move, after its own last
        ("player_1", 2, 1.0),
    ]
    assert episode.rewards == {"player_1": 1.0, "player_2": -1.0}
    assert episode.status is EpisodeStatus.TERMINATED
    assert [turn.n_legal for turn in episode.turns] == [9, 8, 7, 6, 5]


def test_c2_the_second_player_wins_and_a_thread_changes_nothing(seated):
    answers = {"player_1": ["3", "4", "8"], "player_2": ["0", "1", "2"]}
    at = seated(open_env("pettingzoo/classic/tictactoe_v3", isolation="thread"), answers)

    async def main():
        try:
            return await play_episode(Turns(), at.env, at.table)
        finally:
            await at.env.close()

    episode = asyncio.run(main())
    assert rows(episode)[-2:] == [("player_1", 8, -1.0), ("player_2", 2, 1.0)]
    assert episode.rewards == {"player_1": -1.0, "player_2": 1.0}


def test_an_occupied_cell_is_masked(seated):
    at = seated(tictactoe(), {"player_1": ["0"], "player_2": ["0"]})
    episode = play(at)
    assert episode.outcome["forfeit"] == "player_2"
    assert (episode.status, episode.turns[1].valid) == (EpisodeStatus.TERMINATED, False)


def test_e1_an_agent_that_dies_off_turn_has_no_none_action_and_the_others_go_on(seated):
    answers = {"player_0": ["shoot", "wait"], "player_1": [], "player_2": ["wait", "wait"]}
    at = seated(OffTurnDeathEnv(3, rounds=2), answers)
    episode = play(at)
    assert rows(episode) == [
        ("player_0", "shoot", 1.0),
        ("player_2", "wait", 0.0),
        ("player_0", "wait", 0.5),
        ("player_2", "wait", 0.5),
    ]
    assert None not in [turn.action for turn in episode.turns]
    assert episode.rewards == {"player_0": 1.5, "player_1": -1.0, "player_2": 0.5}  # -1 came before its first turn
    assert episode.status is EpisodeStatus.TERMINATED


def test_e1_death_after_a_turn_of_its_own_charges_that_turn(seated):
    answers = {"player_0": ["wait", "shoot"], "player_1": ["wait"], "player_2": ["wait", "wait"]}
    episode = play(seated(OffTurnDeathEnv(3, rounds=2), answers))
    assert rows(episode) == [
        ("player_0", "wait", 0.0),
        ("player_1", "wait", -1.0),
        ("player_2", "wait", 0.0),
        ("player_0", "shoot", 1.5),
        ("player_2", "wait", 0.5),
    ]


def test_e10_in_turns_the_second_sees_the_firsts_action(seated):
    at = seated(open_env("kuhn_poker"), {"player_0": ["b"], "player_1": ["p"]})
    episode = play(at)
    first, second = at.seats["player_0"].seen[0], at.seats["player_1"].seen[0]
    assert "b" not in first.split("Moves")[-1].split(".")[0]
    assert "Moves b" in second
    assert episode.rewards == {"player_0": 1.0, "player_1": -1.0}


def test_kuhn_poker_pays_the_turns_that_earned_it(seated):
    at = seated(open_env("kuhn_poker"), {"player_0": ["p", "b"], "player_1": ["b"]})
    episode = play(at)
    paid = 2.0 if episode.rewards["player_0"] > 0 else -2.0
    assert rows(episode) == [("player_0", "p", 0.0), ("player_1", "b", -paid), ("player_0", "b", paid)]


def forfeit(observation):
    return Decision((Attempt((), None, "?", None, False, "no move"),), None, Verdict.FORFEIT, "no move")


def test_what_the_world_owes_is_paid_when_a_player_leaves_early(seated):
    # player_0 shoots player_1 (+1, shown to player_0 at its next turn only), then player_2 leaves.
    at = seated(OffTurnDeathEnv(3), {"player_0": ["shoot"], "player_1": [], "player_2": forfeit})
    episode = play(at)
    assert rows(episode) == [("player_0", "shoot", 1.0), ("player_2", None, 0.0)]
    assert episode.rewards == {"player_0": 1.0, "player_1": -1.0, "player_2": 0.0}


def test_what_was_shown_before_a_player_leaves_is_not_paid_again(seated):
    replies = iter(["shoot", forfeit(None)])
    at = seated(OffTurnDeathEnv(3), {"player_0": lambda observation: next(replies), "player_1": [], "player_2": ["wait"]})
    assert play(at).rewards == {"player_0": 1.0, "player_1": -1.0, "player_2": 0.0}


class MaskedEnv(OffTurnDeathEnv):
    """Says in its info that nobody may shoot."""

    def last(self, observe=True):
        *told, _ = super().last(observe)
        return (*told, {"action_mask": [1, 0]})


def test_masks_in_the_info_reach_the_seat(seated):
    at = seated(MaskedEnv(2), {"player_0": ["wait"], "player_1": ["shoot"]})
    episode = play(at)
    assert [turn.n_legal for turn in episode.turns] == [1, 1]
    assert episode.outcome["forfeit"] == "player_1"


class VanishingEnv(OffTurnDeathEnv):
    """Ends by emptying its list of agents: nobody gets a last turn."""

    def step(self, action):
        super().step(action)
        if any(self.terminations.values()):
            self.agents = []


def test_rewards_of_an_environment_that_ends_without_last_turns_are_not_lost(seated):
    at = seated(VanishingEnv(2), {"player_0": ["wait", "shoot"], "player_1": ["wait"]})
    episode = play(at)
    assert rows(episode) == [("player_0", "wait", 0.0), ("player_1", "wait", -1.0), ("player_0", "shoot", 1.5)]


def test_a_cap_on_turns_truncates_and_pays(seated):
    answers = {"player_0": ["shoot"], "player_1": [], "player_2": ["wait"]}
    at = seated(OffTurnDeathEnv(3, rounds=9), answers)
    episode = play(at, Turns(max_turns=2))
    assert episode.status is EpisodeStatus.TRUNCATED
    assert episode.outcome == {"max_turns": 2}
    assert rows(episode) == [("player_0", "shoot", 1.0), ("player_2", "wait", 0.0)]
    assert episode.final_prompts == {"player_0": tuple(map(ord, "player_2 said wait."))}
    # one decision earlier the shot has been paid for, but not been shown to who fired it
    episode = play(seated(OffTurnDeathEnv(3, rounds=9), answers | {"player_0": ["shoot"]}), Turns(max_turns=1))
    assert rows(episode) == [("player_0", "shoot", 1.0)]
    assert episode.rewards == {"player_0": 1.0, "player_1": -1.0, "player_2": 0.0}


def test_e5_a_second_episode_on_the_same_environment_starts_clean(seated):
    env = tictactoe()
    fresh = seated(tictactoe(), FIRST_WINS)
    wanted = play(fresh)
    broken_off = seated(env, {"player_1": ["8"], "player_2": forfeit})
    assert play(broken_off).outcome["forfeit"] == "player_2"
    whole = seated(env, FIRST_WINS)
    assert rows(play(whole)) == rows(wanted)
    again = seated(env, FIRST_WINS)
    second = play(again)
    assert rows(second) == rows(wanted)
    assert {agent: seat.seen for agent, seat in again.seats.items()} == {
        agent: seat.seen for agent, seat in fresh.seats.items()
    }
    assert second.messages == () and second.outcome == {}
    assert second.rewards == {"player_1": 1.0, "player_2": -1.0}


def test_an_illegal_action_that_reaches_the_environment_is_its_error(seated):
    cheat = Decision((Attempt((), None, "x", "x", True),), "x")
    at = seated(open_env("kuhn_poker"), {"player_0": lambda observation: cheat, "player_1": "p"})
    episode = play(at)
    assert episode.status is EpisodeStatus.FAILED
    assert "kuhn_poker" in episode.error


def test_parse_errors_name_the_legal_actions(seated):
    at = seated(tictactoe(), FIRST_WINS)
    with pytest.raises(InvalidAction):
        at.env.codec("player_1").parse("ten")
