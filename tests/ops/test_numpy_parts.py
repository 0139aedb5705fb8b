"""What an ndarray shows of itself: its memory as another dtype, `.flags`, `.flat`; and scalars that repeat sequences."""
import warnings

import numpy as np
import pytest

import framejit
from harness import Outcome, compare, same_as_eager

C = np.arange(12.0).reshape(3, 4) * (1 - 2j)
X = np.arange(12.0).reshape(3, 4) - 5


def kept(x):
    part = x.real
    x += 1
    return part


def written_base(x):
    y = x * 2
    part = y.imag
    y[0] = y[1]
    return part, part + 1, y


def bits_follow_a_write(x):
    bits = x.view(np.uint8)
    x[1] = 3
    return bits, bits[0, 3]


VIEWS = {
    "real part of an argument": (lambda x: x.real, C),
    "imaginary part, further": (lambda x: x.imag.T[1:] + x.real.T[1:], C),
    "parts of parts": (lambda x: x[::2, ::-1].imag[:, 1], C),
    "parts of complex64": (lambda x: (x.real, x.imag), C.astype("c8")),
    "part of what is written after": (kept, C),
    "part of what is made and written": (written_base, C),
    "bits": (lambda x: x.view(np.int64), X),
    "bits of a transposed array": (lambda x: x.T.view("i8")[1], X),
    "bytes": (bits_follow_a_write, X.astype("f4")),
    "bytes of a part": (lambda x: x[1:, 2:].view("u4"), X),
    "a real array's real part": (lambda x: x.real, X),
    "no other dtype": (lambda x: x.view(x.dtype), X),
    "a view without a dtype": (lambda x: x.view(), X),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_as_another_dtype(name):
    function, x = VIEWS[name]
    same_as_eager(function, x, breaks=(), compiles=False)


def test_view_as_another_dtype_shares_memory():
    x = C.copy()
    part = framejit.compile(lambda x: (x + 0).imag)(x)
    assert part.strides == (64, 16) and part.base.dtype == complex
    bits = framejit.compile(lambda x: x.view(np.uint64))(X)
    assert np.shares_memory(bits, X)


WRITES = {
    "into a part": (lambda x: (x.imag.__setitem__(0, 5.0), x)[1], C),
    "into bits": (lambda x: (x.view("i8").__setitem__(0, 0), x)[1], X),
    "of a part": (lambda x: setattr(x, "real", 3.0), C),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_through_a_view_as_another_dtype(name):
    function, x = WRITES[name]
    same_as_eager(function, x, compiles=False)


REFUSED = {
    "larger elements": lambda x: x.view(complex),
    "bytes of a column": lambda x: x[:, 1].view("u1"),
    "a bool of bytes": lambda x: (x > 0).view("i1").view(bool),
    "a class": lambda x: type(x.view(np.matrix)),
    "a read-only zero": lambda x: x.imag + x,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_views_are_numpys(name):
    same_as_eager(REFUSED[name], X, compiles=False)


FLAGS = {
    "of rows": lambda x: (x.flags.c_contiguous, x.flags.f_contiguous, x.flags.contiguous, x.flags.forc, x.flags.fnc),
    "by name": lambda x: (x.flags["C"], x.flags["F_CONTIGUOUS"], x.flags["FORC"]),
    "of a copy": lambda x: x.copy().T.flags.c_contiguous,
    "in a branch": lambda x: x + 1 if x.flags.c_contiguous else x - 1,
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("x", [X, X.T, X[:, 1:], X[:1], X[:, :1], np.ones(()), np.ones((0, 3)), X[::-1]], ids=lambda x: str(x.strides))
def test_flags(name, x):
    same_as_eager(FLAGS[name], x, breaks=(), compiles=False)


def test_flags_that_are_handed_out_are_the_arrays():
    def f(x):
        flags = x.flags
        y = x * 2
        return flags, y

    def g(x):
        y = x * 2
        y.flags.writeable = False
        return y

    flags, y = framejit.compile(f)(X)
    assert type(flags) is type(X.flags) and flags.c_contiguous
    assert not framejit.compile(g)(X).flags.writeable
    same_as_eager(lambda x: (x.flags.writeable, x.flags.owndata, type(x.flags).__name__, x + 1), X)


def set_flat(x):
    x.flat[2] = 5.0
    x.flat[-3:] = 1
    return x * 2


def fill_flat(x):
    y = x + 1
    y.flat = 2.5
    return y, x


FLAT = {
    "items": lambda x: (x.flat[3], x.flat[-1] + 1, x.flat[1:7:2]),
    "items of a transposed array": lambda x: x.T.flat[2:5] * 2,
    "written": set_flat,
    "filled": fill_flat,
}


@pytest.mark.parametrize("name", FLAT)
def test_flat(name):
    same_as_eager(FLAT[name], X, breaks=())


def iterated_twice(x):
    flat = (x + 1).flat
    return [a * 2 for a in flat], list(flat)


OTHER_FLAT = {
    "iterated": lambda x: sum(a for a in (x + 1).flat),
    "iterated twice": iterated_twice,
    "handed out": lambda x: list((x * 2).flat),
    "an array": lambda x: np.asarray((x * 2).T.flat),
    "its place": lambda x: (lambda flat: (next(flat), flat.index, flat.coords, x + 1))(x.flat),
    "written by an array": lambda x: (x.flat.__setitem__(slice(0, 5), np.array([1.0, 2.0])), x)[1],
    "gaps": lambda x: (x.T.flat.__setitem__(1, 9.0), x)[1],
    "nothing there": lambda x: x.flat[99],
    "with an index": lambda x: list(np.ndenumerate(x + 1)),
}


@pytest.mark.parametrize("name", OTHER_FLAT)
def test_what_else_is_done_with_flat_is_numpys(name):
    function = OTHER_FLAT[name]
    compiled = framejit.compile(function)
    for _ in range(3):
        compare(Outcome(compiled, (X.copy(),), {}), Outcome(function, (X.copy(),), {}))


@pytest.mark.parametrize("exponent", [0.5, 2, 2.0, 1, 1.0, -1, -1.0, 3, 0, 0.0, 1.5])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_power_of_complex_numbers_by_a_number_is_that_of_the_operator(dtype, exponent):
    """x ** 0.5 is the square root, whose real part is 0 where that of the power is a bit off."""
    x = np.array([-3.25, -1.0, 2 + 1j, 0.0, -0.5j], dtype)
    same_as_eager(lambda x: x ** exponent, x, compiles=False, exact=True)
    compiled = framejit.compile(lambda x: x.__ipow__(exponent))
    compare(Outcome(compiled, (x.copy(),), {}), Outcome(lambda x: x.__ipow__(exponent), (x.copy(),), {}))


@pytest.mark.parametrize("sequence", [[1, 2], (1, 2)])
@pytest.mark.parametrize("function", [lambda s, x: s * x.sum(), lambda s, x: x.sum() * s, lambda s, x: s * x[1], lambda s, x: s + x.sum(),
                                      lambda s, x: s * x[:2], lambda s, x: s * np.array(2.0)])
def test_a_sequence_times_a_scalar_is_no_product(function, sequence):
    """NumPy's float scalars refuse to repeat it, its integers repeat it; an array of rank 0 multiplies."""
    compiled = framejit.compile(function)
    for dtype in ("f4", "f8", "i8", "i4"):
        compare(Outcome(compiled, (sequence, np.arange(3, dtype=dtype)), {}), Outcome(function, (sequence, np.arange(3, dtype=dtype)), {}))


def test_eigenvalues_become_complex():
    function = lambda x: np.linalg.eigvals(x) * 2
    compiled = framejit.compile(function)
    turned = np.array([[0.0, 1.0], [-1.0, 0.0]])
    for x in (np.eye(2), turned, np.eye(2) * 3, turned * 2, np.eye(2)):
        compare(Outcome(compiled, (x,), {}), Outcome(function, (x,), {}))


def test_mean_of_a_scalar_is_not_what_it_is_written_into():
    def function(x, mask):
        out = np.zeros(())
        found = np.mean(x, out=out, where=mask)
        return found is out, found, out

    compiled = framejit.compile(function)
    for x in (np.float64(1.5), 2.5, np.array(3.5)):
        compare(Outcome(compiled, (x, np.array(True)), {}), Outcome(function, (x, np.array(True)), {}))


def test_mean_of_nothing_warns_once():
    of_arrays = (lambda x, m: np.mean(x, where=m), lambda x, m: x.var(axis=0, where=m), lambda x, m: x.mean(axis=1, where=m))
    of_scalars = (lambda x, m: np.mean(x, where=m), lambda x, m: np.std(x, where=m), lambda x, m: np.var([x, x], where=m))
    for function, x in [(function, X) for function in of_arrays] + [(function, np.float64(1.5)) for function in of_scalars]:
        compiled, all_false = framejit.compile(function), np.asarray(x > 99)
        for mask in (~all_false, all_false, ~all_false):
            for _ in range(2):
                compare(Outcome(compiled, (x, mask), {}), Outcome(function, (x, mask), {}))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            compiled(x, all_false)
        assert sum("empty slice" in str(w.message) or "Degrees" in str(w.message) for w in seen) == 1


def every_second(x):
    x[0:8:2] = x[0:4]
    return x * 2


def backwards(x):
    x[1:9:2] = x[4:0:-1]
    return x * 2


def copied_over(x):
    np.copyto(x[2:6], x[0:8:2])
    return x * 2


@pytest.mark.parametrize("function", [every_second, backwards, copied_over])
def test_elements_stored_over_those_still_to_be_read(function):
    # NumPy stores one axis in order, without a copy, where both strides have one sign: left to it.
    for dtype in (float, "i4"):
        same_as_eager(function, np.arange(10).astype(dtype), breaks=None)
    same_as_eager(function, np.arange(30.0)[::3], breaks=None)
