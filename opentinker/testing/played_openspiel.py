"""OpenSpiel's games played to their ends by random text players."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opentinker.envs import env_ids
from opentinker.testing.played import Played, play_id

INNER: dict[str, dict[str, Any]] = {
    "add_noise": {"game": "kuhn_poker", "epsilon": 1.0, "seed": 1},
    "cached_tree": {"game": "kuhn_poker"},
    "coop_to_1p": {"game": "tiny_hanabi"},
    "misere": {"game": "tic_tac_toe"},
    "normal_form_extensive_game": {"game": "kuhn_poker"},
    "repeated_game": {"stage_game": "matrix_pd", "num_repetitions": 10},
    "repeated_poker": {
        "universal_poker_game_string": "universal_poker(numPlayers=2,numRounds=2,stack=1200 1200,blind=100 100)",
        "max_num_hands": 3,
        "reset_stacks": True,
        "rotate_dealer": True,
    },
    "restricted_nash_response": {"game": "kuhn_poker", "fixed_player": 0, "p": 0.5},
    "start_at": {"game": "tic_tac_toe", "history": "4;0"},
    "turn_based_simultaneous_game": {"game": "goofspiel(num_cards=4)"},
    "zerosum": {"game": "kuhn_poker"},
}
"""Parameters of games that are made of others."""


def played(ids: Iterable[str] | None = None, *, games: int = 1) -> Iterator[Played]:
    """`play_id` of each id; None: of all of OpenSpiel's games."""
    for id in env_ids("openspiel") if ids is None else ids:
        yield play_id(id, games=games, kwargs=INNER.get(id.partition("/")[2]))
