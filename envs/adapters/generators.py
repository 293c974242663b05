"""The interpreter's global generators, lent to libraries that draw from them and given back as they were."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np

_LENT = threading.Lock()


@contextlib.contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Python's and NumPy's global generators depend on the seed alone inside, and are afterwards as before.

    One thread at a time: they are the whole interpreter's.

    Args:
        seed: from 0 to 2**32 - 1, which are NumPy's.
    """
    with _LENT:
        python, numpys = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpys)
