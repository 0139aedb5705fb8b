"""Compiled functions travel: pickle, copy, cloudpickle, and with them multiprocessing and dask."""
import copy
import functools
import multiprocessing
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import framejit
import pickled
from pickled import FUNCTIONS

X = np.linspace(-2, 2, 12).reshape(3, 4)

WAYS = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    **{f"pickle, protocol {protocol}": functools.partial(lambda protocol, thing: pickle.loads(pickle.dumps(thing, protocol)), protocol)
       for protocol in range(pickle.HIGHEST_PROTOCOL)},
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)  # exp, arctan and sums are within a bound of NumPy's


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_computes_what_the_original_does(name, way):
    function, expected = FUNCTIONS[name]
    assert_same(WAYS[way](function)(X), expected(X))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "object" not in name and name != "partial"])
def test_a_pickled_function_is_the_same_function_compiled_with_the_same_options(name):
    function, _ = FUNCTIONS[name]
    again = WAYS["pickle"](function)
    assert type(again) is type(function)
    parts = [getattr(each, "__func__", each) for each in (function, again)]
    assert framejit._core.options_of(parts[0]) == framejit._core.options_of(parts[1])
    assert parts[0].__wrapped__.__code__ is parts[1].__wrapped__.__code__


def test_what_is_found_by_name_stays_itself():
    for function in (pickled.decorated, pickled.halved, pickled.slope, pickled.Scaled.still):
        assert WAYS["pickle"](function) is function


def test_a_back_end_of_the_user_s_goes_along():
    again = WAYS["pickle"](framejit.compile(pickled.plain, backend=pickled.negated))
    assert framejit._core.backend_of(again) is pickled.negated
    np.testing.assert_array_equal(again(X), -pickled.plain(X))


def test_the_copy_of_an_object_is_of_its_class_and_uncompiled():
    original = pickled.Scaled(4)
    compiled = framejit.compile(original)
    for way in WAYS.values():
        again = way(compiled)
        assert type(again) is pickled.Scaled and again.by == 4 and again is not original


def test_an_object_that_refers_to_itself_is_copied_once():
    child = pickled.Scaled(2)
    parent = framejit.compile(pickled.Scaled(3, parent=child))
    child.parent = parent
    for way in (WAYS["pickle"], copy.deepcopy):
        again = way(parent)
        assert again.parent.parent is again and again.parent.by == 2


def test_a_class_s_own_copy_is_asked():
    class Own:
        def __call__(self, x):
            return x

        def __deepcopy__(self, memo):
            return "a copy of " + type(self).__name__

    compiled = framejit.compile(Own())
    assert copy.deepcopy(compiled) == "a copy of Own" and type(copy.copy(compiled)) is Own


def test_a_method_s_copy_is_bound_to_the_object_s_copy():
    method = pickled.Scaled(3).step
    again = copy.deepcopy(method)
    assert again.__self__ is not method.__self__ and again.__self__.by == 3 and again.__func__ is method.__func__


def test_what_has_no_name_can_t_be_pickled_and_the_error_names_it():
    def local(x):
        return x

    for function, named in ((lambda x: x + 1, "<lambda>"), (local, "local")):
        with pytest.raises((pickle.PicklingError, AttributeError)) as plainly:
            pickle.dumps(function)
        with pytest.raises(type(plainly.value)) as compiled:
            pickle.dumps(framejit.compile(function))
        assert named in str(compiled.value) and str(compiled.value) == str(plainly.value)
        assert copy.deepcopy(framejit.compile(function))(1) == function(1)  # copies are of the same function, as of any


def test_cloudpickle_takes_those_too():
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    by = 3.0
    again = pickle.loads(cloudpickle.dumps(framejit.compile(lambda x: x * by, fullgraph=True)))
    assert isinstance(again, framejit.CompiledFunction)
    np.testing.assert_array_equal(again(X), X * 3)


MAIN_PROGRAM = """
import pickle, subprocess, sys
cloudpickle = __import__(sys.argv[1], fromlist=["dumps"])
import framejit
import numpy as np

factor = 3.0

@framejit.compile(threads=1)
def scaled(x, depth=2):
    return x * factor if depth == 0 else scaled(x, depth - 1) * 2

def plain(x):
    return (x * factor).sum()

gradient = framejit.grad(plain)

class Model:
    def __init__(self):
        self.w = np.full(3, 5.0)

    @framejit.compile
    def __call__(self, x):
        return self.w * x

@framejit.custom_derivative
def cube(x):
    return x ** 3

@cube.vjp
def cube_vjp(x):
    return cube(x), lambda c: (c * 4 * x ** 2,)

x = np.arange(3.0)
gradient(x), framejit.grad(lambda x: cube(x).sum())(x), scaled(x)  # what was made for them does not travel
things = [scaled, framejit.vmap(scaled), scaled.using(fullgraph=True), gradient, Model(), Model().__call__, framejit.grad(cube), framejit.value_and_grad(plain)]
child = "import pickle, sys, numpy as np; print([getattr(y := f(np.float64(2.0) if i == 6 else np.arange(3.0)), 'tolist', lambda: y)() for i, f in enumerate(pickle.load(sys.stdin.buffer))])"
found = subprocess.run([sys.executable, "-c", child], input=cloudpickle.dumps(things), capture_output=True)
sys.stderr.write(found.stderr.decode())
print(found.stdout.decode().strip())
print([getattr(y := f(np.float64(2.0) if i == 6 else x), "tolist", lambda: y)() for i, f in enumerate(things)])
assert pickle.loads(pickle.dumps(scaled)) is scaled
"""


@pytest.mark.parametrize("pickler", ["cloudpickle", "joblib.externals.cloudpickle"])
def test_functions_of_the_main_program_are_written_down(pickler, tmp_path):
    pytest.importorskip(pickler, reason=f"{pickler} is not installed")
    program = tmp_path / "program.py"
    program.write_text(MAIN_PROGRAM)
    run = subprocess.run([sys.executable, program, pickler], capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    ours, theirs = run.stdout.splitlines()
    assert ours == theirs and "12.0" in ours


# ---- modules -----------------------------------------------------------------------------------------------------


def test_a_compiled_module_s_copies_are_the_module_uncompiled():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import io

    def saved(module):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    compiled = framejit.compile(module)
    x = torch.ones(2, 4)
    for way in [*WAYS.values(), saved]:
        again = way(compiled)
        assert type(again) is torch.nn.Sequential
        assert torch.equal(again(x), module(x)) and list(again.state_dict()) == list(module.state_dict())
    outer = torch.nn.ModuleDict({"inner": compiled, "again": compiled})
    for way in (WAYS["pickle"], copy.deepcopy, saved):
        again = way(outer)
        assert type(again["inner"]) is torch.nn.Sequential and again["inner"] is again["again"]


# ---- other processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_pools_of_processes_compile_what_they_are_given(method):
    pickled.decorated(X)  # a fork after compiling, with threads of ours at work
    names = [name for name in FUNCTIONS if "vmap" not in name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, that a process with threads forks
        with multiprocessing.get_context(method).Pool(2) as pool:
            jobs = [pool.apply_async(pickled.work, ((name, FUNCTIONS[name][0]), X)) for name in names for _ in range(2)]
            done = [job.get(timeout=200) for job in jobs]
    for name, result, process, (graphs, errors) in done:
        assert_same(result, FUNCTIONS[name][1](X))
        assert errors == 0
    assert any(graphs > 0 for _, _, _, (graphs, _) in done)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_dask_s_workers(scheduler):
    array = pytest.importorskip("dask.array", reason="dask is not installed")
    import dask

    x = np.random.default_rng(0).standard_normal((40, 30))
    blocks = array.from_array(x, chunks=(20, 15))
    factor = 2.5
    functions = {name: FUNCTIONS[name] for name in ("decorated", "compiled", "grad", "using")}
    functions["lambda"] = (framejit.compile(lambda x: x * factor), lambda x: x * 2.5)
    results = dask.compute(*[blocks.map_blocks(function, dtype=x.dtype) for function, _ in functions.values()], scheduler=scheduler, num_workers=2)
    for result, (_, expected) in zip(results, functions.values()):
        assert_same(result, expected(x))
    assert framejit.cache_info()["internal_errors"] == 0
