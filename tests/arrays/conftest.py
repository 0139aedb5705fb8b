"""These tests use the array boundary alone, through the module built beside the C++ tests; the framejit package is not needed."""
import pytest


@pytest.fixture(autouse=True)
def fresh_caches():
    yield
