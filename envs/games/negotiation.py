"""Negotiation: two players divide a pool of things that are worth different amounts to each, in free words.

Everybody sees how many things of each kind there are; what one of them is worth to a player only that player knows. The
whole pool is worth `points` to each. In turn they say anything they like, `turns` messages in all. Square brackets act:
`[2 0 1]` offers a split (so many of each kind for the speaker, the rest for the other) in place of any former offer, `[ok]`
accepts the other's. The last brackets of a message count; any that are neither say nothing. A deal pays each the worth of
its share as a part of `points`, from 0 to 1; without one both get 0.

The setting is that of Lewis et al. (2017), "Deal or No Deal? End-to-End Learning for Negotiation Dialogues", arXiv
1706.05125; offers inside the dialogue are ours.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opentinker.envs.games.board import check_whole
from opentinker.envs.text import TextAECEnv, TextSpace
from opentinker.errors import ConfigError, value_text

PLAYERS = ("player_0", "player_1")
ACCEPT = "[ok]"
MOST_KINDS, MOST_COUNT, MOST_POINTS, MOST_TURNS, MOST_MESSAGE = 4, 9, 30, 64, 1000

Amounts: TypeAlias = tuple[int, ...]
"""One number for each kind of thing: how many there are or go to somebody, or what one is worth."""

_ESCAPED = 6
"""Characters that one character of a message takes at most inside quotes."""
_AROUND = 200
"""Characters of a view beside its messages and names, at most; and of a line beside its message."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What is divided, and what it is worth to whom."""

    kinds: tuple[str, ...]
    counts: Amounts
    values: tuple[Amounts, Amounts]
    """Of one thing of each kind, for each player. Private."""

    def worth(self, index: int, share: Amounts) -> int:
        """A share's worth to a player, in points."""
        return sum(value * amount for value, amount in zip(self.values[index], share, strict=True))

    def rest(self, share: Amounts) -> Amounts:
        """What is left beside a share."""
        return tuple(count - amount for count, amount in zip(self.counts, share, strict=True))


@dataclass(frozen=True, slots=True)
class Talk:
    """What has been said, and what follows from it."""

    said: tuple[str, ...] = ()
    """player_0's first message, player_1's, ..."""
    offer: tuple[Amounts, Amounts] | None = None
    """The offer on the table: player_0's share and player_1's."""
    maker: int = -1
    """Who made it."""
    agreed: bool = False
    """Whether it was accepted."""

    def then(self, text: str, pool: Pool) -> Talk:
        """With one more message."""
        index, said = len(self.said) % 2, (*self.said, text)
        last = _last_brackets(text)
        if last == ACCEPT and self.offer is not None and self.maker != index:
            return Talk(said, self.offer, self.maker, agreed=True)
        share = offered(last, pool.counts)
        if share is None:
            return Talk(said, self.offer, self.maker)
        rest = pool.rest(share)
        return Talk(said, (share, rest) if index == 0 else (rest, share), index)

    def over(self, turns: int) -> bool:
        """Whether the game ends here."""
        return self.agreed or len(self.said) == turns


def offered(brackets: str, counts: Amounts) -> Amounts | None:
    """The share that a speaker asks for by `[2 0 1]` or `[2,0,1]`; None where it is no offer of what is there."""
    found = re.fullmatch(r"\[\s*([0-9]+(?:[\s,]+[0-9]+)*)\s*\]", brackets, re.ASCII)
    share = tuple(map(_amount, re.split(r"[\s,]+", found[1], flags=re.ASCII))) if found else ()
    fits = len(share) == len(counts) and all(amount <= count for amount, count in zip(share, counts, strict=True))
    return share if fits else None


def _amount(digits: str) -> int:
    return int(digits[-9:]) if not digits[:-9].strip("0") else MOST_COUNT + 1  # int() refuses thousands of digits


def _last_brackets(text: str) -> str:
    found = re.findall(r"\[[^\[\]]*\]", text)
    return found[-1].lower() if found else ""


def view(pool: Pool, index: int, talk: Talk, turns: int) -> str:
    """What a player sees: the pool, its own values, the offer on the table, all messages, and a question until the end."""
    things = ", ".join(
        f"{count} {kind} ({value} each)"
        for count, kind, value in zip(pool.counts, pool.kinds, pool.values[index], strict=True)
    )
    parts = [f"Pool: {things}. {turns - len(talk.said)} left."]
    if talk.offer is not None:
        parts.append(f"{'Your' if talk.maker == index else 'Their'} offer: {_numbers(talk.offer[index])} to you.")
    parts += [
        f"{'You' if place % 2 == index else 'They'}: {json.dumps(text, ensure_ascii=False)}."
        for place, text in enumerate(talk.said)
    ]
    if talk.agreed:
        parts.append("Agreed.")
    elif not talk.over(turns):
        parts.append(f"[{' '.join('n' * len(pool.kinds))}] or {ACCEPT}?")
    return " ".join(parts)


def _numbers(share: Amounts) -> str:
    return " ".join(map(str, share))


@dataclass(frozen=True, slots=True)
class Seen:
    """A view, read back."""

    counts: Amounts
    values: Amounts
    """The player's own."""
    left: int
    """Messages until the game is over, the player's next one included."""
    offer: Amounts | None
    """What the offer on the table gives the player."""
    own_offer: bool
    """Whether it is the player's own."""
    said: tuple[str, ...]
    """The player's own messages."""
    heard: tuple[str, ...]
    """The other's."""


_SEEN = re.compile(r"Pool: ([^.\"]+)\. (\d+) left\.(?: (Your|Their) offer: ([\d ]+) to you\.)?(?: |\Z)")
_THING = re.compile(r"(\d+) \S+ \((\d+) each\)")
_SPOKEN = re.compile(r" ?(You|They): (\"(?:[^\"\\]|\\.)*\")\.")


def read(observation: str) -> Seen:
    """A view as data, for scripted players.

    Raises:
        ConfigError: it is none of this game's.
    """
    found = _SEEN.match(observation)
    if found is None:
        raise ConfigError(f"negotiation shows 'Pool: 2 books (3 each), ...', given: {observation[:80]!r}")
    things = _THING.findall(found[1])
    offer = tuple(map(int, found[4].split())) if found[4] else None
    messages: dict[str, list[str]] = {"You": [], "They": []}
    place = found.end()
    while spoken := _SPOKEN.match(observation, place):
        place = spoken.end()
        messages[spoken[1]].append(json.loads(spoken[2]))
    counts, values = (tuple(int(thing[at]) for thing in things) for at in (0, 1))
    return Seen(counts, values, int(found[2]), offer, found[3] == "Your", *map(tuple, messages.values()))


@functools.lru_cache(256)  # up to 5456 entries each
def valuations(counts: Amounts, points: int) -> tuple[Amounts, ...]:
    """All values, whole numbers from 0, for which things in these counts are worth so many points together."""
    ranges = [range(points // count + 1) for count in counts[1:]]
    found = []
    for rest in itertools.product(*ranges):
        left = points - sum(count * value for count, value in zip(counts[1:], rest, strict=True))
        if left >= 0 and left % counts[0] == 0:
            found.append((left // counts[0], *rest))
    return tuple(found)


class Negotiation(TextAECEnv):
    """The game as an environment; every text of up to `message` characters is legal.

    Each count is drawn from 1 to `most`, then each player's values from all that make the pool worth `points`, all equally
    likely. Counts without such values are drawn again.

    Args:
        kinds: names of the kinds of things, one word each.
        most: highest count of a kind.
        points: what the whole pool is worth to each player.
        turns: messages of both players together.
        message: longest message, in characters.

    Raises:
        ConfigError: an argument that makes no game.
    """

    metadata = {"name": "negotiation", "render_modes": []}

    def __init__(
        self,
        kinds: Sequence[str] = ("books", "hats", "balls"),
        most: int = 3,
        points: int = 10,
        turns: int = 8,
        message: int = 280,
    ) -> None:
        super().__init__()
        self._kinds = _names(kinds)
        check_whole("most", most, 1, MOST_COUNT)
        check_whole("points", points, 1, MOST_POINTS)
        check_whole("turns", turns, 2, MOST_TURNS)
        check_whole("message", message, len(f"[{_numbers((0,) * len(self._kinds))}]"), MOST_MESSAGE)
        self._most, self._points, self._turns = most, points, turns
        self.possible_agents = list(PLAYERS)
        self.agents = []
        longest = _AROUND + sum(map(len, self._kinds)) + turns * (_AROUND + _ESCAPED * message)
        self.observation_spaces = {agent: TextSpace(max_length=longest) for agent in PLAYERS}
        self.action_spaces = {agent: TextSpace(max_length=message) for agent in PLAYERS}
        self._pool, self._talk = Pool((), (), ((), ())), Talk()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draws the pool and what it is worth to each."""
        super().reset(seed=seed, options=options)
        rng, possible = self.rng, tuple[Amounts, ...]()
        while not possible:
            counts = tuple(rng.randint(1, self._most) for _ in self._kinds)
            possible = valuations(counts, self._points)
        self._pool, self._talk = Pool(self._kinds, counts, (rng.choice(possible), rng.choice(possible))), Talk()

    def observe(self, agent: str) -> str:
        """The agent's own side of it: never what anything is worth to the other."""
        return view(self._pool, PLAYERS.index(agent), self._talk, self._turns)

    def step(self, action: str | None) -> None:
        """A message; None for an agent whose game is over.

        Raises:
            ValueError: no text, or a longer one than allowed.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        space = self.action_spaces[agent]
        if action not in space:
            raise ValueError(f"negotiation takes texts of {space}, given: {value_text(action)}")
        assert action is not None
        talk = self._talk = self._talk.then(action, self._pool)
        if talk.over(self._turns):  # nobody has been paid before
            if talk.agreed and talk.offer is not None:
                paid = [self._pool.worth(index, share) / self._points for index, share in enumerate(talk.offer)]
                self.rewards = dict(zip(PLAYERS, paid, strict=True))
            self.terminations = dict.fromkeys(PLAYERS, True)
            self._accumulate_rewards()
        self.agent_selection = PLAYERS[1 - PLAYERS.index(agent)]


def _names(kinds: Any) -> tuple[str, ...]:
    listed = tuple(kinds) if isinstance(kinds, (list, tuple)) else ()
    words = all(isinstance(kind, str) and re.fullmatch(r"[^\W\d_]+", kind) for kind in listed)
    if not words or not 1 <= len(listed) <= MOST_KINDS or len(set(listed)) != len(listed):
        raise ConfigError(f"kinds must be 1 to {MOST_KINDS} different words of letters, given: {value_text(kinds)}")
    return listed

