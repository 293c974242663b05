"""Files and folders that somebody asked for: there whole or not at all, and named where they cannot be written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opentinker.errors import OpenTinkerError, WriteFailed
from opentinker.runs.checkpoints import no_room, write_synced

_NUMBER = re.compile(r"(?:\[Errno |os error |code: )(\d+)")
"""In the texts of `shutil.Error`, which holds nothing else, and of safetensors and tokenizers, written in Rust."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tells what the system has against writing as a fault of `path`, as it was named, whatever lay aside meanwhile.

    Raises:
        WriteFailed: no space, no right, no such place.
    """
    try:
        yield
    except OpenTinkerError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None) or int((_NUMBER.search(str(error)) or (0, 0))[1])
        if not (number or isinstance(error, OSError)) or _is_elsewhere(error, path):
            raise
        fault = OSError(number, os.strerror(number)) if number else error
        why = getattr(fault, "strerror", None) or fault
        raise WriteFailed(f"cannot write {path}: {why}{no_room(fault, path.parent)}") from error


def _is_elsewhere(error: Exception, path: Path) -> bool:
    """Whether a fault names a file that has nothing to do with a path, one that was read for instance."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        return False
    named, place = Path(os.path.abspath(name)), Path(os.path.abspath(path)).parent
    return not (named.is_relative_to(place) or place.is_relative_to(named))


def write_whole(path: Path, text: str) -> None:
    """Writes a file aside and puts it in place; what is no plain file, a pipe for instance, is written as it stands.

    Raises:
        WriteFailed: as for `writing`; what was there before is untouched.
    """
    with writing(path):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            write_synced(path, text)
