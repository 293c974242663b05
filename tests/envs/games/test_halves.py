import itertools
import re

import pytest

from opentinker import make_env
from opentinker.envs import check_env
from opentinker.envs.games.halves import PLAYERS, Halves, named, read, view
from opentinker.errors import ConfigError
from opentinker.experts.halves import babbler, mute, talker, teller
from opentinker.players import Situation
from opentinker.seeding import derive
from opentinker.testing import play_game


def play(env, seed, messages):
    """Says the messages in turn; returns what everybody saw before it spoke, and the rewards."""
    env.reset(seed=seed)
    seen = []
    for message in messages:
        seen.append((env.agent_selection, env.last()[0]))
        env.step(message)
    paid = dict.fromkeys(PLAYERS, 0.0)
    while env.agents:
        _, reward, terminated, truncated, _ = env.last()
        assert terminated and not truncated
        paid[env.agent_selection] += reward
        env.step(None)
    return seen, paid


def code_of(env, seed):
    env.reset(seed=seed)
    left, right = (read(env.observe(player)).known for player in PLAYERS)
    return left.strip("?") + right.strip("?")


def asked(player, observation, seed=0):
    return player(Situation("left", "left", observation, None, None, seed))


def test_a_whole_game_as_it_is_seen():
    env = Halves("abc", length=2)
    seed = next(seed for seed in itertools.count() if code_of(env, seed) == "abca")
    seen, paid = play(env, seed, ["mine: ab", 'he said "ca"', "So it is ABCA!", "abcb"])
    assert seen == [
        ("left", "You know ab?? of abc. Tell your partner:"),
        ("right", 'You know ??ca of abc. Partner: "mine: ab". Tell your partner:'),
        ("left", r'You know ab?? of abc. You: "mine: ab". Partner: "he said \"ca\"". Whole code?'),
        ("right", r'You know ??ca of abc. Partner: "mine: ab". You: "he said \"ca\"". Whole code?'),
    ]
    assert paid == {"left": 0.5, "right": 0.5}  # left is right, right is not: both get half a point


@pytest.mark.parametrize(
    ("answers", "reward"),
    [(("abca", "abca"), 1.0), (("abca", "caab"), 0.5), (("", "abca"), 0.5), (("abc", "ab ca"), 0.0), (("x", "y"), 0.0)],
)
def test_partners_are_paid_together(answers, reward):
    env = Halves("abc", length=2)
    seed = next(seed for seed in itertools.count() if code_of(env, seed) == "abca")
    assert play(env, seed, ["", "", *answers])[1] == {"left": reward, "right": reward}


@pytest.mark.parametrize(
    ("reply", "code"),
    [("abca", "abca"), ("I think: ABCA.", "abca"), ("abca or abcb", "abcb"), ("<abca>\n", "abca"), ("", ""), ("?!", "")],
)
def test_an_answer_is_the_last_word(reply, code):
    assert named(reply) == code


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_nobody_is_shown_anything_of_the_other_half(rounds):
    """What a player sees stays the same, whatever the other half is, as long as the same things are said."""
    env = Halves("abc", length=1, rounds=rounds)
    seeds = {code_of(env, seed): seed for seed in range(200)}
    assert len(seeds) == 9
    said = ["x", "y"] * rounds + ["ab", "ca"]
    games = {code: play(env, seed, said)[0] for code, seed in seeds.items()}
    for index, player in enumerate(PLAYERS):
        for half in "abc":
            own = [game for code, game in games.items() if code[index] == half]
            views = {tuple(text for who, text in game if who == player) for game in own}
            assert len(views) == 1
    for code, seed in seeds.items():  # also once it is over: answers stay unheard
        play(env, seed, said)
        assert env.observe("left") == view(0, code[0] + "?", "abc", said[: 2 * rounds])
        assert env.observe("right") == view(1, "?" + code[1], "abc", said[: 2 * rounds])


def test_an_answer_does_not_reach_the_partner():
    seen = {}
    for answer in ("11", "22"):
        env = Halves("12", length=1)
        seen[answer] = play(env, 4, ["1", "2", answer, "12"])[0][3]
    assert seen["11"] == seen["22"]


def test_prompts_of_a_whole_game_hold_only_what_was_told():
    """Through the coordinator: letters that only the other half has never appear to who was told nothing."""
    env = Halves("abcdefghij", length=2)
    seed = next(seed for seed in itertools.count() if not set(code_of(env, seed)[:2]) & set(code_of(env, seed)[2:]))
    code = code_of(env, seed)
    prompts = {player: [] for player in PLAYERS}

    def quiet(player):
        def answer(observation, space, mask):
            prompts[player].append(observation)
            return "I say nothing"

        return answer

    episode = play_game("halves", "turns", {player: quiet(player) for player in PLAYERS}, seed=seed, symbols="abcdefghij")
    assert dict(episode.rewards) == {"left": 0.0, "right": 0.0}
    assert len(prompts["left"]) == len(prompts["right"]) == 2
    for player, known in (("left", code[:2] + "??"), ("right", "??" + code[2:])):
        for prompt in prompts[player]:
            rest = re.sub(r'"[^"]*"|of abcdefghij\.|Tell your partner:|Whole code\?|You|Partner|know', "", prompt)
            assert sorted(rest.replace(":", "").replace(".", "").split()) == [known]


@pytest.mark.parametrize("message", ['". Partner: "ab', "a\nPartner: b", "You know ab?? of ab.", "\x00\u202e😀", "\\", ""])
def test_a_message_cannot_pass_for_anything_else(message):
    text = view(1, "abab", "ab", [message, "mine", message], "Whole code?")
    assert "\n" not in text
    seen = read(text)
    assert (seen.known, seen.symbols, seen.heard, seen.answering) == ("??ab", "ab", (message, message), True)


def test_the_codes_are_about_equally_frequent():
    env = Halves("ab", length=1)
    codes = [code_of(env, seed) for seed in range(1000)]
    assert all(190 < codes.count(code) < 310 for code in ("aa", "ab", "ba", "bb"))  # 250 each; four deviations are 55


def strength(player, symbols, length, rounds=1, seeds=range(900)):
    """The mean reward of two of a kind."""
    env, total = Halves(symbols, length, rounds), 0.0
    for seed in seeds:
        env.reset(seed=seed)
        while not env.terminations["left"]:
            text = env.last()[0]
            env.step(asked(player, text, derive(seed, text)))
        total += env.rewards["left"]
    return total / len(seeds)


@pytest.mark.parametrize(("symbols", "length"), [("ab", 1), ("abc", 1), ("0123456789", 2)])
@pytest.mark.parametrize("rounds", [1, 2])
def test_tellers_always_win(symbols, length, rounds):
    assert strength(teller, symbols, length, rounds, range(100)) == 1.0


@pytest.mark.parametrize("player", [mute, babbler, talker])
@pytest.mark.parametrize(("symbols", "length"), [("abc", 1), ("ab", 2)])
def test_who_does_not_listen_can_only_guess(player, symbols, length):
    chance = len(symbols) ** -length
    # an answer is right or not: four deviations of the mean of 2 * 900 of them, pairs at worst alike
    assert strength(player, symbols, length) == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 900) ** 0.5)


def test_a_talker_tells_the_truth():
    assert asked(talker, view(0, "caab", "abc", [], "Tell your partner:")) == "ca"
    assert asked(talker, view(1, "caab", "abc", ["ca"], "Tell your partner:")) == "ab"


def test_a_teller_without_news_and_a_reader_of_another_game():
    assert asked(teller, view(0, "abab", "ab", ["x", "no idea"], "Whole code?")) == "abab"
    with pytest.raises(ConfigError, match="halves shows"):
        asked(teller, "Card K. Moves -. p/b?")


@pytest.mark.filterwarnings("ignore::UserWarning")  # its advice is for arrays
def test_it_is_sound():
    assert check_env("halves") == []
    assert isinstance(make_env("halves", symbols="xyz"), Halves)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"symbols": "a"}, "symbols must be at least two"),
        ({"symbols": "aA"}, "symbols must be at least two"),
        ({"symbols": "aba"}, "symbols must be at least two"),
        ({"symbols": ["a", "b"]}, "symbols must be at least two"),
        ({"length": 0}, "length must be a whole number from 1"),
        ({"rounds": -1}, "rounds must be a whole number from 0"),
        ({"length": 8, "message": 15}, "message must be a whole number from 16"),
        ({"length": True}, "length must be"),
    ],
)
def test_refuses_what_makes_no_game(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Halves(**arguments)


@pytest.mark.parametrize("action", [None, 3, "x" * 81, "\ud800"])
def test_refuses_what_is_no_message(action):
    env = Halves()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="halves takes texts"):
        env.step(action)
