"""Random draws keyed by what they are for, so that nothing carries generator state from one step to the next."""

from __future__ import annotations

import hashlib
import operator
import random

Key = int | str


def derive(*key: Key) -> int:
    """A seed in [0, 2**63) from a tuple of names and numbers: equal keys give equal seeds, on every machine.

    The key's parts are joined with their types, so `derive(1, "2")` and `derive("1", 2)` differ. BLAKE2b is the mixer.

    Raises:
        TypeError: a part is neither text nor a whole number (NumPy's whole numbers count as such).
    """
    # the common parts inline: this runs several times a decision
    text = "\x1f".join([f"i{part}" if type(part) is int else _part(part) for part in key])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _part(part: Key) -> str:
    # doubling the separator inside a text keeps ("a", "b") apart from one text that spells both
    if isinstance(part, str):
        return f"s{part}" if "\x1f" not in part else "s" + part.replace("\x1f", "\x1f\x1f")
    return f"i{operator.index(part)}"


def generator(*key: Key) -> random.Random:
    """A generator of its own for a key, seeded by `derive`."""
    return random.Random(derive(*key))
