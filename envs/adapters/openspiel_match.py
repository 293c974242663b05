"""One game of OpenSpiel as it is played: chance drawn, actions in words, rewards as they are earned."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from opentinker.envs.adapters.generators import own_generators
from opentinker.errors import EnvError

Text = Literal["information_state", "observation", "state"]
"""Which of OpenSpiel's texts a player sees."""

_TERMINAL = "RewardModel.TERMINAL"


class Match:
    """Plays one game after another.

    Args:
        load: the game for a seed.
        draws: whether the game draws from a generator of its own and is loaded anew for every match.
        text: which text players see.
    """

    def __init__(self, load: Callable[[int], Any], draws: bool, text: Text) -> None:
        self._load, self._draws, self.text = load, draws, text
        self._game = load(0)
        self._pays_at_end = str(self._game.get_type().reward_model) == _TERMINAL
        self.players: int = self._game.num_players()
        self.state: Any = None
        self._words: dict[int, dict[str, int]] = {}

    def start(self, rng: random.Random) -> None:
        """A new match.

        Args:
            rng: chance is drawn from it.
        """
        if self._draws:
            self._game = self._load(rng.randrange(2**31))
        self._rng = rng
        self._paid = [0.0] * self.players
        # a game written in Python may draw from a global generator, or even seed it
        lent = own_generators(rng.getrandbits(32)) if type(self._game).__module__ != "pyspiel" else contextlib.nullcontext()
        with lent:
            self.state = self._game.new_initial_state()
        self._settle()

    def _settle(self) -> None:
        """Draws chance until somebody acts or it is over."""
        while self.state.is_chance_node():
            outcomes, weights = zip(*self.state.chance_outcomes(), strict=True)
            self.state.apply_action(self._rng.choices(outcomes, weights)[0])
        self._words = {}

    @property
    def over(self) -> bool:
        """Whether the match has ended."""
        return bool(self.state.is_terminal())

    @property
    def together(self) -> bool:
        """Whether all players act at once now."""
        return bool(self.state.is_simultaneous_node())

    @property
    def player(self) -> int:
        """Who acts."""
        return int(self.state.current_player())

    def words(self, player: int) -> tuple[str, ...]:
        """A player's legal actions in OpenSpiel's words; empty for one who has no choice in a simultaneous move."""
        return tuple(self._actions(player))

    def _actions(self, player: int) -> dict[str, int]:
        if player not in self._words:
            legal = self.state.legal_actions(player)
            names = [self.state.action_to_string(player, action).strip() for action in legal]
            count = Counter(names)
            self._words[player] = {
                name if name and count[name] == 1 else f"{name} #{action}".strip(): action
                for name, action in zip(names, legal, strict=True)
            }
        return self._words[player]

    def act(self, words: dict[int, str]) -> None:
        """The players who are to act do so.

        Raises:
            ValueError: a word that is not legal now; nothing was done.
        """
        chosen = {player: self._chosen(player, word) for player, word in words.items()}
        if self.together:
            # whoever has no choice is given what OpenSpiel ignores
            self.state.apply_actions([chosen.get(player, 0) for player in range(self.players)])
        else:
            (action,) = chosen.values()
            self.state.apply_action(action)
        self._settle()

    def _chosen(self, player: int, word: str) -> int:
        actions = self._actions(player)
        if word not in actions:
            raise ValueError(f"player {player} may answer {', '.join(list(actions)[:20])} now, given: {word!r}")
        return actions[word]

    def earned(self) -> list[float]:
        """What each player has won since the last call."""
        if self._pays_at_end and not self.over:
            return [0.0] * self.players
        total = [float(value) for value in self.state.returns()]
        news = [now - before for now, before in zip(total, self._paid, strict=True)]
        self._paid = total
        return news

    def look(self, player: int) -> str:
        """What a player sees."""
        if self.text == "information_state":
            return str(self.state.information_state_string(player))
        if self.text == "observation":
            return str(self.state.observation_string(player))
        return str(self.state)

    def actor(self) -> int:
        """Who acts now.

        Raises:
            EnvError: nobody in particular, or somebody who has no legal action.
        """
        player = self.player
        if player < 0 or not self.words(player):
            raise EnvError(f"OpenSpiel's {self._game} came to a state in which nobody can act: {self.state}")
        return player
