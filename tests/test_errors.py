import pickle
import traceback

import pytest

from opentinker import errors
from opentinker.errors import (
    ConfigError,
    EnvTimeout,
    Interrupted,
    InvalidAction,
    MissingExtra,
    OpenTinkerError,
    RunExists,
    SeatOut,
    UnknownId,
    error_text,
    message_text,
    value_text,
)

EXAMPLES = [
    UnknownId("environment", "kuhn", ["kuhn_poker", "bandit"], "see opentinker envs list"),
    MissingExtra("leduc", "openspiel"),
    InvalidAction("x" * 100, "no such action", ["a", "b"]),
    SeatOut("player_0", "forfeit", "said nonsense"),
    Interrupted(15, "stopped after step 3"),
    ConfigError("seed: wrong"),
    RunExists("run 'x' exists"),
    EnvTimeout("env step took 3 s"),
]


def kinds(kind=OpenTinkerError):
    """The tree of errors of the module, below a kind."""
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield below
            yield from kinds(below)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_cross_process_borders_whole(error):
    error.add_note("where: here")
    error.extra = {"deep": [1]}
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)
    assert "where: here" in "".join(traceback.format_exception(back))


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_every_kind_of_error_can_be_pickled(kind):
    error = (OSError if issubclass(kind, OSError) else Exception).__new__(kind, "a message")
    error.args = ("a message",)
    assert str(pickle.loads(pickle.dumps(error))) == "a message"


def test_the_tree_at_the_top_of_the_module_is_the_tree():
    drawn = [line.replace("│", " ").split("── ")[1].split()[0] for line in errors.__doc__.splitlines() if "── " in line]
    assert sorted(drawn) == sorted(kind.__name__ for kind in kinds())


@pytest.mark.parametrize(
    ("kind", "standard"),
    [(ConfigError, ValueError), (UnknownId, KeyError), (RunExists, FileExistsError), (EnvTimeout, TimeoutError)],
)
def test_errors_are_standard_errors_too(kind, standard):
    assert issubclass(kind, OpenTinkerError) and issubclass(kind, standard)


@pytest.mark.parametrize(
    ("given", "known", "message"),
    [
        ("kuhn_pokr", ["kuhn_poker", "bandit"], "unknown game 'kuhn_pokr'; did you mean 'kuhn_poker'?"),
        ("ab", ["abc", "abd"], "unknown game 'ab'; did you mean 'abd' or 'abc'?"),
        ("zzz", ["b", "a"], "unknown game 'zzz'; known: a, b"),
        ("zzz", list("abcdefghijklm"), "unknown game 'zzz'; known: a, b, c, d, e, f, g, h, i, j, k, l, ..."),
        ("zzz", [], "unknown game 'zzz'"),
    ],
)
def test_an_unknown_id_suggests_near_names(given, known, message):
    assert str(UnknownId("game", given, known)) == message
    assert str(UnknownId("game", given, known, "try X")) == f"{message} (try X)"


def test_what_others_wrote_is_put_into_text_whatever_it_does():
    class Speechless(Exception):
        def __str__(self):
            raise OSError

        __repr__ = __str__

    assert (error_text(KeyError("a")), message_text(ValueError("b"))) == ("KeyError: 'a'", "b")
    assert error_text(Speechless()) == "Speechless: (its __str__ raised OSError)"
    assert value_text(Speechless()) == "a Speechless (its __repr__ raised OSError)"
    assert value_text(10**5000) == "a int (its __repr__ raised ValueError)"
    assert value_text("x" * 198) == repr("x" * 198) and value_text("x" * 199) == "'" + "x" * 196 + "..."


def test_an_invalid_action_cuts_long_replies_and_lists():
    error = InvalidAction("y" * 81, "too long", [str(n) for n in range(21)])
    assert str(error) == f"invalid action {'y' * 77 + '...'!r}: too long; legal: {', '.join(map(str, range(20)))}, ..."
    assert error.reply == "y" * 81
    assert str(InvalidAction("y" * 80, "r")) == f"invalid action {'y' * 80!r}: r"
