"""What `./run suites` itself does: it sees a difference, survives the end of a worker, and says what known.toml lists in vain."""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import known  # noqa: E402
import suites  # noqa: E402
import units  # noqa: E402


def kinds(first, second, *arguments):
    calls = pytest.importorskip("calls", reason="torch is not installed in this environment")
    return [kind for kind, _ in calls.differences(calls.call(first, arguments, {}), calls.call(second, arguments, {}))]


@pytest.mark.parametrize("first, second, expected", [
    (lambda x: x * 2, lambda x: x + x, []),
    (lambda x: x * 2, lambda x: x * 2.01, ["values", "gradient values"]),
    (lambda x: x.detach(), lambda x: x * 1, ["requires_grad", "leaf", "aliasing", "gradient"]),
    (lambda x: x[0] + 0, lambda x: x[:1] + 0, ["shape", "strides"]),
    (lambda x: x.t() + 0, lambda x: x.t().contiguous() + 0, ["strides"]),
    (lambda x: x.item(), lambda x: x.nothing, ["error"]),
    (lambda x: [x], lambda x: (x,), ["type"]),
])
def test_what_differs_is_seen(first, second, expected):
    torch = pytest.importorskip("torch")
    assert sorted(kinds(first, second, torch.ones(3, 4, requires_grad=True))) == sorted(expected)


def test_a_row_explains_the_kind_it_names_and_is_told_when_it_explains_nothing():
    rows = [known.Row("a no-op", "ops:add*", kind="aliasing"), known.Row("nobody", "ops:mul", kind="strides")]
    difference = {"kind": "aliasing", "place": "function float32", "text": ""}
    assert known.explained(rows, "ops:addmm", difference) is rows[0]
    assert known.explained(rows, "ops:mul", difference) is None
    assert list(known.stale(rows, ["ops:mul", "ops:addmm"], {"ops:mul", "ops:addmm"})) == [rows[1]]
    assert list(known.stale(rows, ["ops:mul", "ops:addmm"], {"ops:addmm"})) == []


def test_every_row_of_the_file_has_a_reason_and_names_units():
    names = units.names()
    rows = known.rows()
    assert [row.unit for row in rows if not row.reason] == []
    suites_here = {name.split(":")[0] for name in names}
    assert [row.unit for row in rows if row.unit.split(":")[0] in suites_here and not any(known.fnmatch.fnmatchcase(name, row.unit) for name in names)] == []


def test_every_unit_is_in_one_shard():
    names = [f"ops:{i}" for i in range(50)]
    assert sorted(name for number in range(1, 8) for name in names if suites.in_shard(name, (number, 7))) == sorted(names)


@pytest.fixture
def own_suite(tmp_path, monkeypatch):
    """A suite of two units, of which the first ends its worker in one of three places."""
    (tmp_path / "own.py").write_text('''
import os
def names():
    return ["dies", "lives"]
def check(name, run):
    for place in ("a", "b", "c"):
        if run.start(place):
            run.calls += 1
            if name == "dies" and place == "b":
                os.abort()
            if place == "c":
                run.differs("values", "1, not 2")
''')
    (tmp_path / "sitecustomize.py").write_text("import units_of_the_test")
    (tmp_path / "units_of_the_test.py").write_text(f'''
import sys
sys.path.append({str(pathlib.Path(suites.__file__).parent)!r})
import units
units.SUITES = {{"own": ("own", [])}}
''')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + ":" + ":".join(p for p in sys.path if p))


def test_a_worker_that_ends_is_a_difference_of_the_place_and_the_rest_is_run(own_suite):
    records = []
    suites.Workers(["own:dies", "own:lives"], float("inf"), records.append).run()
    assert [(record["unit"], record["calls"], [(d["kind"], d["place"]) for d in record["differences"]]) for record in records] == [
        ("own:dies", 2, [("values", "c"), ("crash", "b")]), ("own:lives", 3, [("values", "c")])]


def test_no_unit_starts_after_the_time(own_suite):
    records = []
    suites.Workers(["own:lives"], 0, records.append).run()
    assert records == []


def test_numpy_s_tests_are_found_by_class():
    assert "numpy:_core/tests/test_umath.py::TestDivision" in units.names()
    assert np.__version__ and not units.missing("numpy")
