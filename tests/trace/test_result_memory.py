"""Large results live in memory that is used again; everything else about them is as in arrays the library made itself."""
import copy
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import framejit
from harness import NumpyLibrary, TorchLibrary, both_libraries, needs_torch, torch

SHAPE = (512, 384)  # 768 KiB of float32: large enough to come from blocks of framejit's


def plus_one(x):
    return x + 1


def compiled_result(lib, shape=SHAPE, value=1.0):
    """A large result of a compiled function, all `value`."""
    f = framejit.compile(plus_one)
    x = lib.array(np.full(shape, value - 1, np.float32))
    result = f(x)
    assert framejit.cache_info()["kernels_launched"] > 0
    return result


def address(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


@both_libraries
def test_memory_nobody_holds_is_used_again(lib):
    f, x = framejit.compile(plus_one), lib.sample(SHAPE)
    first = f(x)
    place = address(first)
    del first
    assert address(f(x)) == place


@both_libraries
def test_memory_somebody_holds_is_not(lib):
    f, x = framejit.compile(plus_one), lib.sample(SHAPE)
    results = [f(x) for _ in range(4)]
    view = results[0][1:]
    expected = np.asarray(results[0]).copy()
    places = {address(r) for r in results}
    assert len(places) == 4
    del results
    gc.collect()
    more = [f(x * 0 + 5) for _ in range(6)]  # three blocks are free, the one under the view is not
    base = address(view) - SHAPE[1] * 4
    assert base in places and base not in {address(r) for r in more}
    np.testing.assert_array_equal(np.asarray(view), expected[1:])


@both_libraries
def test_memory_is_aligned_for_the_kernels(lib):
    assert address(compiled_result(lib)) % 64 == 0
    assert address(compiled_result(lib, (2048, 1024))) % 64 == 0


@both_libraries
def test_copies_and_pickles(lib):
    result = compiled_result(lib)
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert type(other) is type(result) and other.dtype == result.dtype and tuple(other.shape) == SHAPE
        assert (np.asarray(other) == 1).all()


@both_libraries
def test_results_are_references_like_any_other(lib):
    result, own = compiled_result(lib), lib.sample((3,))
    assert sys.getrefcount(result) == sys.getrefcount(own)


def test_an_array_looks_like_numpys_own():
    for shape, order in ((SHAPE, "C"), (SHAPE, "F"), ((SHAPE[0] * SHAPE[1],), "C"), ((1, *SHAPE, 1), "C")):
        x = np.zeros(shape, np.float32, order=order)
        result, own = framejit.compile(plus_one)(x), x + 1
        assert {name: result.flags[name] for name in ("C", "F", "O", "W", "A", "X")} == {name: own.flags[name] for name in ("C", "F", "O", "W", "A", "X")}
        assert result.base is None and result.strides == own.strides and result.nbytes == own.nbytes
        assert sys.getsizeof(result) == sys.getsizeof(own)
        result.flags.writeable = False
        result.flags.writeable = True
        result[...] = 3
        assert result.sum() == 3 * result.size


@pytest.mark.parametrize("rows", [1, 300, 511, 513, 700, 5000])
def test_an_array_can_be_resized(rows):
    result = compiled_result(NumpyLibrary)
    result.resize((rows, SHAPE[1]), refcheck=False)
    kept = min(rows, SHAPE[0])
    assert result.flags.owndata and (result[:kept] == 1).all() and (result[kept:] == 0).all()
    assert np.resize(compiled_result(NumpyLibrary), (600, 384)).sum() == 600 * 384


def test_tracemalloc_sees_an_array_as_numpys_own():
    f, x = framejit.compile(plus_one), np.zeros(SHAPE, np.float32)
    f(x)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = f(x)
        during = tracemalloc.get_traced_memory()[0]
        del result
        after = tracemalloc.get_traced_memory()[0]
        domain = np.lib.tracemalloc_domain
        traced = [f(x), x + 1]
        blocks = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, domain)]).traces
        assert sorted(t.size for t in blocks) == [r.nbytes for r in traced]
    finally:
        tracemalloc.stop()
    assert x.nbytes <= during - before < x.nbytes + 20000 and after - before < 20000


def test_a_memory_handler_of_the_users_stays_in_charge():
    core = pytest.importorskip("numpy._core.multiarray", reason="this NumPy names its core otherwise")
    assert core.get_handler_name(np.empty(3)) == "default_allocator"
    assert core.get_handler_name(compiled_result(NumpyLibrary)) == "framejit"
    assert core.get_handler_name(np.empty(SHAPE)) == "default_allocator"  # nothing was left installed


@needs_torch
def test_a_tensor_looks_like_torchs_own():
    for x in (torch.zeros(SHAPE), torch.zeros(SHAPE).t(), torch.zeros(4, 64, 32, 32).to(memory_format=torch.channels_last)):
        with torch.no_grad():
            result, own = framejit.compile(plus_one)(x), x + 1
        storage, expected = result.untyped_storage(), own.untyped_storage()
        assert storage.nbytes() == expected.nbytes() and storage.resizable() and storage.device == expected.device
        assert not storage.is_shared() and type(storage) is type(expected)
        assert result._version == own._version == 0 and result._base is None and result.is_leaf and not result.requires_grad
        assert result.stride() == own.stride() and result.storage_offset() == 0
        assert torch._C._dispatch_keys(result) == torch._C._dispatch_keys(own)
        result.mul_(2).add_(1)
        assert result._version == 2 and bool((result == 3).all())


@needs_torch
def test_a_tensor_can_be_resized_and_its_storage_too():
    for size in (10, 300_000, 5_000_000):
        result = compiled_result(TorchLibrary)
        before = result.numel()
        result.resize_(size)
        kept = min(size, before)
        assert bool((result.flatten()[:kept] == 1).all())
        result.fill_(2)
        assert result.sum().item() == 2 * size
    result = compiled_result(TorchLibrary)
    result.untyped_storage().resize_(0)
    assert result.untyped_storage().nbytes() == 0
    result.untyped_storage().resize_(SHAPE[0] * SHAPE[1] * 4)
    result.fill_(7)
    assert bool((result == 7).all())


@needs_torch
def test_a_tensor_can_be_saved_shared_and_set():
    result = compiled_result(TorchLibrary)
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    assert torch.load(file).equal(result)
    shared = result.share_memory_()
    assert shared is result and result.is_shared() and bool((result == 1).all())
    result.fill_(4)
    other = compiled_result(TorchLibrary, value=9.0)
    result.data = other
    assert bool((result == 9).all()) and result.data_ptr() == other.data_ptr()
    del other
    compiled_result(TorchLibrary, value=3.0)
    assert bool((result == 9).all())


@needs_torch
def test_numpy_over_a_tensor_keeps_its_memory():
    result = compiled_result(TorchLibrary)
    array = result.numpy()
    del result
    gc.collect()
    compiled_result(TorchLibrary, value=5.0)
    assert (array == 1).all()
    from_array = torch.from_numpy(compiled_result(NumpyLibrary, value=6.0))
    compiled_result(NumpyLibrary, value=8.0)
    assert bool((from_array == 6).all())


@needs_torch
def test_whoever_takes_the_storage_keeps_the_memory():
    takers = {
        "set_": lambda t: torch.empty(0).set_(t),
        "set_ with the storage": lambda t: torch.empty(0).set_(t.untyped_storage()),
        "dlpack": torch.utils.dlpack.from_dlpack,
        "dlpack to NumPy": lambda t: np.from_dlpack(t),
        "a buffer": lambda t: np.asarray(memoryview(t.numpy())),
        "a lazy clone": torch._lazy_clone,
        "detach": lambda t: t.detach(),
    }
    for how, take in takers.items():
        taken = take(compiled_result(TorchLibrary))
        compiled_result(TorchLibrary, value=8.0)
        assert (np.asarray(taken) == 1).all(), how


@needs_torch
def test_a_result_works_as_a_leaf_of_autograd():
    weight = compiled_result(TorchLibrary).requires_grad_()
    (weight * 3).sum().backward()
    assert weight.is_leaf and bool((weight.grad == 3).all())


@both_libraries
def test_results_are_made_and_dropped_on_several_threads(lib):
    f, wrong = framejit.compile(plus_one), []

    def work(value):
        x = lib.array(np.full(SHAPE, value, np.float32))
        held = []
        for step in range(30):
            held.append(f(x))
            if step % 3 == 2:
                if not all((np.asarray(h) == value + 1).all() for h in held):
                    wrong.append(value)
                del held[:2]

    threads = [threading.Thread(target=work, args=(10.0 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@both_libraries
def test_reset_gives_back_what_nobody_holds(lib):
    kept = compiled_result(lib, value=2.0)
    for _ in range(3):
        compiled_result(lib, (2048, 2048))
    framejit.reset()
    assert (np.asarray(kept) == 2).all()
    again = compiled_result(lib, value=3.0)
    assert (np.asarray(kept) == 2).all() and (np.asarray(again) == 3).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@both_libraries
def test_a_forked_child_has_results_of_its_own(lib):
    result = compiled_result(lib, value=2.0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            good = (np.asarray(result) == 2).all()
            np.asarray(result)[...] = 7  # not torch's own threads, which do not survive a fork
            other = framejit.compile(plus_one)(result)
            status = 0 if good and (np.asarray(other) == 8).all() else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert (np.asarray(result) == 2).all()


def test_out_of_memory_is_the_librarys_own_error():
    program = """
import resource, sys
import numpy as np, framejit
f = framejit.compile(lambda x: np.broadcast_to(x, (1 << 28,)) + 1.0)
g = framejit.compile(lambda x: x * 2)
x = np.ones(1)
g(np.ones(100_000))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
for _ in range(2):
    try:
        f(x)
    except MemoryError as error:
        print("MemoryError", "Unable to allocate 2.00 GiB" in str(error))
print(g(np.ones(100_000)).sum())
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["MemoryError True", "MemoryError True", "200000.0"], done.stdout


PEAK = """
import resource, sys
import numpy as np
import framejit
f = (lambda x: np.maximum(np.sqrt(x * x + 1) - 0.5, 0) * 2)
if sys.argv[1] == "compiled":
    f = framejit.compile(f)
f(np.ones((64, 64), np.float32))
x = np.ones((int(sys.argv[2]), 1024), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
y = f(x)
y = f(x)
for rows in range(3):
    y = f(x[rows * 100:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_peak_is_no_higher_than_eagers():
    rows = 32768  # 128 MiB
    def peak(how):
        done = subprocess.run([sys.executable, "-P", "-c", PEAK, how, str(rows)], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
        assert done.returncode == 0, done.stderr
        return int(done.stdout)
    assert peak("compiled") <= peak("eager")


def test_a_view_of_an_argument_is_read_only_as_that_is():
    def f(x):
        return np.split(x, 1)[0], x[1:], np.broadcast_to(x, (2, 4))

    compiled = framejit.compile(f)
    read_only, writeable = np.arange(4.0), np.arange(4.0)
    read_only.flags.writeable = False
    for x in (read_only, writeable, read_only):
        assert [view.flags.writeable for view in compiled(x)] == [view.flags.writeable for view in f(x)]


@both_libraries
def test_strides_of_axes_of_one_element(lib):
    """No guard compares them, so they are not constants of a piece."""
    def f(x):
        return x + 1, x.strides if isinstance(x, np.ndarray) else x.stride()

    compiled = framejit.compile(f)
    for x in (lib.array(np.ones((1, 3))), lib.array(np.ones((6, 3)))[::6]):
        assert compiled(x)[1] == f(x)[1]


UFUNCS = [lambda x: x + x, lambda x: x + 1, np.sqrt, lambda x: x * x * 2, lambda x: x > 0, lambda x: x + x.astype("f4"), lambda x: x + x[:1],
          lambda x: np.clip(x, 0, 1), lambda x: x.astype("i4") + 1.5, lambda x: x + np.int64(1), lambda x: x.astype("f4") + np.float64(1), lambda x: np.where(x > 0, x, 1), lambda x: np.divmod(x, 2)[0]]


@pytest.mark.parametrize("function", UFUNCS, ids=range(len(UFUNCS)))
def test_axes_of_one_element_lie_where_numpy_puts_them(function):
    for shape in [(1, 2, 2), (2, 1, 2), (2, 2, 1), (1, 2, 1, 2), (1, 3), (3, 1), (1, 1), (1, 0, 2), (1, 100, 100)]:
        compiled = framejit.compile(function)
        whole = np.ones([2 * size for size in shape])
        for x in (np.ones(shape), np.asfortranarray(np.ones(shape)), np.asfortranarray(whole)[tuple(slice(0, 2 * size, 2) for size in shape)],
                  whole[tuple(slice(size) for size in shape)]):
            for _ in range(2):
                assert compiled(x).strides == function(x).strides
