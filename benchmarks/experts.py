"""How strong the scripted players are: games between two of them, half from each seat, and what a move takes.

Board games: shares of wins and draws of the one named first, with Wilson's 95 % interval of the wins. In games with hidden
cards: what it gets a game on average over both seats, exactly, and how much a best response could win against it.

    python benchmarks/experts.py [--quick] [--only TEXT] [--games N] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentinker.envs import TextCodec, make_env
from opentinker.envs.games.kuhn_poker import KuhnTree
from opentinker.envs.games.leduc_poker import LeducTree
from opentinker.experts.players import leduc_equilibrium
from opentinker.experts.trees import Play, answer_to_random
from opentinker.league.exploitability import expected_returns, exploitability, information_states
from opentinker.league.tally import wilson
from opentinker.perfect import KuhnEquilibrium
from opentinker.players import ScriptedPlayer, Situation, make_player, random_legal
from opentinker.seeding import derive


@dataclass(frozen=True)
class Match:
    """Two players of a board game."""

    game: str
    first: str
    second: str
    games: int
    """From each seat."""
    opening: int = 0
    """Random moves that a game begins with, the same from both seats: without them some pairs play one game for ever."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For the record."""
        size = "".join(f"-{value}" for value in self.kwargs.values())
        return f"{self.game}{size}/{self.first}/{self.second}"


NINE = {"size": 9}
MATCHES = [
    Match("tictactoe", "greedy", "random", 500),
    Match("tictactoe", "minimax", "random", 500),
    Match("tictactoe", "minimax", "greedy", 500),
    Match("connect_four", "greedy", "random", 500),
    Match("connect_four", "alphabeta:2", "greedy", 300, 4),
    Match("connect_four", "alphabeta:4", "greedy", 150, 4),
    Match("connect_four", "alphabeta:4", "alphabeta:2", 150, 4),
    Match("connect_four", "alphabeta:6", "alphabeta:4", 60, 4),
    Match("gomoku", "greedy", "random", 100, 0, NINE),
    Match("gomoku", "alphabeta:2", "greedy", 200, 4, NINE),
    Match("gomoku", "alphabeta:4", "alphabeta:2", 50, 4, NINE),
    Match("gomoku", "greedy", "random", 50),
    Match("gomoku", "alphabeta:2", "greedy", 50, 4),
    Match("gomoku", "alphabeta:4", "alphabeta:2", 20, 4),
]


class Clock:
    """A player, and the time it takes."""

    def __init__(self, player: ScriptedPlayer) -> None:
        """Nothing is counted yet."""
        self.player, self.moves, self.seconds = player, 0, 0.0

    def __call__(self, situation: Situation) -> Any:
        """Its move."""
        start = time.process_time()
        action = self.player(situation)
        self.seconds += time.process_time() - start
        self.moves += 1
        return action


def play(match: Match, games: int, seed: int) -> dict[str, float]:
    """Both seats in turn."""
    env = make_env(match.game, **match.kwargs)
    agents = env.possible_agents
    codecs = {agent: TextCodec(env.observation_space(agent), env.action_space(agent)) for agent in agents}
    players = [Clock(make_player(match.first)), Clock(make_player(match.second))]
    ends: Counter[float] = Counter()
    for number in range(2 * games):
        seats = dict(zip(agents, players if number % 2 == 0 else players[::-1], strict=True))
        env.reset(seed=derive(seed, number))
        for turn, agent in enumerate(env.agent_iter()):
            observation, _, terminated, _, info = env.last()
            if terminated:
                ends[env.rewards[agent] * (1 if seats[agent] is players[0] else -1)] += 1
                break
            opens = turn < match.opening
            drawn = derive(seed, "opening", number // 2, turn) if opens else derive(seed, number, turn)
            situation = Situation(
                agent, agent, observation, codecs[agent], info["action_mask"], drawn, (), observation, match.game
            )
            env.step(random_legal(situation) if opens else seats[agent](situation))
    won = wilson(ends[1.0], 2 * games)
    return {
        "games": 2 * games,
        "win": won.rate,
        "low": won.low,
        "high": won.high,
        "draw": ends[0.0] / (2 * games),
        "ms_per_move": 1000 * players[0].seconds / players[0].moves,
    }


def mean_return(tree: Any, one: Play, other: Play) -> float:
    """What `one` gets against `other` a game, half the games from each seat."""
    first = expected_returns(tree, {"player_0": one["player_0"], "player_1": other["player_1"]})["player_0"]
    second = expected_returns(tree, {"player_0": other["player_0"], "player_1": one["player_1"]})["player_1"]
    return (first + second) / 2


def strategies(tree: Any, perfect: Play) -> dict[str, Play]:
    """The players of a game with hidden cards."""
    states = information_states(tree)
    even = {who: {seen: dict.fromkeys(acts, 1 / len(acts)) for seen, acts in own.items()} for who, own in states.items()}
    return {"random": even, "greedy": answer_to_random(tree), "minimax": perfect}


def kuhn_equilibrium() -> Play:
    """Kuhn poker's equilibrium as `minimax` plays it."""
    player, found = KuhnEquilibrium(), {}
    for who, own in information_states(KuhnTree()).items():
        found[who] = {}
        for seen in own:
            card, _, moves = seen.removeprefix("Card ").partition(". Moves ")
            bet = player.bets(card, moves.partition(".")[0].replace("-", ""))
            found[who][seen] = {"p": 1 - bet, "b": bet}
    return found


def main() -> None:
    """Prints a line a match, and all figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a game from each seat, no deep search")
    parser.add_argument("--only", default="", help="the matches whose names contain it, such as gomoku-9/alphabeta")
    parser.add_argument("--games", type=int, help="from each seat, in place of each match's own number")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    for match in MATCHES:
        if args.only not in match.name or (args.quick and match.first in ("alphabeta:4", "alphabeta:6")):
            continue
        found = figures[match.name] = play(match, 1 if args.quick else args.games or match.games, args.seed)
        print(
            f"{match.name:42} wins {found['win']:6.1%} ({found['low']:.1%} to {found['high']:.1%}), "
            f"draws {found['draw']:6.1%} of {found['games']}; {found['ms_per_move']:.1f} ms a move",
            flush=True,
        )
    trees = {"kuhn_poker": (KuhnTree(), kuhn_equilibrium()), "leduc_poker": (LeducTree(), leduc_equilibrium())}
    for game, (tree, perfect) in trees.items():
        known = strategies(tree, perfect)
        for name, strategy in known.items():
            if args.only not in f"{game}/{name}":
                continue
            row = {f"against_{other}": mean_return(tree, strategy, known[other]) for other in known}
            row["exploitability"] = exploitability(tree, strategy)
            figures[f"{game}/{name}"] = row
            print(f"{game}/{name:20} " + ", ".join(f"{key} {value:+.4f}" for key, value in row.items()))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
