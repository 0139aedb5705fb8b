"""`lazy import` (CPython 3.15): what waits is imported where eager imports it, and compiled code holds no placeholder."""
import importlib
import sys

import numpy as np
import pytest

import framejit
from harness import assert_same, same_as_eager

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports begin with CPython 3.15")

#: name: the statements of a module, and a function whose first call imports `waiting_part`.
PROGRAMS = {
    "module": ("lazy import waiting_part", "def f(x):\n    y = x * 2\n    return y + waiting_part.SHIFT"),
    "name": ("lazy from waiting_part import SHIFT", "def f(x):\n    y = x * 2\n    return y + SHIFT"),
    "function": ("lazy from waiting_part import shifted", "def f(x):\n    return shifted(x * 2) - 1"),
    "helper": ("lazy import waiting_part", "def g(x):\n    return x - waiting_part.SHIFT\ndef f(x):\n    return g(x * 2) + g(x)"),
    "never": ("lazy import waiting_part", "def f(x, use=False):\n    y = x * 2\n    return y + waiting_part.SHIFT if use else y"),
    "attribute": ("import waiting_outer", "def f(x):\n    return x * waiting_outer.waiting_part.SHIFT"),
    "globals": ("lazy import waiting_part", "def f(x):\n    return x * 2, type(globals()['waiting_part']).__name__"),
    "loop": ("lazy import waiting_part", "def f(x):\n    total = 0.0\n    for i in range(len(x)):\n        total += x[i] * waiting_part.SHIFT\n    return total"),
    "failing": ("lazy import waiting_nowhere", "def f(x):\n    try:\n        return x + waiting_nowhere.SHIFT\n    except ImportError as error:\n        return x * 2, str(error)"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_waits_is_imported_by_its_first_use(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waiting_part.py").write_text("SHIFT = 3.5\ndef shifted(x):\n    return x + SHIFT\n")
    (tmp_path / "waiting_outer.py").write_text("lazy import waiting_part\n")
    outcomes = []
    for wrap in ("", "framejit.compile"):
        (tmp_path / f"waiting_user{bool(wrap):d}.py").write_text(
            "import framejit\n" + PROGRAMS[name][0] + "\n" + PROGRAMS[name][1] + "\nf = %s(f)\n" % wrap)
        for module in ("waiting_part", "waiting_outer"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        user = importlib.import_module(f"waiting_user{bool(wrap):d}")
        seen = ["waiting_part" in sys.modules]
        for x in (np.arange(5.0), np.arange(5.0), np.arange(7.0)):
            seen += [user.f(x), "waiting_part" in sys.modules, type(vars(user).get("waiting_part")).__name__]
        outcomes.append(seen)
        sys.modules.pop(user.__name__)
    assert_same(outcomes[1], outcomes[0])


def test_no_break_is_left_once_it_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waiting_leaf.py").write_text("SHIFT = 3.5\n")
    (tmp_path / "waiting_last.py").write_text("lazy import waiting_leaf\ndef f(x):\n    return x * 2 + waiting_leaf.SHIFT\n")
    importlib.invalidate_caches()
    user = importlib.import_module("waiting_last")
    assert "waiting_leaf" not in sys.modules
    assert_same(framejit.compile(user.f)(np.ones(3)), np.full(3, 5.5))
    same_as_eager(user.f, np.ones(3), breaks=())


PACKAGES = {
    # A submodule takes the place of the placeholder of its own name while it is imported.
    "child": ({"__init__": "lazy from pack_{n}.child import child\ndef f(x):\n    return child(x) + 1\n", "child": "def child(x):\n    return x * 2\n"}, "pack_{n}"),
    "has": ({"__init__": "", "child": "S = 2.0\n", "user": "lazy import pack_{n}.child\nimport sys\npack_{n}.__name__\n"
             "def f(x):\n    return (x + 1).sum() * 2, hasattr(pack_{n}, 'child')\n"}, "pack_{n}.user"),
    "get": ({"__init__": "", "other": "S = 2.0\n", "user": "lazy import pack_{n}.other\npack_{n}.__name__\n"
             "def f(x):\n    m = getattr(pack_{n}, 'other', None)\n    return x + 1 if m is None else x * m.S\n"}, "pack_{n}.user"),
    "lacks": ({"__init__": "S = 3.0\n", "user": "import pack_{n}\ndef f(x):\n    return x * pack_{n}.S, hasattr(pack_{n}, 'nothing')\n"}, "pack_{n}.user"),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_submodules_that_wait(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    files, user = PACKAGES[name]
    outcomes = []
    for wrap, n in ((lambda f: f, name + "0"), (framejit.compile, name + "1")):
        (tmp_path / f"pack_{n}").mkdir()
        for file, text in files.items():
            (tmp_path / f"pack_{n}" / f"{file}.py").write_text(text.replace("{n}", n))
        importlib.invalidate_caches()
        f = wrap(importlib.import_module(user.format(n=n)).f)
        outcomes.append([f(x) for x in (np.ones(3), np.ones(3), np.ones(4))])
    assert_same(outcomes[1], outcomes[0])
