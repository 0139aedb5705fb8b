"""A fixed part of the random programs of `./run fuzz`, and proof that a planted error is found."""
import re
import warnings

import numpy as np
import pytest

import grow
import numbers_of_all_kinds
import ways
from case import Case, Difference, check
from harness import both_libraries, same_as_eager
from fuzz import options_of
from shrink import shrink

PROGRAMS = 150  # of each library
BLOCK = 15

# Programs whose difference is known: {(library, seed): what differs}. Each is named in the summary, and must differ: an entry goes
# with the change that mends it.
KNOWN = {}


@both_libraries
@pytest.mark.parametrize("block", range(PROGRAMS // BLOCK))
def test_random_programs_do_what_eager_does(lib, block):
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        known = KNOWN.get((lib.name, seed))
        try:
            check(grow.program(seed, lib.name), **options_of("calls", seed))
        except Difference as difference:
            if known is None:
                raise AssertionError(f"program {seed}: `./run fuzz --lib {lib.name} --seed {seed} --programs 1` makes it small: {difference}") from None
            warnings.warn(f"program {seed} of {lib.name} differs, which is known: {known}")
        else:
            assert known is None, f"program {seed} of {lib.name} no longer differs ({known}): take it out of KNOWN"


@both_libraries
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_numbers_of_all_kinds_do_what_eager_does(lib, first):
    for seed in range(first, first + 30):
        try:
            check(numbers_of_all_kinds.program(seed, lib.name))
        except Difference as difference:
            again = f"`./run fuzz --kind numbers --lib {lib.name} --seed {seed} --programs 1`"
            raise AssertionError(f"{again}: {difference}") from None


@both_libraries
@pytest.mark.parametrize("program", [grow.program, ways.program], ids=["calls", "ways"])
def test_programs_carry_tuples_and_call_torchs_control_flow(program, lib):
    sources = [program(seed, lib.name).source for seed in range(40)]
    assert sum(re.search(r"^ +[uv](\d+), [uv]\d+ = [uv]\d+$", source, re.MULTILINE) is not None for source in sources) >= 3
    controls = sum("lib.cond(" in source or "lib.while_loop(" in source for source in sources)
    assert controls >= 3 if lib.name == "torch" else controls == 0


def test_programs_depend_on_the_seed_alone():
    assert grow.program(11, "numpy") == grow.program(11, "numpy")
    assert grow.program(11, "numpy") != grow.program(12, "numpy")


@both_libraries
def test_a_planted_wrong_rewrite_is_found(lib, monkeypatch):
    from framejit._support import graph_code

    plain = graph_code.operations["sub"]
    monkeypatch.setitem(graph_code.operations, "sub", tuple((lambda step, a, b, f=f: f(step, b, a)) for f in plain))
    found = 0
    for seed in range(80):  # about one in ten shows it
        try:
            check(grow.program(seed, lib.name), backend="eager")
        except Difference:
            found += 1
    assert found >= 3


@pytest.mark.parametrize("ours, eager", [
    ("return x[:2], 1", "return x[:2].copy(), 1"), ("return x, x", "return x, x.copy()"), ("LOG.append(1)", "LOG.append(2)"), ("print(1)", "print(1, 2)"),
    ("raise ValueError(1)", "raise ValueError(2)"), ("return np.zeros((2, 3), order='F')", "return np.zeros((2, 3))"), ("return 1", "return 1.0"),
    ("return [x, -0.0 * x]", "return [x, 0.0 * x]"), ("return np.float32(1)", "return np.ones((), 'f4')"), ("x += 1", "x += 2"), ("\n    raise KeyError", "raise KeyError"),
    ("warnings.warn('a')", "warnings.warn('b')"), ("return np.random.rand(1) * 0", "return np.zeros(1)"), ("return (i for i in [1, 2])", "return (i for i in [1, 3])"),
    ("x.flags.writeable = False", "pass"), ("np.seterr(all='ignore')", "np.seterr(all='warn')"), ("return x[::-1]", "return x[::-1].copy()"),
], ids=str)
@np.errstate()  # the programs change it
def test_the_comparison_sees(ours, eager, monkeypatch):
    """One thing differs between what runs as compiled and what runs as eager."""
    import case

    text = "import warnings\nLOG = []\ndef f(x):\n    np.seterr(all='warn')\n    {}\n"
    call = ["ARGS = [make((4,))]"]
    check(Case("numpy", text.format(ours), call))
    monkeypatch.setattr(case.framejit, "compile", lambda function, **options: pretender)
    namespace = case.namespace_of(Case("numpy", text.format(ours), []), "<other>")

    def pretender(x):
        namespace["LOG"] = spaces[1]["LOG"]
        return namespace["f"](x)

    spaces, plain = [], case.namespace_of
    monkeypatch.setattr(case, "namespace_of", lambda *a: spaces.append(plain(*a)) or spaces[-1])
    with pytest.raises(Difference):
        check(Case("numpy", text.format(eager), call))


def test_a_failing_program_is_made_small(monkeypatch):
    from framejit._support import graph_code

    plain = graph_code.operations["sub"]
    monkeypatch.setitem(graph_code.operations, "sub", tuple((lambda step, a, b, f=f: f(step, b, a)) for f in plain))
    source = """\
LOG = []

def helper(a):
    LOG.append(1)
    return a + 1

def f(x, k):
    y = helper(x)
    for i in range(3):
        if k > 1:
            y = y * 2
        else:
            y = (y - 1) + x
    print("done")
    return [y, x * 2]
"""
    small, found = shrink(Case("numpy", source, ["ARGS = [make((3,)), 5]", "ARGS = [make((3,)), 1]", "ARGS = [make((3,)), 0]"]), {"backend": "eager"})
    assert found[0] == "result" and len(small.calls) == 1
    assert len(small.source.splitlines()) <= 4, small.source


@both_libraries
def test_a_copy_taken_before_a_write_keeps_the_old_elements(lib):
    # The kernel that writes z also makes v, and loaded z again after storing it.
    def f(y, z):
        v = lib.maximum(z, z)
        p = z * y
        p[4] = 1
        z[4] = 1
        v[1:] -= 2
        v[1:] *= 3
        return v, p, 2 + y

    same_as_eager(f, lib.sample((16, 33), dtype="float16"), lib.sample((33,), dtype="int32"))
