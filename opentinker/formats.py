r"""How an action stands in a reply: `plain`, `tag`, `boxed`, `json`. Every format takes any text at all without crashing.

    plain   up
    tag     I go north. <action>up</action>
    boxed   I go north: \boxed{up}
    json    I go north. {"action": "up"}

Where a reply holds several actions, the last one counts: models correct themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from opentinker.errors import InvalidAction, UnknownId

_TAG = re.compile(r"<(/?)action>", re.IGNORECASE)
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
# Each attempt to read an object may run to the end of the text; a reply of nothing but braces must stay cheap.
_MAX_OBJECTS = 256


@dataclass(frozen=True, slots=True)
class ActionFormat:
    """One way to mark the action in a reply. `extract(wrap(action))` is the action, spaces around it aside."""

    name: str
    extract: Callable[[str], str]
    """Text of the action in a reply. Raises `InvalidAction` where there is none."""
    wrap: Callable[[str], str]
    """A reply that holds an action and nothing else."""
    hint: str
    """Tells a model what to write; empty where the whole reply is the action."""


def make_format(name: str) -> ActionFormat:
    """The format of a name.

    Raises:
        UnknownId: no such format.
    """
    if name not in FORMATS:
        raise UnknownId("action format", name, FORMATS)
    return FORMATS[name]


def _same(text: str) -> str:
    return text


def _from_tag(reply: str) -> str:
    opened, span = -1, None
    for tag in _TAG.finditer(reply):
        if not tag.group(1):
            opened = tag.end()
        elif opened >= 0:
            span, opened = (opened, tag.start()), -1
    if span is None:
        raise InvalidAction(reply, "no <action>...</action> in the reply")
    return reply[span[0] : span[1]].strip()


def _to_tag(action: str) -> str:
    return f"<action>{action}</action>"


def _from_boxed(reply: str) -> str:
    # One pass with a stack of open braces, None for the plain ones; of boxes in boxes the outer one closes last.
    stack: list[int | None] = []
    span = None
    for brace in _BRACES.finditer(reply):
        text = brace.group()
        if text == "}":
            start = stack.pop() if stack else None
            if start is not None:
                span = (start, brace.start())
        elif text == "{":
            stack.append(None)
        elif len(text) > 2:
            stack.append(brace.end())
    if span is None:
        raise InvalidAction(reply, r"no \boxed{...} in the reply")
    return reply[span[0] : span[1]].strip()


def _to_boxed(action: str) -> str:
    return rf"\boxed{{{action}}}"


def _from_json(reply: str) -> str:
    decoder = json.JSONDecoder()
    starts = [match.start() for match in re.finditer(r"\{", reply)][-_MAX_OBJECTS:]
    found, value, end = False, None, 0
    for start in starts:
        if start < end:
            continue
        try:
            item, end = decoder.raw_decode(reply, start)
        except (ValueError, RecursionError):  # no JSON here, or nested too deeply to be an answer
            continue
        if "action" in item:
            found, value = True, item["action"]
    if not found:
        raise InvalidAction(reply, 'no {"action": ...} in the reply')
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _to_json(action: str) -> str:
    return json.dumps({"action": action}, ensure_ascii=False)


FORMATS: Mapping[str, ActionFormat] = MappingProxyType(
    {
        "plain": ActionFormat("plain", _same, _same, ""),
        "tag": ActionFormat("tag", _from_tag, _to_tag, "Put your action between <action> and </action>."),
        "boxed": ActionFormat("boxed", _from_boxed, _to_boxed, r"Put your action in \boxed{}."),
        "json": ActionFormat("json", _from_json, _to_json, 'End with a JSON object that holds your action: {"action": ...}'),
    }
)
