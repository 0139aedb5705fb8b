"""`with` and `try` in all forms: whole graphs where the exception stays inside, breaks that keep the rest compiled elsewhere.

PYTEST_DONT_REWRITE: the `assert` in the programs is Python's own.
"""
import contextlib
import sys
import traceback

import numpy as np
import pytest

import framejit
from harness import same_as_eager

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
WHOLE, BROKEN = [], []


def whole(function):
    WHOLE.append(function)
    return function


def broken(function):
    BROKEN.append(function)
    return function


class Manager:
    def __init__(self, swallow=False, log=None):
        self.swallow, self.log = swallow, [] if log is None else log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append("exit" if kind is None else kind.__name__ + str(error))
        return self.swallow


@contextlib.contextmanager
def scaled(log, k):
    log.append("in")
    try:
        yield k
    finally:
        log.append("out")


@contextlib.contextmanager
def swallows(log):
    try:
        yield
    except ValueError as error:
        log.append(str(error))


@contextlib.contextmanager
def translates():
    try:
        yield
    except ValueError as error:
        raise KeyError(str(error)) from error


def fails(x, k):
    if k > 1:
        raise ValueError("k is " + str(k))
    return x * k


class Fault(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


@whole
def a_manager_without_an_exception(x):
    m = Manager()
    with m as n:
        x = x * 2
    return x, m.log, n is m


@whole
def a_manager_that_swallows(x):
    m = Manager(True)
    with m:
        x = x + 1
        fails(x, 2)
        x = x * 100
    return x * 2, m.log


@whole
def a_manager_that_does_not(x):
    m = Manager(False)
    try:
        with m:
            x = x + 1
            fails(x, 2)
    except ValueError as error:
        x = x * len(str(error))
    return x, m.log


@whole
def nested_managers(x):
    log = []
    with Manager(True, log), Manager(False, log), Manager(False, log):
        x = x + 1
        raise ValueError("deep")
    return x, log


class Bad(Manager):
    def __exit__(self, kind, error, traceback):
        raise KeyError("exit")


@whole
def a_manager_whose_exit_raises(x):
    try:
        with Bad():
            raise ValueError("body")
    except KeyError as error:
        return x * 2, str(error), type(error.__context__) is ValueError


@whole
def contextmanager(x):
    log = []
    with scaled(log, 3) as k:
        x = x * k
    return x, log


@whole
def contextmanager_that_swallows(x):
    log = []
    with swallows(log):
        x = x + 1
        fails(x, 3)
    return x, log


@whole
def contextmanager_with_an_exception_that_passes(x):
    log = []
    try:
        with scaled(log, 2):
            fails(x, 5)
    except ValueError as error:
        log.append(str(error))
    return x + 1, log


@whole
def contextmanager_that_translates(x):
    try:
        with translates():
            fails(x, 5)
    except KeyError as error:
        return x + 1, str(error), str(error.__cause__)


@broken
def contextmanager_as_a_decorator(x):
    log = []

    @scaled(log, 2)
    def f(x):
        return x * 2

    return f(x), log


@whole
def nullcontext_and_suppress(x):
    with contextlib.nullcontext(3) as k:
        x = x * k
    with contextlib.suppress(ValueError, KeyError):
        fails(x, 2)
        x = x * 100
    return x


class Closeable:
    closed = False

    def close(self):
        self.closed = True


@whole
def closing(x):
    c = Closeable()
    with contextlib.closing(c) as d:
        x = x + 1
    return x, c.closed, d is c


@whole
def with_and_return_inside(x):
    log = []

    def f(x):
        with Manager(False, log):
            return x * 2

    return f(x), log


@whole
def with_in_a_loop_with_break_and_continue(x):
    log = []
    for i in range(5):
        with Manager(False, log):
            if i == 1:
                continue
            if i == 3:
                break
            x = x * 2
    return x, log


@whole
def try_except_else_finally(x):
    log = []
    for k in (1, 2):
        try:
            x = fails(x, k)
        except ValueError as error:
            log.append(str(error))
        else:
            log.append("else")
        finally:
            log.append("finally")
    return x * 2, log


@whole
def finally_with_break_continue_and_return(x):
    log = []
    for i in range(4):
        try:
            if i == 0:
                continue
            if i == 2:
                break
            x = x * 3
        finally:
            log.append(i)

    def f():
        for i in range(3):
            try:
                return i
            finally:
                log.append("f")

    def g():
        try:
            return 1
        finally:
            return 2

    return x, log, f(), g()


@whole
def the_first_clause_that_matches(x):
    out = []
    for kind in (KeyError, IndexError, LookupError, ValueError):
        try:
            raise kind("k")
        except (IndexError, ValueError) as error:
            out.append(("a", type(error).__name__))
        except KeyError:
            out.append("b")
        except Exception:
            out.append("c")
    return x + len(out), out


@whole
def bare_raise_and_raise_from(x):
    try:
        try:
            fails(x, 2)
        except ValueError:
            raise
    except ValueError as first:
        try:
            raise KeyError("second") from first
        except KeyError as second:
            return x * 2, second.__cause__ is first, second.__suppress_context__, second.__context__ is first


@whole
def context_of_an_exception_raised_in_a_handler(x):
    try:
        try:
            fails(x, 2)
        except ValueError:
            raise KeyError("k")
    except KeyError as error:
        return x + 1, str(error.__context__), error.__cause__, error.__suppress_context__


@whole
def raise_from_none(x):
    try:
        try:
            fails(x, 2)
        except ValueError as error:
            raise KeyError("k") from None
    except KeyError as error:
        return x + 1, error.__cause__ is None, error.__suppress_context__


@whole
def an_exception_of_the_users(x):
    try:
        raise Fault("text", 7)
    except Fault as fault:
        return x * fault.code, str(fault), fault.args, f"{fault}"


@whole
def an_exception_from_a_callee_of_a_callee(x):
    def middle(x):
        y = x * 2
        return fails(y, 3) + y

    try:
        return middle(x)
    except ValueError as error:
        return x - 1, error.args


@whole
def errors_of_builtins(x):
    out = []
    for attempt in (lambda: int("a"), lambda: [1][3], lambda: {}["k"], lambda: 1 // 0, lambda: float("z")):
        try:
            out.append(attempt())
        except (ValueError, LookupError, ZeroDivisionError) as error:
            out.append((type(error).__name__, str(error)))
    return x * len(out), out


@whole
def errors_of_names(x):
    out = []
    try:
        undefined
    except NameError as error:
        out.append(str(error))
    try:
        unbound
    except UnboundLocalError as error:
        out.append(str(error))
    if not out:
        unbound = 1

    def cell():
        return late

    try:
        cell()
    except NameError as error:
        out.append(str(error))
    late = 2
    return x + late, out


@whole
def wrong_numbers_of_values_to_unpack(x):
    out = []
    for items in ((1,), (1, 2, 3)):
        try:
            a, b = items
        except ValueError as error:
            out.append(str(error))
    try:
        a, *b, c = (1,)
    except ValueError as error:
        out.append(str(error))
    return x * 2, out


@whole
def assertions(x):
    assert x.shape == (3, 4)
    try:
        assert x.shape[0] == 4, "shape " + str(x.shape[0])
    except AssertionError as error:
        return x + 1, str(error)


@whole
def the_name_of_the_exception_is_gone_afterwards(x):
    try:
        raise ValueError
    except ValueError as error:
        pass
    try:
        error
    except UnboundLocalError:
        return x * 2
    return x


@whole
def exc_info_in_a_handler(x):
    try:
        raise ValueError("v")
    except ValueError:
        kind, error, _ = sys.exc_info()
    return x + 1, kind is ValueError, str(error)


@whole
def exceptions_in_a_loop(x):
    seen = 0
    for i in range(6):
        try:
            if i % 2:
                raise KeyError(i)
            x = x + i
        except KeyError as error:
            seen += error.args[0]
    return x, seen


@whole
def deleted_closure_variables(x):
    k = 2

    def f():
        return k

    y = x * f()
    del k
    try:
        f()
    except NameError:
        return y + 1


@broken
def a_break_in_try(x):
    try:
        y = x * 2
        print("try")
        z = y + 1
    finally:
        print("finally")
    return z * 2


@broken
def a_break_in_finally_and_else(x):
    try:
        y = x * 2
    except ValueError:
        y = x
    else:
        y = y + 1
        print("else")
        y = y * 2
    finally:
        w = x + 3
        print("finally")
        w = w * 2
    return y + w


@broken
def a_break_in_a_handler(x):
    try:
        y = x * 2
        fails(y, 3)
    except ValueError as error:
        print("handler", error)
        y = x + 1
    return y * 2


@broken
def a_break_in_with(x):
    log = []
    with Manager(False, log) as m:
        y = x * 2
        print("with", m.log)
        y = y + 1
    return y * 2, log


@broken
def a_break_in_with_that_swallows_an_exception_raised_after_it(x):
    log = []
    with Manager(True, log):
        y = x * 2
        print("with")
        y = y + 1
        fails(y, 4)
    return y * 2, log


@broken
def a_break_in_a_contextmanager(x):
    log = []
    with scaled(log, 3) as k:
        y = x * k
        print("inside", log)
        y = y + 1
    return y * 2, log


@broken
def a_break_inside_the_managers_methods(x):
    class Loud:
        def __enter__(self):
            print("enter")
            return 2

        def __exit__(self, *exc):
            print("exit", exc[0])
            return True

    y = x + 1
    with Loud() as k:
        y = y * k
        raise ValueError("v")
    return y * 3


@broken
def a_break_in_a_loop_in_try_in_with(x):
    log = []
    with Manager(False, log):
        for i in range(4):
            try:
                y = x * i
                print("loop", i)
                if i == 2:
                    raise KeyError(i)
                x = x + y
            except KeyError:
                x = x * 0.5
            finally:
                log.append(i)
    return x, log


@broken
def a_break_in_a_comprehension(x):
    y = x * 2
    z = [print("item", i) or y + i for i in range(3)]
    return sum(z) + 1


@broken
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(False, log))
        stack.callback(log.append, "callback")
        k = stack.enter_context(scaled(log, 3))
        y = x * k
    return y + 1, log


@broken
def exception_groups(x):
    out = []
    y = x * 2
    try:
        raise ExceptionGroup("g", [ValueError("a"), KeyError("b"), ExceptionGroup("h", [ValueError("c")])])
    except* ValueError as group:
        out.append([str(e) for e in group.exceptions])
    except* KeyError as group:
        out.append(repr(group))
    return y + 1, out


@broken
def exception_groups_with_a_rest(x):
    y = x * 2
    try:
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
        except* ValueError:
            y = y + 1
            raise KeyError("new")
    except ExceptionGroup as group:
        return y * 2, repr(group)


@broken
def exceptions_that_look_at_their_arguments(x):
    out = []
    for make in (lambda: ExceptionGroup("g", 5), lambda: ExceptionGroup("g", []), lambda: UnicodeDecodeError("a"), lambda: OSError(2, "no"),
                 lambda: BaseExceptionGroup("g", [ValueError(1)])):
        try:
            raise make()
        except BaseException as error:
            out.append((type(error).__name__, str(error)))
    return x + 1, out


@broken
def a_naked_exception_in_except_star(x):
    y = x * 2
    try:
        raise ValueError("v")
    except* ValueError as group:
        y = y + 1
    return y * 2


@broken
def the_traceback_of_a_caught_exception(x):
    y = x * 2
    try:
        fails(y, 3)
    except ValueError as error:
        tb = traceback.extract_tb(error.__traceback__)
        return y + 1, [(f.name, f.lineno, f.line) for f in tb]


@broken
def an_exception_kept_beyond_its_handler(x):
    kept = None
    y = x * 2
    try:
        fails(y, 3)
    except ValueError as error:
        kept = error
    return y + 1, type(kept).__name__, len(traceback.extract_tb(kept.__traceback__))


@broken
def an_exception_that_leaves_the_function(x):
    y = x * 2
    print("before")
    with Manager(False):
        y = y + 1
        fails(y, 9)
    return y


@broken
def an_exception_from_finally_replaces_another(x):
    y = x * 2
    try:
        try:
            raise ValueError("first")
        finally:
            y = y + 1
            raise KeyError("second")
    except KeyError as error:
        return y, repr(error.__context__)


@broken
def an_error_of_the_array_library(x):
    y = x * 2
    try:
        y = y + np.ones((7, 7), np.float32)
    except ValueError as error:
        return y + 1, str(error)


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_whole(function):
    same_as_eager(function, X, breaks=())


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_broken(function):
    same_as_eager(function, X, calls=3)


@pytest.mark.parametrize("function", [a_break_in_try, a_break_in_with, a_break_in_a_contextmanager, a_break_in_a_handler,
                                      a_break_in_finally_and_else], ids=lambda f: f.__name__)
def test_both_sides_of_a_break_are_compiled(function):
    run = same_as_eager(function, X, calls=3)
    assert len(run.graphs) >= 2


def test_tracebacks_of_exceptions_that_leave_compiled_functions():
    def inner(x, k):
        with Manager(False):
            y = x * 2
            return fails(y, k)

    def f(x, k):
        try:
            return inner(x + 1, k)
        except ValueError as error:
            raise KeyError("outer") from error

    def lines(call):
        try:
            call()
        except KeyError as error:
            chain = []
            for e in (error, error.__cause__):
                chain.append([(s.name, s.lineno, s.colno, s.end_colno) for s in traceback.extract_tb(e.__traceback__)
                              if s.name not in ("lines", "<lambda>")])
            return chain, repr(error.__context__), error.__suppress_context__
        raise AssertionError("nothing was raised")

    compiled = framejit.compile(f)
    np.testing.assert_array_equal(compiled(X, 1), f(X, 1))
    for _ in range(3):
        assert lines(lambda: compiled(X, 5)) == lines(lambda: f(X, 5))
