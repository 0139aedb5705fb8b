"""Warning filters set around array code, warnings given in it, locks held around it."""
import logging
import threading
import warnings

import numpy as np
import pytest

import framejit
from harness import needs_torch, same_as_eager, torch

X = np.array([[0.0, -1.0, 2.0], [3.0, 0.5, 4.0]])


def test_filters_around_array_code_cost_no_break():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = np.log(x) * 2
        return y + 1

    assert same_as_eager(f, X, breaks=(), fallback=True).graphs
    assert warnings.filters  # what was there before is there


def test_conditions_that_are_ignored_are_not_asked_for():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return np.log(x) * 2

    same_as_eager(f, X, breaks=())  # and no replay


@pytest.mark.parametrize("action", ["error", "always", "default", "once", "module"])
def test_other_filters_report_as_eager_does(action):
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter(action, RuntimeWarning)
            return np.log(x) * 2

    same_as_eager(f, X, fallback=True)


def test_a_filter_for_one_message_leaves_the_rest():
    def f(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "divide by zero")
            return np.log(x) * 2

    same_as_eager(f, X, fallback=True)


def test_an_errstate_that_raises_raises_where_warnings_are_ignored():
    def f(x):
        with np.errstate(divide="raise"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.log(x) * 2

    def g(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with np.errstate(divide="raise"):
                return np.log(x) * 2

    same_as_eager(f, X, fallback=True)
    same_as_eager(g, X, fallback=True)


def test_an_outer_errstate_that_raises_raises_where_warnings_are_ignored():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.log(x) * 2

    compiled = framejit.compile(f)
    assert np.isneginf(compiled(X)[0, 0])
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        compiled(X)
    assert np.isneginf(compiled(X)[0, 0])


def test_filters_nest_and_end_with_their_block():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                y = x + 1
            warnings.warn("nobody sees this")
            y = np.sqrt(x)
        return y, np.log(np.abs(y) * 0)

    same_as_eager(f, X, fallback=True)


def test_an_inner_filter_that_reports_comes_before_an_outer_one_that_ignores():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                y = np.log(x)
            z = np.sqrt(x)
        return y, z

    def g(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DeprecationWarning)
            return np.log(x)

    same_as_eager(f, X, fallback=True)
    same_as_eager(g, X, fallback=True)


def test_a_warning_that_is_ignored_is_nothing():
    def f(x):
        y = x * 2
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            warnings.warn("old", DeprecationWarning, stacklevel=2)
            warnings.warn(DeprecationWarning("old"))
        return y + 1

    same_as_eager(f, X, breaks=())


@pytest.mark.parametrize("call", [
    "warnings.warn()", "warnings.warn('m', foo=1)", "warnings.warn('m', stacklevel='2')", "warnings.warn('m', stacklevel=1 << 70)",
    "warnings.warn('m', UserWarning, 1, None, 5, 6, 7)", "warnings.warn('m', message='n')", "warnings.warn('m', int)", "warnings.warn('m', 3)",
    "warnings.warn(Message())", "warnings.warn(Careful('m'))", "warnings.warn(3)", "warnings.warn('m', category=None)", "warnings.warn('m', source=x)",
    "warnings.filterwarnings('ignore', '(')", "warnings.filterwarnings('ignore', module='[')", "warnings.filterwarnings('ignore', lineno='1')",
    "warnings.filterwarnings('ignore', lineno=-1)", "warnings.filterwarnings('ignore', 3)", "warnings.simplefilter('ignore', lineno=None)",
    "warnings.simplefilter('ignore', action='ignore')", "warnings.filterwarnings('ignore', b'm')",
])
def test_arguments_are_looked_at_where_warnings_are_ignored(call):
    class Message:
        def __str__(self):
            raise KeyError("text")

    class Careful(UserWarning):
        def __str__(self):
            raise KeyError("text")

    space = {"warnings": warnings, "Message": Message, "Careful": Careful}
    exec(f"def f(x):\n    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n        y = x * 2\n        {call}\n    return y", space)
    same_as_eager(space["f"], X, fallback=True, compiles=False)


@pytest.mark.parametrize("look", [
    "len(warnings.filters)", "len(getattr(warnings, 'filters'))", "len(vars(warnings)['filters'])", "len(warnings.__dict__['filters'])",
    "warnings.filters[0][0]", "warnings._add_filter('error', None, UserWarning, None, 0, append=False)", "setattr(warnings, 'filters', [])",
    "setattr(warnings, 'showwarning', None)",
])
def test_filters_that_are_looked_at_are_the_blocks_own(look):
    space = {"warnings": warnings}
    exec("def f(x):\n    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n        warnings.simplefilter('ignore', KeyError if x is None else UserWarning)\n"
         f"        y = x * 2\n        seen = {look}\n    return y, seen, len(warnings.filters), warnings.showwarning", space)
    same_as_eager(space["f"], X, fallback=True, compiles=False)


def test_a_warning_of_another_category_is_given():
    def f(x):
        y = x * 2
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            warnings.warn("careful")
        return y + 1

    same_as_eager(f, X)


def test_recorded_warnings_are_recorded():
    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = np.log(x)
            warnings.warn("careful")
        return y, [str(w.message) for w in seen]

    same_as_eager(f, X, fallback=True)


def test_an_error_in_the_block_restores_the_filters():
    def f(x):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = x * 2
                raise KeyError("k")
        except KeyError:
            y = y + 1
        return y

    before = list(warnings.filters)
    same_as_eager(f, X, breaks=())
    assert warnings.filters == before


def test_what_warned_once_warns_again_after_filters_have_changed():
    """Entering and leaving the block makes every module forget what it has warned of."""
    def f(x):
        with warnings.catch_warnings():
            y = x * 2
        return y

    def g():
        warnings.warn("once")

    def count(function):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            g(), g(), function(X), g()
        return len(seen)

    compiled = framejit.compile(f)
    compiled(X)
    assert count(compiled) == count(f) == 2


@needs_torch
def test_a_library_call_inside_the_block_is_left_to_python():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = torch.std(x[:1, 0])  # warns of degrees of freedom
            z = torch.linalg.inv(x[:, :2])
        return y, z + 1

    same_as_eager(f, torch.tensor(X))


LOCK, REENTRANT = threading.Lock(), threading.RLock()


def test_what_a_lock_protects_is_compiled_while_it_is_held():
    class Counter:
        n = 0

    def make(state):
        def f(x):
            with LOCK:
                state.n += 1
                y = x * state.n
            return y + 1

        return f

    ours, theirs = Counter(), Counter()
    compiled, eager = framejit.compile(make(ours)), make(theirs)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), eager(X))
        assert ours.n == theirs.n and not LOCK.locked()


def test_a_counter_behind_a_lock_is_exact_on_many_threads():
    class Counter:
        n = 0

    def f(x):
        with LOCK:
            before = Counter.n
            y = x * 2
            Counter.n = before + 1
        return y

    compiled = framejit.compile(f)
    threads = [threading.Thread(target=lambda: [compiled(X) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter.n == 200


def test_locks_are_released_when_the_block_raises():
    def f(x):
        with REENTRANT:
            with REENTRANT:
                y = x * 2
            if y.shape[0] == 2:
                raise ValueError("two")
        return y

    same_as_eager(f, X)
    done = []
    thread = threading.Thread(target=lambda: done.append(REENTRANT.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert done == [True]


def test_acquire_and_release_in_order():
    def f(x):
        LOCK.acquire()
        try:
            y = x * 2
            held = LOCK.locked()
        finally:
            LOCK.release()
        return y + 1, held, LOCK.locked()

    same_as_eager(f, X, breaks=("Lock",) * 4)


def test_a_logger_below_its_level_costs_nothing():
    log = logging.getLogger("framejit.tests.quiet")
    log.setLevel(logging.WARNING)
    log.isEnabledFor(logging.DEBUG), log.isEnabledFor(logging.INFO)  # remembered by the logger

    def f(x):
        y = x * 2
        log.debug("shape %s", y.shape)
        log.info("mean %s", y.mean())
        if log.isEnabledFor(logging.DEBUG):
            print(y)
        return y + 1

    same_as_eager(f, X, breaks=())


def spread(x):
    y = x[:1].std(0)
    return y + torch.cov(x[:, :1])


def spread_in_another_function(x):
    z = x * 2
    return spread(z) - torch.nn.functional.conv1d(x[None], torch.ones(2, 2, 2), padding="same")[0, 0]


def turned(x):
    y = (x * 2).sum().T + 1
    return y + x[0].T * x[None].T.sum()


@pytest.fixture
def torch_warns_always():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@needs_torch
@pytest.mark.parametrize("given", [
    ("always",), ("default",), ("ignore", "", UserWarning, __name__), ("always", "", UserWarning, __name__),
    ("ignore", "", UserWarning, "no_module_of_this_name")], ids=str)
@pytest.mark.parametrize("f", [spread, spread_in_another_function, turned])
def test_a_library_call_warns_at_its_own_line(f, given, torch_warns_always):
    def places(g):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()
            warnings.filterwarnings(*given)
            for _ in range(4):
                g(torch.ones(2, 2))
        return [(str(w.message), w.filename, w.lineno, w.category) for w in caught]

    compiled = framejit.compile(f)
    eager, ours = places(f), places(compiled)
    assert ours == eager and framejit.explain(compiled).so_far().graphs
