"""Scripted players of stated strength for the games of our own, for either seat, by their names in `opentinker.players`.

- `greedy`: in board games takes a win, else stops one, else marks the square that adds most to its open lines and takes most
  from the other's; in Kuhn and Leduc poker the best response to an opponent who plays at random, computed exactly.
- `alphabeta:DEPTH`: tic-tac-toe, connect four, gomoku; see `opentinker.experts.search`. In tic-tac-toe depth 9 is perfect.
- `minimax`: perfect in tic-tac-toe (`opentinker.perfect`), an equilibrium in Kuhn poker, nearly one in Leduc poker (1000
  iterations of CFR+ when first asked, half a second, leave an exploitability of 0.0002 chips a game).

What they win, half the games from each seat, with 95 % intervals; a game between two searches begins with four random moves:

| game | player | against | wins | draws | games | ms a move |
|---|---|---|---|---|---|---|
| tic-tac-toe | greedy | random | 94.5 % (92.9 to 95.8) | 4.2 % | 1000 | 0.2 |
| tic-tac-toe | minimax | random | 87.8 % (85.6 to 89.7) | 12.2 % | 1000 | 0.04 |
| tic-tac-toe | minimax | greedy | 11.1 % (9.3 to 13.2) | 88.9 % | 1000 | 0.04 |
| connect four | greedy | random | 100 % (99.6 to 100) | 0 % | 1000 | 0.2 |
| connect four | alphabeta:2 | greedy | 53.0 % (49.0 to 57.0) | 7.5 % | 600 | 1 |
| connect four | alphabeta:4 | greedy | 69.3 % (63.9 to 74.3) | 7.0 % | 300 | 7 |
| connect four | alphabeta:4 | alphabeta:2 | 58.7 % (53.0 to 64.1) | 10.7 % | 300 | 8 |
| connect four | alphabeta:6 | alphabeta:4 | 65.8 % (57.0 to 73.7) | 5.8 % | 120 | 62 |
| gomoku, 9 rows | greedy | random | 100 % (98.1 to 100) | 0 % | 200 | 0.2 |
| gomoku, 9 rows | alphabeta:2 | greedy | 75.8 % (71.3 to 79.7) | 8.5 % | 400 | 1 |
| gomoku, 9 rows | alphabeta:4 | alphabeta:2 | 44.0 % (34.7 to 53.8) | 34.0 % | 100 | 21 |
| gomoku, 15 rows | greedy | random | 100 % (96.3 to 100) | 0 % | 100 | 0.5 |
| gomoku, 15 rows | alphabeta:2 | greedy | 69.0 % (59.4 to 77.2) | 0 % | 100 | 2 |
| gomoku, 15 rows | alphabeta:4 | alphabeta:2 | 57.5 % (42.2 to 71.5) | 0 % | 40 | 31 |

In chips a game, mean of both seats, exactly:

| game | player | against random | against greedy | against minimax | exploitability |
|---|---|---|---|---|---|
| Kuhn poker | greedy | +0.458 | 0 | -0.028 | 0.417 |
| Kuhn poker | minimax | +0.167 | +0.028 | 0 | 0 |
| Leduc poker | greedy | +2.374 | 0 | -0.755 | 3.417 |
| Leduc poker | minimax | +0.707 | +0.755 | 0 | 0.0002 |

    python benchmarks/experts.py     # all of it; seed 0, times on one core of a shared machine
"""
