"""Dialogues to prompt ids.

A prompt is a row of id segments. Sampled ids stand in it as they were sampled; all else (template text, what users and
environments say, a forced end of turn) is glue, encoded once and never decoded again:

    start(system, user 1)   completion 1   extend(completion 1, user 2)   completion 2   ...
    `---- glue ---------'   `- sampled -'  `---------- glue ----------'   `- sampled -'

What a system prompt or a user message holds cannot forge the dialogue's structure: strings that are markup to the
tokenizer (special tokens, and added tokens that the chat template names) are taken out before the template sees them and
encoded as the characters they consist of. Where a template marks turns with plain words, there is nothing to be done.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from jinja2 import TemplateError

from opentinker.encoding import TextEncoder, TokenIds, clean
from opentinker.errors import ConfigError
from opentinker.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Exchange: TypeAlias = tuple[str, Completion]
"""A user message and what was sampled in reply."""

CACHE = 4096
"""Prompts and pieces of glue kept per renderer: games ask the same few things again and again."""
LONG = 1000
"""Characters above which a message is not looked up: long ones seldom come back, and their ids fill the memory."""

_ANY = "text"
_THINKING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
)


class Renderer(ABC):
    """A tokenizer's way of writing dialogues.

    Attributes:
        extends: every later prompt starts with all ids so far, sampled ones included.
        appends: prompts are `start`, then `keep` and `extend` of one exchange after the other. Where False, the template
            writes a turn differently once it is past, and only `dialogue` gives the prompt.
        eos_ids: ids that end a reply: the tokenizer's end of text and the template's end of turn.
    """

    extends: bool
    appends: bool
    eos_ids: frozenset[int]

    @abstractmethod
    def start(self, system: str | None, user: str) -> TokenIds:
        """The prompt of a dialogue's first reply, generation prompt included."""

    @abstractmethod
    def extend(self, completion: Completion, user: str) -> TokenIds:
        """What follows a completion's ids: an end of turn unless it was sampled, the message, the generation prompt."""

    @abstractmethod
    def encode_reply(self, text: str, end: bool = True) -> TokenIds:
        """Ids of a reply that was not sampled, as a target for supervised steps, with or without its end."""

    def keep(self, completion: Completion) -> TokenIds:
        """The sampled ids that later prompts still show: all of them, unless the template leaves out earlier thinking."""
        return completion.token_ids

    def dialogue(self, system: str | None, exchanges: Sequence[Exchange], user: str) -> TokenIds:
        """The whole prompt after some exchanges."""
        users = [*(said for said, _ in exchanges), user]
        ids = list(self.start(system, users[0]))
        for (_, completion), following in zip(exchanges, users[1:], strict=True):
            ids += self.keep(completion)
            ids += self.extend(completion, following)
        return tuple(ids)


def make_renderer(tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any] | None = None) -> Renderer:
    """A `ChatRenderer` where the tokenizer has a chat template, else a `PlainRenderer`.

    Args:
        tokenizer: of the Hugging Face kind.
        template_kwargs: variables for the chat template, e.g. `{"enable_thinking": False}`.

    Raises:
        ConfigError: the tokenizer has no end-of-text token, or its template cannot write a dialogue of two turns.
    """
    if tokenizer.chat_template:
        return ChatRenderer(tokenizer, template_kwargs)
    return PlainRenderer(tokenizer)


class PlainRenderer(Renderer):
    """For tokenizers without a chat template: messages are lines, a reply runs to the end-of-text token.

    The first prompt is the tokenizer's own opening (a beginning-of-text id, if any), the system prompt and an empty line
    where there is one, the message and a newline. Later messages stand between newlines.
    """

    extends = True
    appends = True

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._text = TextEncoder(tokenizer)
        self.eos_ids = frozenset({self._text.eos})
        self._opening = self._text.opening()
        self._start = _remembered(self._write_start)
        self._glue = _remembered(self._write_glue)
        self._reply = lru_cache(CACHE)(self._text.reply)

    def start(self, system: str | None, user: str) -> TokenIds:
        """See `Renderer.start`."""
        return self._start(user, system)

    def extend(self, completion: Completion, user: str) -> TokenIds:
        """See `Renderer.extend`; the end of turn is the end-of-text id."""
        glue = self._glue(user)
        return glue if completion.token_ids[-1:] == (self._text.eos,) else (self._text.eos, *glue)

    def encode_reply(self, text: str, end: bool = True) -> TokenIds:
        """See `Renderer.encode_reply`."""
        ids = self._reply(text)
        return (*ids, self._text.eos) if end else ids

    def _write_start(self, user: str, system: str | None) -> TokenIds:
        text = f"{system}\n\n{user}\n" if system else f"{user}\n"
        return self._opening + self._text.said(text, inside=bool(self._opening))

    def _write_glue(self, user: str) -> TokenIds:
        return self._text.said(f"\n{user}\n", inside=True)


class ChatRenderer(Renderer):
    """Writes dialogues with a tokenizer's own chat template, whatever it is.

    The template is run on real messages with placeholders for the replies; the text between two placeholders is glue. At
    construction a few probes tell whether the glue is the same in every place (`appends`) and whether earlier thinking is
    dropped (`extends` is then False, and `keep` leaves the span out). What the template does to the spaces around a reply is
    not done: sampled ids stay.

    Where the template knows no system role (it raises, or leaves the text out), the system prompt is put in front of the
    first user message, an empty line between them.

    Args:
        tokenizer: with a chat template.
        template_kwargs: variables for the template.

    Raises:
        ConfigError: no end-of-text token, or a template that cannot write a dialogue of two turns.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        self._text = TextEncoder(tokenizer)
        self._system_role = True
        self._system_role = self._knows_system()
        self._turn_end = self._find_turn_end()
        self.eos_ids = frozenset({self._text.eos} | ({self._turn_end} if self._turn_end is not None else set()))
        self.appends = self._same_glue_everywhere()
        self._drops = any(self._drops_thinking(*marks) for marks in _THINKING)
        self.extends = self.appends and not self._drops
        self._start = _remembered(self._write_start)
        self._glue = _remembered(self._write_glue)
        self._reply = lru_cache(CACHE)(self._text.reply)
        self._piece = lru_cache(CACHE)(partial(self._text.mixed, inside=True))
        self._kept = lru_cache(CACHE)(self._keep)

    def start(self, system: str | None, user: str) -> TokenIds:
        """See `Renderer.start`."""
        return self._start(user, system)

    def extend(self, completion: Completion, user: str) -> TokenIds:
        """See `Renderer.extend`."""
        return self._after(completion, self._glue(user))

    def encode_reply(self, text: str, end: bool = True) -> TokenIds:
        """See `Renderer.encode_reply`; the end is the template's end of turn, or end of text where it has none."""
        ids = self._reply(text)
        if not end:
            return ids
        return (*ids, self._text.eos if self._turn_end is None else self._turn_end)

    def keep(self, completion: Completion) -> TokenIds:
        """See `Renderer.keep`.

        A token that stands half in the thinking and half in the answer is kept whole. Where the template rewrites a reply
        in any other way than leaving out one span, all its ids are kept.
        """
        ids = completion.token_ids
        return self._kept(ids) if self._drops and ids else ids

    def dialogue(self, system: str | None, exchanges: Sequence[Exchange], user: str) -> TokenIds:
        """See `Renderer.dialogue`."""
        if self.appends:
            return super().dialogue(system, exchanges, user)
        pieces = self._pieces(system, [*(said for said, _ in exchanges), user])
        ids = list(self._text.mixed(pieces[0], inside=False))
        for (_, completion), piece in zip(exchanges, pieces[1:], strict=True):
            ids += self.keep(completion)
            ids += self._after(completion, self._piece(piece))
        return tuple(ids)

    def _after(self, completion: Completion, glue: TokenIds) -> TokenIds:
        ids = completion.token_ids
        if ids and ids[-1] == self._turn_end and self._turn_end in glue:
            return glue[glue.index(self._turn_end) + 1 :]
        return glue

    def _write_start(self, user: str, system: str | None) -> TokenIds:
        return self._text.mixed(self._pieces(system, [user])[0], inside=False)

    def _write_glue(self, user: str) -> TokenIds:
        return self._text.mixed(self._pieces(None, [_ANY, user])[1], inside=True)

    # Pieces: the template's text between replies, as alternating markup and literal parts.

    def _pieces(self, system: str | None, users: Sequence[str]) -> list[tuple[str, ...]]:
        """The text before, between and after the replies to all users but the last; parts at odd indexes are literal."""
        said = [clean(text) for text in users]
        if system is not None:
            system = clean(system)
        stem = _unused_word([system or "", *said])
        literal: list[str] = []

        def hide(text: str) -> str:
            return self._text.reserved.sub(store, text) if self._text.reserved is not None else text

        def store(match: re.Match[str]) -> str:
            literal.append(match.group())
            return f"{stem}L{len(literal) - 1}E"

        hidden = [hide(text) for text in said]
        replies = [f"{stem}R{index}E" for index in range(len(users) - 1)]
        text = self._apply(None if system is None else hide(system), hidden, replies)
        parts = re.split(f"{stem}([LR])([0-9]+)E", text)
        pieces: list[tuple[str, ...]] = []
        piece = [parts[0]]
        for kind, number, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if kind == "L":
                piece += [literal[int(number)], rest]
                continue
            if int(number) != len(pieces):
                raise ConfigError("the chat template does not write every reply once and in order; use another template")
            pieces.append(tuple(piece))
            piece = [rest]
        pieces.append(tuple(piece))
        if len(pieces) != len(users):
            raise ConfigError(
                f"the chat template left out {len(users) - len(pieces)} of {len(users) - 1} replies; use another template"
            )
        return pieces

    def _apply(self, system: str | None, users: Sequence[str], replies: Sequence[str]) -> str:
        messages: list[dict[str, str]] = []
        if system is not None and not self._system_role:
            users = [f"{system}\n\n{users[0]}", *users[1:]]
        elif system is not None:
            messages.append({"role": "system", "content": system})
        for index, text in enumerate(users):
            messages.append({"role": "user", "content": text})
            if index < len(replies):
                messages.append({"role": "assistant", "content": replies[index]})
        try:
            written = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self._kwargs
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigError(f"the chat template refuses a dialogue of {roles}: {error}") from error
        assert isinstance(written, str)
        return written

    # Probes.

    def _knows_system(self) -> bool:
        try:
            return "systemprobe" in self._apply("systemprobe", [_ANY], [])
        except ConfigError:
            self._apply(None, [_ANY], [])  # raises where it is not the system role that is refused
            return False

    def _find_turn_end(self) -> int | None:
        glue = self._text.mixed(self._pieces(None, [_ANY, _ANY])[1], inside=True)
        for index in glue:
            if self._text.is_added(index):
                return index
            if self._text.decode([index]).strip():
                return None
        return None

    def _same_glue_everywhere(self) -> bool:
        one, two = _word(1), _word(2)
        seen = set()
        for system in (None, "system"):
            short = self._pieces(system, [_ANY])
            middle = self._pieces(system, [_ANY, one])
            long = self._pieces(system, [_ANY, one, two])
            # spaces at the border are the model's to sample
            if len({pieces[0][0].rstrip() for pieces in (short, middle, long)}) > 1:
                return False
            seen |= {middle[1][0].replace(one, two).rstrip(), long[1][0].replace(one, two).rstrip(), long[2][0].rstrip()}
        return len(seen) == 1

    def _drops_thinking(self, opening: str, closing: str) -> bool:
        thought = _word(3)
        return thought not in self._apply(None, [_ANY, _ANY], [f"{opening}\n{thought}\n{closing}\n\nanswer"])

    def _keep(self, ids: TokenIds) -> TokenIds:
        text = self._text.decode(ids[:-1] if ids[-1] in self.eos_ids else ids)
        span = _left_out(text, self._past(text))
        if span is None:
            return ids
        left = self._count(ids, span[0], up=True)
        right = self._count(ids, span[1], up=False)
        return ids[:left] + ids[right:] if left < right else ids

    def _past(self, text: str) -> str:
        """How the template shows a reply once it is past."""
        before, after = self._pieces(None, [_ANY, _ANY])
        shown = self._apply(None, [_ANY, _ANY], [text])
        head, tail = before[0], after[0]
        if len(shown) < len(head) + len(tail) or not (shown.startswith(head) and shown.endswith(tail)):
            return text
        return shown[len(head) : len(shown) - len(tail)]

    def _count(self, ids: TokenIds, chars: int, *, up: bool) -> int:
        """How many ids give so many characters; a token across the border counts if `up`."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2 if up else (low + high + 1) // 2
            length = len(self._text.decode(ids[:middle]))
            if up:
                low, high = (low, middle) if length >= chars else (middle + 1, high)
            else:
                low, high = (middle, high) if length <= chars else (low, middle - 1)
        return low


def _remembered(write: Callable[..., TokenIds]) -> Callable[..., TokenIds]:
    """`write(user, ...)`, what it gave kept for short messages."""
    kept = lru_cache(CACHE)(write)

    def look(user: str, *rest: str | None) -> TokenIds:
        return kept(user, *rest) if len(user) <= LONG else write(user, *rest)

    return look


def _left_out(text: str, shown: str) -> tuple[int, int] | None:
    """The span of `text` that `shown` lacks, spaces at the right end aside; None where it is no single span of words."""
    whole, rest = text.rstrip(), shown.rstrip()
    tail = 0
    while tail < min(len(whole), len(rest)) and whole[-1 - tail] == rest[-1 - tail]:
        tail += 1
    head = len(rest) - tail
    if whole[:head] != rest[:head] or not whole[head : len(whole) - tail].strip():
        return None
    return head, len(whole) - tail


def _unused_word(texts: Sequence[str]) -> str:
    """A word that none of the texts holds, for placeholders."""
    return next(word for word in _words() if not any(word in text for text in texts))


def _words() -> Iterator[str]:
    number = 0
    while True:
        yield _word(number)
        number += 1


def _word(number: int) -> str:
    return f"Zq{number}otXk"
