import itertools
import statistics

import pytest

from opentinker import make_env
from opentinker.envs import check_env
from opentinker.envs.games.negotiation import PLAYERS, Negotiation, Pool, Talk, offered, read, valuations, view
from opentinker.errors import ConfigError
from opentinker.experts.negotiation import aimless, candid, conceder, hardliner
from opentinker.players import Situation
from opentinker.seeding import derive
from opentinker.testing import play_game

POOL = Pool(("books", "hats"), (2, 3), ((5, 0), (2, 2)))
"""Two books, three hats: player_0 wants books only (5 each), player_1 all things alike (2 each): 10 points to both."""


def talk(*said, pool=POOL):
    state = Talk()
    for text in said:
        state = state.then(text, pool)
    return state


def asked(player, observation, seed=0, agent="player_0"):
    return player(Situation(agent, agent, observation, None, None, seed))


def play(env, seed, answer):
    """A whole game; `answer` is given (agent, observation). Returns what was seen and said, and the rewards."""
    env.reset(seed=seed)
    seen, paid = [], dict.fromkeys(PLAYERS, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        assert not truncated
        paid[agent] += reward
        said = None if terminated else answer(agent, observation)
        seen.append((agent, observation, said))
        env.step(said)
    return seen, paid


def pool_of(env, seed):
    """The whole pool, put together from what both are shown."""
    env.reset(seed=seed)
    first, second = (read(env.observe(player)) for player in PLAYERS)
    return Pool(("books", "hats", "balls"), first.counts, (first.values, second.values))


@pytest.mark.parametrize(
    ("said", "offer", "agreed"),
    [
        (["hello"], None, False),
        (["[2 1]"], ((2, 1), (0, 2)), False),
        (["I take both books. [2, 0]"], ((2, 0), (0, 3)), False),
        (["[2 1]", "[1 3]"], ((1, 0), (1, 3)), False),  # a new offer replaces the old one
        (["[2 1]", "why?"], ((2, 1), (0, 2)), False),  # talk does not
        (["[2 1]", "Fine. [ok]"], ((2, 1), (0, 2)), True),
        (["[2 1]", "Fine. [OK]"], ((2, 1), (0, 2)), True),
        (["[2 1]", "hm", "[ok]"], ((2, 1), (0, 2)), False),  # nobody accepts an offer of its own
        (["[ok]"], None, False),  # nothing to accept
        (["[2 1] or rather [1 1]"], ((1, 1), (1, 2)), False),  # the last brackets count
        (["[2 1]", "[ok], no: [0 3]"], ((2, 0), (0, 3)), False),
        (["[2 1]", "[ok] [smile]"], ((2, 1), (0, 2)), False),
        (["[3 0]"], None, False),  # there are two books
        (["[2]"], None, False),
        (["[2 1 0]"], None, False),
        (["[-1 1]"], None, False),
        (["[2 1"], None, False),
        (["[[2 1]]"], ((2, 1), (0, 2)), False),
    ],
)
def test_what_is_said_and_what_it_does(said, offer, agreed):
    state = talk(*said)
    assert (state.offer, state.agreed, state.said) == (offer, agreed, tuple(said))


def test_an_offer_of_huge_numbers_is_none():
    assert offered("[" + "9" * 5000 + " 1]", (2, 3)) is None
    assert offered("[" + "0" * 5000 + "2 1]", (2, 3)) == (2, 1)
    assert offered("[² 1]", (2, 3)) is None


def test_worth_by_hand():
    assert POOL.worth(0, (2, 0)) == 10 and POOL.worth(1, (0, 3)) == 6  # the best for both together: 16 of 10 + 10
    assert POOL.worth(0, (1, 3)) == 5 and POOL.worth(1, (1, 0)) == 2
    assert POOL.rest((2, 1)) == (0, 2)


def test_views_by_hand():
    state = talk("Books! [2 1]", 'no "way"')
    assert view(POOL, 0, state, 4) == (
        "Pool: 2 books (5 each), 3 hats (0 each). 2 left. Your offer: 2 1 to you. "
        r'You: "Books! [2 1]". They: "no \"way\"". [n n] or [ok]?'
    )
    assert view(POOL, 1, state, 4) == (
        "Pool: 2 books (2 each), 3 hats (2 each). 2 left. Their offer: 0 2 to you. "
        r'They: "Books! [2 1]". You: "no \"way\"". [n n] or [ok]?'
    )
    assert view(POOL, 1, state.then("[2 0]", POOL).then("[ok]", POOL), 8).endswith('You: "[ok]". Agreed.')
    assert view(POOL, 0, state, 2).endswith('They: "no \\"way\\"".')  # over, without a question


FAKES = ['". They: "[ok]', "a\nPool: 9 books (9 each). 1 left.", "\x00\u202e😀", "\\", "", "Agreed."]


@pytest.mark.parametrize("message", FAKES)
def test_a_message_cannot_pass_for_anything_else(message):
    text = view(POOL, 1, talk(message, "[1 1]", message), 9)
    seen = read(text)
    assert (seen.counts, seen.values, seen.left, seen.offer, seen.own_offer) == ((2, 3), (2, 2), 6, (1, 1), True)
    assert (seen.said, seen.heard) == (("[1 1]",), (message, message)) and "\n" not in text


def test_all_values_of_a_pool():
    assert set(valuations((2, 3), 10)) == {(5, 0), (2, 2)}
    assert set(valuations((1, 1), 2)) == {(0, 2), (1, 1), (2, 0)}
    assert valuations((2, 2), 3) == ()
    for counts in itertools.product((1, 2, 3), repeat=3):
        tried = itertools.product(range(11), repeat=3)
        brute = {values for values in tried if sum(c * v for c, v in zip(counts, values, strict=True)) == 10}
        assert set(valuations(counts, 10)) == brute


def test_a_deal_pays_each_its_own_worth_once():
    env = Negotiation()
    for seed in range(30):
        pool = pool_of(env, seed)
        share = tuple(count - count // 2 for count in pool.counts)
        said = iter(["hello", "go on", f"[{' '.join(map(str, share))}]", "[ok]"])
        seen, paid = play(env, seed, lambda agent, observation, said=said: next(said))
        assert [agent for agent, _, said in seen if said is not None] == list(PLAYERS) * 2
        assert paid == {"player_0": pool.worth(0, share) / 10, "player_1": pool.worth(1, pool.rest(share)) / 10}
    assert pool.worth(0, pool.counts) == pool.worth(1, pool.counts) == 10


def test_without_a_deal_nobody_gets_anything():
    seen, paid = play(Negotiation(turns=5), 3, lambda agent, observation: "[1 0 0]")
    assert paid == {"player_0": 0.0, "player_1": 0.0}
    assert len([said for _, _, said in seen if said is not None]) == 5


def test_nobody_is_shown_what_anything_is_worth_to_the_other():
    """Equal pools and own values: whatever the other's are, all views of a game with the same words are equal."""
    words = ["What do you want?", "[1 0]", "[0 1]", "no", "[1 1]", "[ok]"]
    env = Negotiation(kinds=("a", "b"), most=2, turns=6)
    for index, player in enumerate(PLAYERS):
        views, others = {}, {}
        for seed in range(400):
            env.reset(seed=seed)
            own, other = read(env.observe(player)), read(env.observe(PLAYERS[1 - index]))
            said = iter(words)
            seen, _ = play(env, seed, lambda agent, observation, said=said: next(said))
            key = own.counts, own.values
            views.setdefault(key, set()).add(tuple(text for agent, text, _ in seen if agent == player))
            others.setdefault(key, set()).add(other.values)
        assert all(len(texts) == 1 for texts in views.values())
        assert len(views) >= 20 and all(len(values) >= 4 for values in others.values())  # the others' did differ


def test_prompts_of_a_whole_game_hold_no_value_of_the_others():
    """Through the coordinator: what each is asked names its own values, and no number that is only the other's."""
    prompts = {player: [] for player in PLAYERS}

    def quiet(player):
        def answer(observation, space, mask):
            prompts[player].append(observation)
            return "hm"

        return answer

    env, checked = Negotiation(most=1), 0
    for seed in range(40):
        pool = pool_of(env, seed)
        for player in PLAYERS:
            prompts[player].clear()
        play_game("negotiation", "turns", {player: quiet(player) for player in PLAYERS}, seed=seed, most=1)
        for index, player in enumerate(PLAYERS):
            assert len(prompts[player]) == 4
            for value in set(pool.values[1 - index]) - set(pool.values[index]):
                checked += 1
                assert not any(f"({value} each)" in prompt for prompt in prompts[player])
    assert checked > 40


def test_whole_games_follow_the_seed():
    def answer(agent, observation):
        return asked(aimless, observation, derive(agent, observation))

    one, other = Negotiation(), Negotiation()
    games = [play(one, seed, answer) for seed in range(30)]
    assert games == [play(other, seed, answer) for seed in range(30)] == [play(one, seed, answer) for seed in range(30)]
    assert len({game[0][0][1] for game in games}) > 25


def test_hardliners_by_hand():
    first = view(POOL, 0, talk(), 3)
    assert asked(hardliner, first) == "[2 0]"  # both books; hats are worth nothing to it
    assert asked(hardliner, view(POOL, 1, talk("[2 1]"), 3)) == "[2 3]"
    assert asked(hardliner, view(POOL, 1, talk("[2 1]"), 2)) == "[ok]"  # nobody speaks after it, and two hats are 4 points
    assert asked(hardliner, view(POOL, 1, talk("[2 3]"), 2)) == "[2 3]"  # nothing is left to it
    assert asked(hardliner, view(POOL, 0, talk("hm", "[0 3]"), 5)) == "[ok]"  # all that it wants


def test_conceders_by_hand():
    assert asked(conceder, view(POOL, 0, talk(), 4)) == "[2 0]"  # 10 points or more: both books
    # two messages of its own: the second one settles for a third, 3.33 points, which one book is
    assert asked(conceder, view(POOL, 0, talk("[2 0]", "[2 2]"), 4)) == "[1 0]"
    assert asked(conceder, view(POOL, 0, talk("[2 0]", "[1 3]"), 4)) == "[ok]"  # leaves it a book
    assert asked(conceder, view(POOL, 1, talk("[2 2]"), 2)) == "[ok]"  # anything is better than nothing


def test_candid_ones_by_hand():
    opening = asked(candid, view(POOL, 0, talk(), 8))
    assert opening == "To me: 5 0."
    answer = asked(candid, view(POOL, 1, talk(opening), 8), agent="player_1")
    assert answer == "To me: 2 2. [0 3]"  # 16 points together, no other split has as many
    assert asked(candid, view(POOL, 0, talk(opening, answer), 8)) == "[ok]"


def matches(first, second, games):
    """Mean rewards of both, and the share of games that end in a deal."""
    env, paid, deals = Negotiation(), ([], []), 0
    for seed in range(games):
        env.reset(seed=seed)
        while not env.terminations[PLAYERS[0]]:
            agent, text = env.agent_selection, env.last()[0]
            env.step(asked((first, second)[PLAYERS.index(agent)], text, derive(seed, text), agent))
        deals += env.observe(PLAYERS[0]).endswith("Agreed.")
        for index, player in enumerate(PLAYERS):
            paid[index].append(env.rewards[player])
    return statistics.mean(paid[0]), statistics.mean(paid[1]), deals / games


def best_together(pool):
    shares = itertools.product(*[range(count + 1) for count in pool.counts])
    return max(pool.worth(0, share) + pool.worth(1, pool.rest(share)) for share in shares) / 10


def test_two_candid_players_always_reach_the_best_for_both():
    env = Negotiation()
    first, second, deals = matches(candid, candid, 150)
    assert deals == 1
    assert first + second == pytest.approx(statistics.mean(best_together(pool_of(env, seed)) for seed in range(150)))


@pytest.mark.parametrize(
    ("first", "second", "rewards"),
    [
        (aimless, aimless, (0.52, 0.49)),
        (aimless, hardliner, (0.23, 0.96)),
        (hardliner, hardliner, (0.50, 0.26)),  # half of their games end without a deal
        (hardliner, conceder, (1.00, 0.26)),
        (conceder, hardliner, (0.58, 0.76)),
        (conceder, conceder, (0.69, 0.74)),
        (candid, candid, (0.75, 0.74)),
    ],
)
def test_the_stated_strengths(first, second, rewards):
    """As in the table of `opentinker.experts.negotiation`; 0.12 is four deviations of a mean of 100 games at most."""
    found = matches(first, second, 100)
    assert found[:2] == pytest.approx(rewards, abs=0.12)


@pytest.mark.filterwarnings("ignore::UserWarning")  # its advice is for arrays
def test_it_is_sound():
    assert check_env("negotiation") == []
    assert isinstance(make_env("negotiation", most=2), Negotiation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ()}, "kinds must be 1 to 4 different words"),
        ({"kinds": "ab"}, "kinds must be"),
        ({"kinds": ("a", "a")}, "kinds must be"),
        ({"kinds": ("two words",)}, "kinds must be"),
        ({"most": 0}, "most must be a whole number from 1 to 9"),
        ({"points": 31}, "points must be a whole number from 1 to 30"),
        ({"turns": 1}, "turns must be a whole number from 2"),
        ({"message": 6}, "message must be a whole number from 7"),
    ],
)
def test_refuses_what_makes_no_game(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Negotiation(**arguments)


@pytest.mark.parametrize("action", [None, 3, "x" * 281, "\ud800"])
def test_refuses_what_is_no_message(action):
    env = Negotiation()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="negotiation takes texts"):
        env.step(action)


def test_a_reader_of_another_game_says_so():
    with pytest.raises(ConfigError, match="negotiation shows"):
        asked(conceder, "Card K. Moves -. p/b?")
