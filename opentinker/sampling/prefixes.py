"""What a model has read before: keys and values of past prompts, shared where they begin alike, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

Ids = tuple[int, ...]
Cut = Callable[[int, int], Sequence[torch.Tensor]]
"""Gives copies of a row's keys and values for the positions from start to stop, [heads, stop - start, size] each."""


@dataclass(slots=True, eq=False)
class _Node:
    """A stretch of ids that follows its parent's, and what the model made of them."""

    ids: Ids
    tensors: Sequence[torch.Tensor]
    parent: _Node | None
    children: dict[int, _Node] = field(default_factory=dict)
    """By first id."""

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class Piece(NamedTuple):
    """A stretch of a remembered prefix."""

    start: int
    """The position of its first id."""
    length: int
    tensors: Sequence[torch.Tensor]
    """[heads, >= length, size] each; the first `length` positions count."""


class Prefixes:
    """Remembers prefixes as trees, one for each scope: what begins alike is held once.

    What was used longest ago is forgotten first, from the ends of the branches.

    Args:
        limit: bytes to hold at most. With 0 nothing is remembered.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._bytes = 0
        self._roots: dict[Hashable, _Node] = {}
        # a node comes after everything below it: the first is always the end of a branch
        self._order: OrderedDict[_Node, Hashable] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Held now, of keys and values."""
        return self._bytes

    def match(self, scope: Hashable, ids: Ids) -> list[Piece]:
        """The longest remembered prefix of these ids, in pieces from position 0 on; it counts as used."""
        path, known = self._walk(scope, ids)
        self._touch(scope, [node for node, _ in path])
        pieces: list[Piece] = []
        start = 0
        for node, length in path:
            pieces.append(Piece(start, length, node.tensors))
            start += length
        assert start == known
        return pieces

    def store(self, scope: Hashable, ids: Ids, bytes_each: int, cut: Cut) -> None:
        """Remembers these ids; only what is new of them is copied. Nothing happens where they cannot be held at all.

        Args:
            scope: whose keys and values they are.
            ids: from position 0 on.
            bytes_each: what one id takes.
            cut: gives the copies.
        """
        if len(ids) * bytes_each > self.limit:
            return
        path, known = self._walk(scope, ids)
        nodes = [node for node, _ in path]
        if known < len(ids):
            if path and path[-1][1] < len(nodes[-1].ids):
                nodes[-1] = self._split(scope, *path[-1])
            self._touch(scope, nodes)
            self._shrink(self.limit - (len(ids) - known) * bytes_each)
            parent = nodes[-1] if nodes else self._roots.setdefault(scope, _Node((), (), None))
            leaf = _Node(ids[known:], cut(known, len(ids)), parent)
            parent.children[ids[known]] = leaf
            self._bytes += leaf.bytes
            nodes.append(leaf)
        self._touch(scope, nodes)
        self._shrink(self.limit)

    def drop(self, scope: Hashable) -> None:
        """Forgets everything of a scope."""
        if self._roots.pop(scope, None) is not None:
            for node in [node for node, owner in self._order.items() if owner == scope]:
                del self._order[node]
                self._bytes -= node.bytes
                node.parent = None  # nodes that point at each other would wait for the garbage collector

    def clear(self) -> None:
        """Forgets everything."""
        for node in self._order:
            node.parent = None  # as in `drop`
        self._roots.clear()
        self._order.clear()
        self._bytes = 0

    def _walk(self, scope: Hashable, ids: Ids) -> tuple[list[tuple[_Node, int]], int]:
        """The nodes along these ids, each with how many of its own agree, and how many agree in all."""
        path: list[tuple[_Node, int]] = []
        node, known = self._roots.get(scope), 0
        while node is not None and known < len(ids):
            node = node.children.get(ids[known])
            if node is None:
                break
            same = _common(node.ids, ids[known : known + len(node.ids)])
            path.append((node, same))
            known += same
            if same < len(node.ids):
                break
        return path, known

    def _split(self, scope: Hashable, node: _Node, at: int) -> _Node:
        """Cuts a node in two; the upper half, which is new, is given back."""
        assert node.parent is not None
        whole = node.bytes
        upper = _Node(node.ids[:at], [tensor[:, :at].clone() for tensor in node.tensors], node.parent)
        node.parent.children[node.ids[0]] = upper
        # clones, not views: a view would keep the whole in memory when its other half is forgotten
        node.ids, node.tensors, node.parent = node.ids[at:], [tensor[:, at:].clone() for tensor in node.tensors], upper
        upper.children[node.ids[0]] = node
        self._order[upper] = scope
        self._bytes += upper.bytes + node.bytes - whole
        return upper

    def _touch(self, scope: Hashable, path: Sequence[_Node]) -> None:
        for node in reversed(path):
            self._order[node] = scope
            self._order.move_to_end(node)

    def _shrink(self, limit: int) -> None:
        while self._bytes > limit and self._order:
            node, scope = self._order.popitem(last=False)
            assert not node.children and node.parent is not None
            self._bytes -= node.bytes
            del node.parent.children[node.ids[0]]
            if node.parent.parent is None and not node.parent.children:
                del self._roots[scope]


def _common(ours: Ids, theirs: Ids) -> int:
    """How many ids two stretches have in common from the start."""
    if ours == theirs:
        return len(ours)
    size = min(len(ours), len(theirs))
    return bisect_left(range(size), True, key=lambda n: ours[: n + 1] != theirs[: n + 1])
