"""The table of break reasons: numbers are unique, and the documentation lists exactly these."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent.parent


def rows():
    text = (ROOT / "segment" / "breaks.def").read_text()
    return re.findall(r"FJ_BREAK\(\s*(\d+),\s*(\w+)", text)


def test_numbers_and_names_are_unique():
    numbers, names = zip(*rows())
    assert len(set(numbers)) == len(numbers) and len(set(names)) == len(names)
