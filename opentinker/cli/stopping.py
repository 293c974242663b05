"""What a command says when a signal ends it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def told_when_stopped() -> Iterator[None]:
    """A Ctrl-C that ends what is inside is told in one line on stderr. Also a decorator, below `@app.command()`."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(RuntimeError, OSError, ValueError):  # it came while stderr was being written, or closed
            sys.stderr.write("\nstopped\n")
            sys.stderr.flush()
        raise
