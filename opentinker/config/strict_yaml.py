"""YAML as people mean it: plain data only, no duplicate keys, `1e-3` is a number, a date is text."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError

from opentinker.errors import ConfigError

MAX_NODES = 100_000
"""Values a text may hold, those repeated by aliases counted each time."""

_MERGE = "tag:yaml.org,2002:merge"
_EXPONENT = re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$")


def parse_yaml(text: str, where: str = "text") -> Any:
    """Plain data from YAML.

    Raises:
        ConfigError: with the line of the fault: no YAML, more than one document, a duplicate key, a tag, aliases that repeat
            too much or an alias inside what it names.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{where} is not valid: {_place(error)}{error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number too long for Python
        raise ConfigError(f"{where} is not valid YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} is not valid: it is nested too deeply") from error


def dump_yaml(data: Any) -> str:
    """YAML that `parse_yaml` reads back as equal data."""
    return yaml.dump(data, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


class _StrictLoader(yaml.SafeLoader):
    """Checks nodes while they are composed, before anything is built from them."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # by node: values below it, aliases followed

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise _fault(f"alias *{event.anchor} stands inside what it names", event)
            return node
        if getattr(event, "tag", None) is not None:
            raise _fault(f"tags such as {event.tag} are not allowed; write plain values", event)
        node = super().compose_node(parent, index)
        size = 1 + sum(self._sizes[id(child)] for child in _children(node))
        if size > MAX_NODES:
            raise _fault(f"more than {MAX_NODES} values, those that aliases repeat included", event)
        self._sizes[id(node)] = size
        if isinstance(node, yaml.MappingNode):
            self._refuse_duplicates(node)
            node.value = _merged(node)
        return node

    def _refuse_duplicates(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                key = "<<" if key_node.tag == _MERGE else self.construct_object(key_node)
                if key in seen:
                    raise _fault(f"duplicate key {key!r}", key_node)
                seen.add(key)


def _merged(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """The pairs of a mapping with `<<` followed: its own keys count first, then the sources in their order.

    PyYAML's own way takes the wrong value where a source has a `<<` itself (seen in 6.0.4).
    """
    own = [pair for pair in node.value if pair[0].tag != _MERGE]
    found: dict[Hashable, tuple[yaml.Node, yaml.Node]] = {}
    for key_node, value in node.value:
        if key_node.tag == _MERGE:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise _fault("<< takes a mapping or a list of mappings", key_node)
                for pair in source.value:
                    found.setdefault(_identity(pair[0]), pair)
    taken = {_identity(key_node) for key_node, _ in own}
    return [pair for key, pair in found.items() if key not in taken] + own


def _identity(key_node: yaml.Node) -> Hashable:
    return (key_node.tag, key_node.value) if isinstance(key_node, yaml.ScalarNode) else id(key_node)


def _fault(problem: str, where: Any) -> ComposerError:
    return ComposerError(None, None, problem, where.start_mark)


def _children(node: yaml.Node | None) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return []


class _StrictDumper(yaml.SafeDumper):
    """Quotes what `_StrictLoader` would read as something else; writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        # PyYAML folds these line ends into spaces unless they are escaped
        style = '"' if any(mark in data for mark in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_StrictDumper.add_representer(str, _StrictDumper.represent_text)


def _resolve_as_meant(kind: type[yaml.SafeLoader] | type[yaml.SafeDumper]) -> None:
    # YAML 1.1 reads 1e-3 as text and 2024-01-01 as a date, which JSON and the checks further on do not know.
    kind.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in kind.yaml_implicit_resolvers.items()
    }
    kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


_resolve_as_meant(_StrictLoader)
_resolve_as_meant(_StrictDumper)
