"""Tests import `harness` from this folder and the examples from theirs; every internal failure raises."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
for folder in ("../examples", "fuzz"):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / folder))


@pytest.fixture(autouse=True)
def fresh_caches():
    import framejit

    framejit.reset()
    yield
    framejit.reset()
