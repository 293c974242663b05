"""One registry, one shape: a spec is registered under an id, looked up, made. Duplicates raise, near names are suggested."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from opentinker.errors import ConfigError, DuplicateId, UnknownId, error_text

T = TypeVar("T")


class Registry(Generic[T]):
    """Ids of one kind (environments, coordinators, credit functions, scripted players).

    An entry is the object itself or, so that looking at the list imports nothing, the text `"package.module:name"`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T | str] = {}

    def register(self, id: str, entry: T | str) -> None:
        """Adds an entry.

        Raises:
            DuplicateId: the id is taken.
        """
        if id in self._entries:
            raise DuplicateId(f"{self.kind} {id!r} is already registered")
        self._entries[id] = entry

    def get(self, id: str, hint: str = "") -> T:
        """The entry of an id; `module:name` texts are imported on first use.

        Raises:
            UnknownId: no such id, with near names.
        """
        if id not in self._entries:
            raise UnknownId(self.kind, id, self._entries, hint)
        entry = self._entries[id]
        if not isinstance(entry, str):
            return entry
        loaded: T = load_object(entry)
        self._entries[id] = loaded
        return loaded

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))


def load_object(path: str) -> Any:
    """Imports `"package.module:name"`.

    Raises:
        ConfigError: the text has no such form, the module cannot be imported, or it has no such name.
    """
    module_name, _, name = path.partition(":")
    if not all(module_name.split(".")) or not all(name.split(".")):
        raise ConfigError(f"{path!r} is not of the form 'package.module:Name'")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything, a SyntaxError for instance
        raise ConfigError(f"cannot import {module_name!r} of {path!r}: {error_text(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"module {module_name!r} has no {name!r} (asked for as {path!r}){hint}")
        found = getattr(found, part)
    return found
