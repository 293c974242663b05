"""What a scorer of reasoning-gym is given of a reply: the answer in it, unless it is not fit to be scored.

Some scorers hand what they are given to Python's `eval` or to SymPy's `parse_expr`, which calls it: an answer such as
`__import__("os").system("...")` would run, and `9**9**9**9` would run for ever. Two take nonsense for right. Those answers
are not handed over; nothing that answers such a task is among them. (All seen in reasoning-gym 0.1.25.)
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable

Names = frozenset[str]

MAX_LENGTH = 20_000
"""Longer answers are not handed over, in characters: some scorers take time that grows with the square."""

_BEGIN, _END = "<answer>", "</answer>"
_PLAIN = re.compile(r"[\w\s,.+-]*")
_SIGNS = re.compile(r"[+-]\s*[+-]")
_LITERAL = 4000
"""Characters of a Python constant, at most: deeper ones overflow the interpreter's stack."""
_EXPRESSION = re.compile(r"[\w\s.,+*/()=-]{0,1000}")
_NAME = re.compile(r"[^\W\d]\w*")
_MEMBER = re.compile(r"\.\s*[^\W\d]")
_DIGITS = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(r"\d{40}|\d[eE][+-]?\d{3}")
_POWER = re.compile(r"(\)?)\s*\*\*\s*((?:\(\s*-?\d{1,2}(?:\s*/\s*\d{1,2})?\s*\)|-?\d{1,2}(?![\w.]))(?!\s*\*\*))?")
_LARGEST_NEST = 1000
"""Of the product of all exponents that stand behind brackets."""
_FRACTION = re.compile(r"[\d\s./+-]{0,100}")
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc asin acos atan sinh cosh tanh asinh acosh atanh exp log ln sqrt pi Abs Rational".split()
)


def answer_in(reply: str) -> str:
    """The text of the last `<answer>...</answer>`, else the whole reply; without white space around it."""
    found, at = reply, 0
    # a pattern would look for the end anew behind every beginning, which takes seconds for a long reply of beginnings alone
    while (start := reply.find(_BEGIN, at)) >= 0 and (end := reply.find(_END, start + len(_BEGIN))) >= 0:
        found, at = reply[start + len(_BEGIN) : end], end + len(_END)
    return found.strip()


def fit_to_score(task: str, answer: str, own: str = "") -> bool:
    """Whether a task's scorer may see an answer.

    Args:
        task: its name.
        answer: as it was given.
        own: the task's own answer; the names in it do no harm.
    """
    check = _CHECKS.get(task)
    return len(answer) <= MAX_LENGTH and (check is None or check(answer, frozenset(_NAME.findall(own))))


def _literal(answer: str, known: Names) -> bool:
    """For `eval`: a constant, or a text in which nothing can be called."""
    if _PLAIN.fullmatch(answer) and not _SIGNS.search(answer):
        return True
    if len(answer) > _LITERAL:
        return False
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _arithmetic(answer: str, known: Names) -> bool:
    """For `parse_expr` where only numbers are used."""
    return _expression(answer, lambda name: False)


def _polynomial(answer: str, known: Names) -> bool:
    return _expression(answer, lambda name: name in known or _variable(name))


def _formula(answer: str, known: Names) -> bool:
    return _expression(answer, lambda name: name in known or _variable(name) or name in _FUNCTIONS)


def _variable(name: str) -> bool:
    return len(name) == 1 and name not in "NOQS"  # to SymPy those are functions


def _expression(answer: str, named: Callable[[str], bool]) -> bool:
    if not _EXPRESSION.fullmatch(answer) or _MEMBER.search(answer) or _NUMBER.search(answer):
        return False
    if not all(map(named, _NAME.findall(_DIGITS.sub(" ", answer)))):
        return False
    powers = list(_POWER.finditer(answer))
    if not all(power[2] for power in powers):  # a tower, or an exponent that is no small number
        return False
    nested = [max(int(number) for number in re.findall(r"\d+", power[2])) for power in powers if power[1]]
    return math.prod(max(1, exponent) for exponent in nested) <= _LARGEST_NEST


def _fraction(answer: str, known: Names) -> bool:
    """For `Fraction`, which writes out what 1e999999999 stands for."""
    return _FRACTION.fullmatch(answer) is not None


def _number(answer: str, known: Names) -> bool:
    """For a scorer that takes a distance which is no number for none at all."""
    return "nan" not in answer.casefold()


def _short(answer: str, known: Names) -> bool:
    """For a reader of formulas that goes over the rest again at every bracket."""
    return len(answer) <= 1000


def _truth_value(answer: str, known: Names) -> bool:
    """For a scorer that takes every text for right."""
    return answer.capitalize() in known


_CHECKS: dict[str, Callable[[str, Names], bool]] = {
    "binary_matrix": _literal,
    "n_queens": _literal,
    "spiral_matrix": _literal,
    "string_insertion": _literal,
    "countdown": _arithmetic,
    "puzzle24": _arithmetic,
    "polynomial_multiplication": _polynomial,
    "simple_integration": _formula,
    "intermediate_integration": _formula,
    "coin_flip": _fraction,
    "complex_arithmetic": _number,
    "game_of_life_halting": _truth_value,
    "propositional_logic": _short,
}
