"""Texts of which other ones are legal every turn: a space, and the actions a codec reads from it."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opentinker.envs.masks import mask_fault, nothing_legal
from opentinker.envs.text import MAX_LENGTH, TextSpace
from opentinker.errors import InvalidAction, value_text

SHOWN = 200
"""Menus up to this long are spelled out in `describe`; of longer ones it shows `EXAMPLES`."""
EXAMPLES = 20

_SEPARATORS = (", ", "; ", " | ", "\n")


class MenuSpace(TextSpace):
    """Texts whose legal ones cannot be listed once for all, as moves of chess in words.

    A mask of this space is the menu itself: a list or tuple of the texts that are legal now.

    Args:
        max_length: in characters, inclusive.
        seed: of the space's own generator.

    Raises:
        ValueError: a negative length.
    """

    def __init__(self, max_length: int = MAX_LENGTH, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, seed=seed)

    def sample(self, mask: Any = None, probability: NDArray[np.float64] | None = None) -> str:
        """A random text; with a mask one of its texts.

        Raises:
            ValueError: a probability is given, or an empty menu.
        """
        if probability is not None:
            raise ValueError("a MenuSpace takes a mask, no probability")
        if mask is None:
            return super().sample()
        if not len(mask):
            raise ValueError("the menu is empty")
        return str(mask[int(self.np_random.integers(len(mask)))])

    def __repr__(self) -> str:
        return f"MenuSpace({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MenuSpace) and self.max_length == other.max_length

    __hash__ = None  # mutable (its generator), like every Gymnasium space


class MenuActions:
    """The actions of a MenuSpace. Implements `opentinker.envs.actions.Leaf`.

    A text is found exactly, then without white space around it, then, where it has two or more characters, in any case.
    """

    takes_masks = True

    def __init__(self, space: MenuSpace) -> None:
        self._space = space
        self._own = copy.deepcopy(space)  # to be seeded at will

    def describe(self, mask: Any) -> str:
        if mask is None:
            return ""
        menu = self._menu(mask)
        separator = next((mark for mark in _SEPARATORS if not any(mark.strip(" ") in word for word in menu)), _SEPARATORS[0])
        if len(menu) <= SHOWN:
            return f"Answer with one of: {separator.join(menu)}"
        some = separator.join(menu[:: len(menu) // EXAMPLES][:EXAMPLES])
        return f"Answer with one of the {len(menu)} legal actions, some of which are: {some}"

    def form(self, mask: Any) -> str:
        return '"<text>"' if mask is None else f"<{'|'.join(self._menu(mask))}>"

    def parse(self, text: str, mask: Any) -> str:
        menu = self._space if mask is None else self._menu(mask)
        word = text.strip()
        for candidate in (text, word):
            if candidate in menu:
                return candidate
        if isinstance(menu, MenuSpace):
            raise InvalidAction(text, f"no text of at most {menu.max_length} characters")
        folded = [name for name in menu if name.strip().casefold() == word.casefold()]
        if len(folded) == 1 and len(word) > 1:
            return folded[0]
        raise InvalidAction(text, "not legal now" if word else "the reply is empty", menu)

    def render(self, action: Any) -> str:
        if action not in self._space:
            raise ValueError(f"{value_text(action)} is not in {self._space}")
        return str(action)

    def legal(self, mask: Any) -> tuple[str, ...] | None:
        return None if mask is None else self._menu(mask)

    def draw(self, seed: int, mask: Any) -> str:
        if mask is not None:
            menu = self._menu(mask)
            return menu[random.Random(seed).randrange(len(menu))]
        self._own.seed(seed % 2**32)  # Gymnasium's spaces refuse larger seeds
        return self._own.sample()

    def _menu(self, mask: Any) -> tuple[str, ...]:
        if not isinstance(mask, Sequence) or isinstance(mask, (str, bytes)):
            raise mask_fault(self._space, "is no list or tuple of the texts that are legal", mask)
        menu = tuple(mask)
        if not menu:
            raise nothing_legal(self._space, mask)
        if not all(word in self._space for word in menu):
            raise mask_fault(self._space, "holds something that is no text of the space", mask)
        if len(set(menu)) != len(menu):
            raise mask_fault(self._space, "names an action twice", mask)
        return menu
