import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.seeding import derive, generator

TEXTS = st.text(st.characters(codec=None), max_size=6) | st.sampled_from(["\x1f", "a\x1fsb", "\x1f\x1f", "i1", "s"])
PART = st.integers() | TEXTS
KEY = st.lists(PART, max_size=5).map(tuple)


def test_values_are_the_same_everywhere_and_for_good():
    # by hand: 8 bytes of BLAKE2b of b"i7\\x1fstrain\\x1fi3", read little end first, halved
    assert derive(7, "train", 3) == 1097507792648268235
    code = "from opentinker.seeding import derive, generator; print(derive(7, 'train', 3), generator(7, 'x').random())"
    env = {"PYTHONHASHSEED": "123"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout.split()
    assert found == ["1097507792648268235", str(generator(7, "x").random())]


@given(KEY, KEY)
def test_different_keys_give_different_seeds(one, two):
    assert (derive(*one) == derive(*two)) == (one == two)
    assert 0 <= derive(*one) < 2**63


@pytest.mark.parametrize(
    ("one", "two"),
    [(("a", "b"), ("a\x1fsb",)), ((1, "2"), ("1", 2)), ((1, 2), (12,)), (("a\x1f", "b"), ("a", "\x1fb")), ((), ("",))],
)
def test_keys_that_look_alike_are_kept_apart(one, two):
    assert derive(*one) != derive(*two)


def test_whole_numbers_of_numpy_count_as_numbers():
    assert derive(np.int64(3), "a") == derive(3, "a") != derive("3", "a")
    assert derive(True) == derive(1)  # equal in Python too


@pytest.mark.parametrize("part", [1.0, None, b"a", (1,)])
def test_other_parts_are_refused(part):
    with pytest.raises(TypeError):
        derive("a", part)


def test_a_generator_belongs_to_its_key():
    one, two = generator(1, "x"), generator(1, "x")
    first = one.random()
    generator(1, "y").random()
    assert two.random() == first
    assert generator(1, "y").random() != first
