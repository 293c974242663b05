"""Halves: two partners hold half of a code each, talk, and must then both name all of it.

`left` knows the first half, `right` the second. In turn each says one message, `rounds` times; then left and right answer
in turn, unheard by each other. Every right answer pays half a point to both, so rewards are always equal: 0, 0.5 or 1. Who
heard nothing of use can only guess the other half, with a chance of `len(symbols) ** -length`.

An answer is read from the last word of what is said, punctuation around it aside: `I think it is abca.` names `abca`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentinker.envs.games.board import check_whole
from opentinker.envs.text import TextAECEnv, TextSpace
from opentinker.errors import ConfigError, value_text

PLAYERS = ("left", "right")
UNKNOWN = "?"
SAY, NAME = "Tell your partner:", "Whole code?"
"""The questions of the two phases."""
MOST_LENGTH, MOST_ROUNDS, MOST_MESSAGE = 64, 32, 1000

_SHARE = 1 / len(PLAYERS)
"""What a right answer pays to everybody."""
_ESCAPED = 6
"""Characters that one character of a message takes at most inside quotes."""
_AROUND = 80
"""Characters of a view beside its messages, code and symbols, at most; and of a line beside its message."""


def view(index: int, code: str, symbols: str, said: Sequence[str], question: str = "") -> str:
    """What a player knows: its half, and all that was said.

    Args:
        index: 0 for left, 1 for right.
        code: all of it; only the player's half shows.
        symbols: what codes are made of.
        said: the messages so far, left's first.
        question: what is asked now; empty where nothing is.
    """
    half = len(code) // 2
    known = code[:half] + UNKNOWN * half if index == 0 else UNKNOWN * half + code[half:]
    lines = [
        f"{'You' if place % 2 == index else 'Partner'}: {json.dumps(message, ensure_ascii=False)}."
        for place, message in enumerate(said)
    ]
    return " ".join([f"You know {known} of {symbols}.", *lines, *([question] if question else [])])


@dataclass(frozen=True, slots=True)
class Seen:
    """A view, read back."""

    known: str
    """The code, with `?` for what the player does not know."""
    symbols: str
    """What codes are made of."""
    heard: tuple[str, ...]
    """What the partner said."""
    answering: bool
    """Whether the whole code is asked for now."""


_SEEN = re.compile(r"You know ([a-z0-9?]+) of ([a-z0-9]+)\.((?: (?:You|Partner): \"(?:[^\"\\]|\\.)*\"\.)*) ?(.*)", re.DOTALL)
_HEARD = re.compile(r" (You|Partner): (\"(?:[^\"\\]|\\.)*\")\.")


def read(observation: str) -> Seen:
    """A view as data, for scripted players.

    Raises:
        ConfigError: it is none of this game's.
    """
    found = _SEEN.fullmatch(observation)
    if found is None:
        raise ConfigError(f"halves shows 'You know ab?? of abc. ...', given: {observation[:80]!r}")
    heard = tuple(json.loads(message) for who, message in _HEARD.findall(found[3]) if who == "Partner")
    return Seen(found[1], found[2], heard, found[4] == NAME)


def named(reply: str) -> str:
    """The code that an answer names: its last word, in small letters, without the punctuation around it."""
    words = re.findall(r"[a-z0-9]+", reply.lower())
    return words[-1] if words else ""


class Halves(TextAECEnv):
    """The game as an environment; every text of up to `message` characters is legal.

    Args:
        symbols: what codes are made of: different small letters and digits, at least two.
        length: of each half, in symbols.
        rounds: messages of each player before the answers; 0: nobody can say anything.
        message: longest message and answer, in characters; long enough to name the code.

    Raises:
        ConfigError: an argument that makes no game.
    """

    metadata = {"name": "halves", "render_modes": []}

    def __init__(self, symbols: str = "0123456789", length: int = 2, rounds: int = 1, message: int = 80) -> None:
        super().__init__()
        whole = isinstance(symbols, str) and re.fullmatch("[a-z0-9]{2,}", symbols) is not None
        if not whole or len(set(symbols)) != len(symbols):
            what = "at least two different small letters or digits"
            raise ConfigError(f"symbols must be {what}, given: {value_text(symbols)}")
        check_whole("length", length, 1, MOST_LENGTH)
        check_whole("rounds", rounds, 0, MOST_ROUNDS)
        check_whole("message", message, 2 * length, MOST_MESSAGE)
        self._symbols, self._length, self._rounds = symbols, length, rounds
        self.possible_agents = list(PLAYERS)
        self.agents = []
        longest = _AROUND + 2 * length + len(symbols) + 2 * rounds * (_AROUND + _ESCAPED * message)
        self.observation_spaces = {agent: TextSpace(max_length=longest) for agent in PLAYERS}
        self.action_spaces = {agent: TextSpace(max_length=message) for agent in PLAYERS}
        self._code, self._said, self._answers = "", list[str](), list[str]()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draws a code, all equally likely."""
        super().reset(seed=seed, options=options)
        self._code = "".join(self.rng.choices(self._symbols, k=2 * self._length))
        self._said, self._answers = [], []

    def observe(self, agent: str) -> str:
        """The agent's half and what was said; never an answer, and nothing else of the other half."""
        asked = "" if len(self._answers) == len(PLAYERS) else SAY if self._talking else NAME
        return view(PLAYERS.index(agent), self._code, self._symbols, self._said, asked)

    def step(self, action: str | None) -> None:
        """A message or an answer; None for an agent whose game is over.

        Raises:
            ValueError: no text, or a longer one than allowed.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        space = self.action_spaces[agent]
        if action not in space:
            raise ValueError(f"halves takes texts of {space}, given: {value_text(action)}")
        assert action is not None
        if self._talking:
            self._said.append(action)
        else:
            self._answers.append(named(action))
        if len(self._answers) == len(PLAYERS):  # nobody has been paid before
            self.rewards = dict.fromkeys(PLAYERS, _SHARE * self._answers.count(self._code))
            self.terminations = dict.fromkeys(PLAYERS, True)
            self._accumulate_rewards()
        self.agent_selection = PLAYERS[1 - PLAYERS.index(agent)]

    @property
    def _talking(self) -> bool:
        return len(self._said) < 2 * self._rounds

