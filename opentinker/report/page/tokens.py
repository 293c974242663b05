"""Token ids as bytes, so that a page can show any text, byte for byte, from the ids alone."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opentinker.report.runs import RunRecord

log = logging.getLogger(__name__)

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """A `tokenizer.json`: what an id stands for. Needs the library `tokenizers` only, no model."""

    def __init__(self, text: str) -> None:
        from tokenizers import Tokenizer  # type: ignore[import-untyped]

        data = json.loads(text)
        self._tokenizer: Any = Tokenizer.from_str(text)
        self._special = {entry["id"]: entry for entry in data.get("added_tokens") or ()}
        decoder = json.dumps(data.get("decoder") or {}, ensure_ascii=False)
        self._byte_level = '"ByteLevel"' in decoder
        self._spaced = "\u2581" in decoder or '"Metaspace"' in decoder

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes that this id adds to a text; None where the vocabulary lacks it."""
        entry = self._special.get(id)
        if entry is not None:
            return _utf8(str(entry["content"]))
        token = self._tokenizer.id_to_token(id)
        if token is None:
            return None
        if self._byte_level and all(mark in _BYTES for mark in token):
            return bytes(_BYTES[mark] for mark in token)
        match = _BYTE.fullmatch(token)
        if match:
            return bytes.fromhex(match[1])
        if self._spaced:
            return _utf8(token.replace("\u2581", " "))
        return _utf8(token)

    def table(self, ids: Iterable[int]) -> dict[str, Any]:
        """JSON: `ids`, `texts` (one character a byte) and `special` (positions of ids that are marks and no text)."""
        known = [(id, found) for id in sorted(ids) if (found := self.bytes_of(id)) is not None]
        marks = [place for place, (id, _) in enumerate(known) if self._special.get(id, {}).get("special")]
        return {"ids": [id for id, _ in known], "texts": [text.decode("latin-1") for _, text in known], "special": marks}


def vocabularies(run: RunRecord, policies: Iterable[str]) -> dict[str, Vocabulary]:
    """The vocabulary of each policy whose tokenizer is found: in the newest checkpoint that has it, or beside its model."""
    by_text: dict[str, Vocabulary] = {}
    found = {}
    for policy in policies:
        for file in _places(run, policy):
            try:
                text = file.read_text(encoding="utf-8")
                if text not in by_text:
                    by_text[text] = Vocabulary(text)
            except Exception as error:  # tokenizers raises bare Exception for a file it cannot read
                log.warning("no tokenizer can be read from %s (%s)", file, error)
                continue
            found[policy] = by_text[text]
            break
    return found


def _places(run: RunRecord, policy: str) -> Iterable[Path]:
    if not re.fullmatch(r"[^/\0]+", policy) or policy in (".", ".."):  # a name from a file, never a path
        return
    for step in sorted((run.path / "checkpoints").glob("step-*"), reverse=True):
        if (file := step / "policies" / policy / "weights" / "tokenizer.json").is_file():
            yield file
    settings = run.config.get("policies") if isinstance(run.config, dict) else None
    model = (settings.get(policy) or {}).get("model") if isinstance(settings, dict) else None
    if isinstance(model, str) and (file := Path(model) / "tokenizer.json").is_file():
        yield file


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _alphabet() -> dict[str, int]:
    # the printable stand-ins of byte-level tokenizers: bytes that are printable stand for themselves
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(rest)}


_BYTES = _alphabet()
