import itertools
import random

import pytest

from opentinker.envs.games.kuhn_poker import ACTIONS, DEALS, KuhnPoker, KuhnState, KuhnTree, winnings

# Every end of the game, for player_0 holding the higher and the lower card.
ENDS = {"pp": (1, -1), "bb": (2, -2), "pbb": (2, -2), "bp": (1, 1), "pbp": (-1, -1)}


def episode(env, seed, moves):
    """Everything that happens in one game, as a list."""
    env.reset(seed=seed)
    seen = []
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        action = None if terminated or truncated else moves.choice(ACTIONS)
        seen.append((agent, observation, reward, terminated, truncated, dict(info), action))
        env.step(action)
    return seen


@pytest.mark.filterwarnings("ignore::UserWarning")  # its advice is for arrays: observations should be Boxes, ...
@pytest.mark.filterwarnings("ignore:The old environment creation API")  # importing it imports a game in an old way
def test_passes_pettingzoo_s_api_test(capsys):
    from pettingzoo.test import api_test

    api_test(KuhnPoker(), num_cycles=200)
    assert "Passed API test" in capsys.readouterr().out


def test_whole_episodes_follow_the_seed():
    one, other = KuhnPoker(), KuhnPoker()
    games = [episode(one, seed, random.Random(seed)) for seed in range(50)]
    assert games == [episode(other, seed, random.Random(seed)) for seed in range(50)]
    assert games == [episode(one, seed, random.Random(seed)) for seed in range(50)]
    assert len({game[0][1] for game in games}) == 3  # all cards occur


def test_without_a_seed_the_generator_goes_on():
    one, other = KuhnPoker(), KuhnPoker()
    for env in (one, other):
        env.reset(seed=3)
    deals = []
    for _ in range(30):
        one.reset()
        other.reset()
        assert one.observe("player_0") == other.observe("player_0")
        deals.append(one.observe("player_0")[5] + one.observe("player_1")[5])
    assert set(deals) == set(DEALS)


def test_the_deals_are_about_equally_frequent():
    env, counts = KuhnPoker(), dict.fromkeys(DEALS, 0)
    for seed in range(1200):
        env.reset(seed=seed)
        counts[env.observe("player_0")[5] + env.observe("player_1")[5]] += 1
    assert all(150 < count < 250 for count in counts.values())  # 200 each; 150 is four deviations away


@pytest.mark.parametrize(("moves", "won"), ENDS.items())
def test_every_end_pays_by_the_rules(moves, won):
    for cards, expected in zip(("KJ", "JK"), won, strict=True):
        assert winnings(cards, moves) == expected
    tree = KuhnTree()
    assert tree.returns(KuhnState("QJ", moves)) == {"player_0": won[0], "player_1": -won[0]}


@pytest.mark.parametrize("moves", ENDS)
def test_the_environment_plays_the_tree(moves):
    """Same players, same texts, same returns, on every path of the tree; C2: each reward is paid once."""
    env, tree = KuhnPoker(), KuhnTree()
    for seed in range(20):
        env.reset(seed=seed)
        state = KuhnState(env.observe("player_0")[5] + env.observe("player_1")[5])
        paid = dict.fromkeys(tree.players, 0.0)
        for action in moves:
            observation, reward, terminated, _, _ = env.last()
            assert env.agent_selection == tree.player(state) and observation == tree.observation(state)
            assert reward == 0 and not terminated
            env.step(action)
            state = tree.next(state, action)
        while env.agents:
            _, reward, terminated, _, _ = env.last()
            assert terminated
            paid[env.agent_selection] += reward
            env.step(None)
        assert paid == tree.returns(state)


def test_there_are_twelve_information_states_of_at_most_24_characters():
    tree, states, seen = KuhnTree(), [KuhnTree().root()], {}
    while states:
        state = states.pop()
        if outcomes := tree.chance(state):
            assert sum(probability for probability, _ in outcomes) == pytest.approx(1)
            states += [after for _, after in outcomes]
        elif (player := tree.player(state)) is not None:
            index = tree.players.index(player)
            seen.setdefault(tree.observation(state), set()).add((player, state.cards[index], state.moves))
            states += [tree.next(state, action) for action in tree.legal(state)]
        else:
            assert sum(tree.returns(state).values()) == 0 and tree.legal(state) == ()
    assert len(seen) == 12 and max(map(len, seen)) <= 24
    assert all(len(who) == 1 for who in seen.values())  # a text never stands for two information states
    assert seen["Card K. Moves pb. p/b?"] == {("player_0", "K", "pb")}
    assert seen["Card J. Moves -. p/b?"] == {("player_0", "J", "")}


def test_a_player_never_sees_the_other_card():
    for cards in itertools.permutations("KQJ", 2):
        unseen = ({"K", "Q", "J"} - set(cards)).pop()
        state, other = KuhnState("".join(cards), "p"), KuhnState(unseen + cards[1], "p")
        assert KuhnTree().observation(state) == KuhnTree().observation(other)


@pytest.mark.parametrize("action", ["x", "P", "", None, 0])
def test_refuses_what_is_no_action(action):
    env = KuhnPoker()
    env.reset(seed=1)
    with pytest.raises(ValueError, match="actions"):
        env.step(action)


def test_the_tree_refuses_questions_without_an_answer():
    tree = KuhnTree()
    with pytest.raises(ValueError, match="not legal"):
        tree.next(KuhnState("KQ", "pp"), "p")
    with pytest.raises(ValueError, match="not the end"):
        tree.returns(KuhnState("KQ", "p"))
    with pytest.raises(ValueError, match="nobody acts"):
        tree.observation(KuhnState("KQ", "pp"))
    assert isinstance(KuhnPoker().tree(), KuhnTree)
