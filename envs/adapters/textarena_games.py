"""What TextArena 0.7.4's registry does not say of its games: how many play them, and which cannot be played here and why.

Games are named by their folder in the package, `TicTacToe` of `textarena.envs.TicTacToe.env`.
"""

from __future__ import annotations

_ONE = frozenset(
    "BabyAiText Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake Game2048 GuessTheNumber "
    "GuessWho Hangman Klondike LightsOut LogicPuzzle Mastermind Minesweeper PegJump RushHour Secretary Set Slitherlink "
    "Sokoban Sudoku ThreeCardMonte TowerOfHanoi TwentyQuestions UltimateTexasHoldem WordLadder WordSearch Wordle".split()
)
_SEATS = {
    "Briscola": range(2, 5),
    "CharacterConclave": range(3, 16),
    "Codenames": range(4, 5),
    "Golf": range(2, 5),
    "LiarsDice": range(2, 16),
    "MarketEntryGame": range(2, 16),
    "Poker": range(2, 16),
    "PublicGoodsGame": range(2, 16),
    "Santorini": range(2, 4),
    "SecretMafia": range(6, 16),
    "SettlersOfCatan": range(4, 5),
    "Snake": range(2, 16),
    "Surround": range(2, 16),
    "Taboo": range(4, 17, 2),
    "ThreePlayerGOPS": range(3, 4),
    "ThreePlayerIPD": range(3, 4),
    "ThreePlayerTicTacToe": range(3, 4),
}
"""All others are games for two."""
_USUAL = {"MarketEntryGame": 4, "PublicGoodsGame": 3}
"""What TextArena's registry has; elsewhere the fewest."""

_OF_WORDS = "Codenames DontSayIt Hangman LetterAuction SpellingBee WordChains WordLadder WordSearch Wordle".split()
_WORDS = "it downloads word lists of nltk's when it is imported, and nothing here touches the network"
_JUDGE = "a language model behind a network address (OpenRouter) judges it"
_SWAPPED = "an invalid move is given its own message as a reward, a text where a number belongs"
_NO_BOARD = "TextArena's wrapper for ids in -train shows the present board, and this game shows none"
_REFUSED = {
    **dict.fromkeys(_OF_WORDS, _WORDS),
    **dict.fromkeys("Debate GuessWho ScenarioPlanning TwentyQuestions".split(), _JUDGE),
    **dict.fromkeys("Countdown Cryptarithm Slitherlink ThreeCardMonte".split(), _SWAPPED),
    "CharacterConclave": "every message raises in it: State.add_observation() without its argument 'observation_type'",
    "ScorableGames": "the descriptions of its games are not part of TextArena's package",
    **dict.fromkeys(["Breakthrough-v0-blind-train", "LightsOut-v0-train"], _NO_BOARD),
    "UsedCarNegotiation": "the instructions to its players are not part of TextArena's package",
}


def seats(game: str) -> tuple[range, int]:
    """How many may play, and how many do unless somebody says otherwise."""
    fitting = range(1, 2) if game in _ONE else _SEATS.get(game, range(2, 3))
    return fitting, _USUAL.get(game, fitting[0])


def refusal(name: str, game: str) -> str:
    """Why an id cannot be played; empty where nothing is known against it."""
    return _REFUSED.get(name) or _REFUSED.get(game, "")
