"""Tensors are read, made and viewed as torch itself would; modes are seen."""
import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

arrays = pytest.importorskip("framejit_array_tests", reason="run by ctest, which builds the module")

NAMES = {"bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32",
         "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
LAYOUTS = {
    "row-major": lambda: torch.zeros(2, 3, 4),
    "transposed": lambda: torch.zeros(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "sliced": lambda: torch.zeros(4, 6, 8)[1::2, ::3, 2:6],
    "expanded": lambda: torch.zeros(3, 1).expand(2, 3, 5),
    "scalar": lambda: torch.zeros(()),
    "empty": lambda: torch.zeros(0, 3),
    "five dimensions": lambda: torch.zeros(2, 3, 4, 5, 6),
    "six dimensions": lambda: torch.zeros(2, 3, 4, 5, 6, 7),
    "seven dimensions, permuted": lambda: torch.zeros(1, 2, 3, 4, 5, 6, 7).permute(6, 4, 2, 0, 1, 3, 5),
    "from NumPy": lambda: torch.from_numpy(np.zeros((3, 4), np.float32)),
    "detached": lambda: torch.nn.Parameter(torch.zeros(3)).detach(),
    "data": lambda: torch.nn.Parameter(torch.zeros(3)).data,
    "shrunk in place": lambda: torch.zeros(2, 3, 4, 5, 6, 7).squeeze_().resize_(4, 5),
    "grown in place": lambda: torch.zeros(4).resize_(1, 1, 1, 2, 2, 2, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_is_described_as_it_is(layout):
    tensor = LAYOUTS[layout]()
    info = arrays.describe(tensor)
    assert info["unsupported"] == "" and info["library"] == "torch" and info["dtype"] == "f32"
    assert info["shape"] == tuple(tensor.shape) and info["strides"] == tensor.stride() and info["offset"] == tensor.storage_offset()
    assert info["data"] == tensor.data_ptr() == arrays.data_pointer(tensor)
    assert info["storage"] == tensor.untyped_storage()._cdata
    read = arrays.read(tensor)
    assert all(read[key] == info[key] for key in ("dtype", "shape", "strides", "data", "requires_grad"))


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_is_known_both_ways(name):
    dtype = getattr(torch, NAMES[name])
    assert arrays.describe(torch.zeros(2).to(dtype))["dtype"] == name
    assert arrays.dtype_from_object(dtype) == name and arrays.dtype_object("torch", name) is dtype


def gradient_cases():
    leaf = torch.zeros(3, requires_grad=True)
    parameter = torch.nn.Parameter(torch.zeros(3))
    frozen = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    thawed = torch.zeros(3).requires_grad_()
    unfrozen = torch.nn.Parameter(torch.zeros(3)).requires_grad_(False)
    result, view = leaf * 2, (leaf * 2)[1:]
    with torch.no_grad():
        view_without = leaf[1:]
        result_without = leaf * 2
    base = torch.zeros(4)
    view_of_written = base[1:]
    base.mul_(torch.ones(4, requires_grad=True))  # the view needs a gradient because its base does now
    with_gradient = torch.zeros(3, requires_grad=True)
    (with_gradient * 2).sum().backward()
    retained = leaf * 3
    retained.retain_grad()
    hooked = torch.zeros(3, requires_grad=True)
    hooked.register_hook(lambda gradient: gradient)
    detached_in_place = (leaf * 2).detach_()
    return [torch.zeros(3), leaf, parameter, frozen, thawed, unfrozen, result, view, view_without, result_without, base, view_of_written,
            with_gradient, with_gradient.grad, retained, hooked, detached_in_place, leaf.detach(), leaf.data, leaf.view(3, 1), torch.zeros(3)[1:],
            torch.zeros(2, requires_grad=True).unbind()[0], parameter.expand(2, 3), torch.nn.Parameter(torch.zeros(3)[1:])]


@pytest.mark.parametrize("case", range(len(gradient_cases())))
def test_gradients_wanted_are_seen(case):
    tensor = gradient_cases()[case]
    for _ in range(2):
        info = arrays.describe(tensor)
        assert (info["requires_grad"], info["is_leaf"]) == (tensor.requires_grad, tensor.is_leaf)
        assert arrays.read(tensor)["requires_grad"] == tensor.requires_grad and info["parameter"] == isinstance(tensor, torch.nn.Parameter)
    if tensor.is_leaf and tensor._base is None:
        for flag in (True, False, True):
            assert arrays.read(tensor.requires_grad_(flag))["requires_grad"] is flag


def test_a_changed_tensor_reads_as_changed():
    tensor = torch.zeros(4)
    tensor.data = torch.ones(2, 3, dtype=torch.float64)
    read = arrays.read(tensor)
    assert (read["dtype"], read["shape"], read["data"]) == ("f64", (2, 3), tensor.data_ptr())
    module = torch.nn.Linear(2, 3)
    assert arrays.read(module.weight)["dtype"] == "f32"
    assert arrays.read(module.half().weight)["dtype"] == "f16"


@pytest.mark.parametrize("make, reason", [
    (lambda: torch.zeros(2, device="meta"), "device meta"),
    (lambda: torch.eye(3).to_sparse(), "sparse"),
    (lambda: torch.eye(3).to_sparse_csr(), "sparse"),
    (lambda: torch.zeros(2, dtype=torch.complex64).conj(), "conjugated"),
    (lambda: torch.zeros(2, dtype=torch.complex64).conj().imag, "negated"),
    (lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), "qint8"),
    (lambda: torch.zeros(2, dtype=torch.float8_e4m3fn), "float8_e4m3fn"),
    (lambda: torch.zeros(2, dtype=torch.complex32), "complex32"),
    (lambda: torch.zeros(2, 2).to_mkldnn(), "mkldnn"),
    (lambda: torch._efficientzerotensor((2,)), ""),
])
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_compiled_is_named(make, reason):
    try:
        tensor = make()
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"this torch has no such tensors: {error}")
    assert arrays.array_library(tensor) == "torch" and arrays.read(tensor) is None
    unsupported = arrays.describe(tensor)["unsupported"]
    assert unsupported and reason in unsupported


def test_unaligned_memory_is_named():
    tensors = [torch.frombuffer(bytearray(24), dtype=torch.float64, offset=offset, count=2) for offset in (0, 1)]
    unaligned = [tensor for tensor in tensors if tensor.data_ptr() % 8]
    assert unaligned and all("aligned" in arrays.describe(tensor)["unsupported"] and not arrays.read(tensor)["aligned"] for tensor in unaligned)


def test_wrappers_are_not_read_and_inference_tensors_are():
    seen = []
    torch.func.vmap(lambda x: seen.append((arrays.array_library(x), arrays.read(x))) or x)(torch.zeros(2, 3))
    torch.func.grad(lambda x: seen.append((arrays.array_library(x), arrays.read(x))) or x.sum())(torch.zeros(3))
    with torch.inference_mode():
        made_there = torch.zeros(3)
    assert all(read is None for _, read in seen) and len(seen) == 2
    assert arrays.read(made_there)["shape"] == (3,) and arrays.describe(made_there)["unsupported"] == ""


def test_subclasses_are_not_arrays():
    class Mine(torch.Tensor):
        pass

    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(2)
    for value in (torch.zeros(2).as_subclass(Mine), torch.nn.Buffer(torch.zeros(2)).as_subclass(Mine), fake, torch.float32, torch, torch.Tensor):
        assert arrays.array_library(value) is None
    assert arrays.array_library(torch.nn.Parameter(torch.zeros(2))) == "torch"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape, strides", [((3, 4), (4, 1)), ((3, 4), (1, 3)), ((), ()), ((0, 3), (3, 1)), ((2, 3, 4), (1, 8, 2))])
def test_new_tensors_are_torchs_own(name, shape, strides):
    tensor = arrays.allocate("torch", name, shape, strides)
    like = torch.empty_strided(shape, strides, dtype=getattr(torch, NAMES[name]))
    for read in (lambda t: type(t), lambda t: t.dtype, lambda t: t.device, lambda t: t.shape, lambda t: t.stride(), lambda t: t.storage_offset(),
                 lambda t: t.untyped_storage().nbytes(), lambda t: t.untyped_storage().resizable(), lambda t: t._base, lambda t: t._version,
                 lambda t: t.is_leaf, lambda t: t.requires_grad, lambda t: t.is_inference()):
        assert read(tensor) == read(like)
    assert arrays.read(tensor)["shape"] == shape
    tensor.zero_()
    tensor.resize_(7, 7).zero_()


def test_an_allocation_that_cannot_be_had_raises_torchs_error():
    with pytest.raises(RuntimeError):
        arrays.allocate("torch", "f64", (1 << 50,), (1,))


@pytest.mark.parametrize("make", [lambda x: x[1:, ::2], lambda x: x.t(), lambda x: x[2], lambda x: x.unsqueeze(1), lambda x: x[:0],
                                  lambda x: x.expand(2, 4, 6), lambda x: x.diagonal()])
@pytest.mark.parametrize("base", ["whole", "view", "parameter"])
def test_views_are_those_that_torch_makes(make, base):
    source = {"whole": torch.arange(24.0).view(4, 6).clone(), "view": torch.arange(48.0).view(8, 6)[2:6], "parameter": torch.nn.Parameter(torch.randn(4, 6))}[base]
    with torch.no_grad():
        expected = make(source)
        view = arrays.view_of(source, "f32", expected.shape, expected.stride(), expected.storage_offset() - source.storage_offset())
    assert type(view) is torch.Tensor and view._base is expected._base and view._is_view() and view.data_ptr() == expected.data_ptr()
    assert torch.equal(view, expected) and view.stride() == expected.stride() and view.storage_offset() == expected.storage_offset()
    assert (view.requires_grad, view.is_leaf, view._version) == (expected.requires_grad, expected.is_leaf, expected._version)
    with torch.no_grad():
        view.add_(1) if base != "parameter" and view._version == 0 and expected.numel() == view.numel() and 0 not in view.stride() else None
    assert view._version == source._version  # one counter


def test_a_view_of_another_dtype_is_refused():
    with pytest.raises(RuntimeError):
        arrays.view_of(torch.zeros(4), "i32", (4,), (1,), 0)


def test_versions_move_as_in_place_operations_move_them():
    tensor = torch.zeros(3)
    view = tensor[1:]
    assert arrays.bump_versions([tensor]) and tensor._version == view._version == 1
    assert arrays.bump_versions([view, view]) and tensor._version == 3
    weight = torch.ones(3, requires_grad=True)
    result = (weight * tensor).sum()
    arrays.bump_versions([tensor])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_cross_views_share_memory():
    tensor, array = torch.zeros(3), np.zeros(3)
    seen = arrays.cross_view(tensor, "numpy")
    assert type(seen) is np.ndarray and seen.ctypes.data == tensor.data_ptr() and not seen.flags.owndata
    back = arrays.cross_view(array, "torch")
    assert type(back) is torch.Tensor and back.data_ptr() == array.ctypes.data
    with pytest.raises(RuntimeError):
        arrays.cross_view(torch.zeros(3, requires_grad=True), "numpy")
    with pytest.raises(TypeError):
        arrays.cross_view(np.zeros(3, object), "torch")


def test_grad_mode_is_the_threads():
    assert arrays.torch_grad_enabled()
    seen = []
    with torch.no_grad():
        assert not arrays.torch_grad_enabled()
        with torch.enable_grad():
            assert arrays.torch_grad_enabled()
        thread = threading.Thread(target=lambda: seen.append((arrays.torch_grad_enabled(), arrays.torch_modes())))
        thread.start()
        thread.join()
    with torch.inference_mode():
        assert not arrays.torch_grad_enabled()
    assert arrays.torch_grad_enabled() and seen == [(True, 0)]


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Default:
    """A setting of the process for the length of a block."""

    def __init__(self, get, set, value):
        self.get, self.set, self.value = get, set, value

    def __enter__(self):
        self.before = self.get()
        self.set(self.value)

    def __exit__(self, *_):
        self.set(self.before)


MODES = {
    "inference": (lambda: torch.inference_mode(), False),
    "autocast bfloat16": (lambda: torch.autocast("cpu", dtype=torch.bfloat16), False),
    "autocast float16": (lambda: torch.autocast("cpu", dtype=torch.float16), False),
    "function mode": (FunctionMode, True),
    "default device": (lambda: torch.device("meta"), True),
    "dispatch mode": (DispatchMode, True),
    "forward mode": (lambda: torch.autograd.forward_ad.dual_level(), True),
    "default float64": (lambda: Default(torch.get_default_dtype, torch.set_default_dtype, torch.float64), False),
    "default float16": (lambda: Default(torch.get_default_dtype, torch.set_default_dtype, torch.float16), False),
    "deterministic": (lambda: Default(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True), False),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_changes_the_word_while_it_is_on(mode):
    make, refused = MODES[mode]
    assert arrays.torch_modes() == 0 and arrays.torch_modes_refusal() == ""
    with make():
        word = arrays.torch_modes()
        assert word != 0 and bool(arrays.torch_modes_refusal()) == refused
        with torch.no_grad():
            assert arrays.torch_modes() == word
        with torch.inference_mode():
            assert mode == "inference" or arrays.torch_modes() != word
    assert arrays.torch_modes() == 0 and arrays.torch_modes_refusal() == ""


def test_modes_differ_from_each_other():
    words = []
    for make, _ in MODES.values():
        with make():
            words.append(arrays.torch_modes())
    with FunctionMode(), FunctionMode():
        words.append(arrays.torch_modes())
    kinds = set(MODES) - {"default device"}  # a function mode like any other
    assert len(set(words)) == len(kinds) + 1


def test_functorch_levels_are_modes():
    words = []
    torch.func.vmap(lambda x: words.append((arrays.torch_modes(), arrays.torch_modes_refusal())) or x)(torch.zeros(2))
    torch.func.grad(lambda x: words.append((arrays.torch_modes(), arrays.torch_modes_refusal())) or x)(torch.tensor(1.0))
    torch.func.jvp(lambda x: words.append((arrays.torch_modes(), arrays.torch_modes_refusal())) or x, (torch.tensor(1.0),), (torch.tensor(1.0),))
    torch.func.vmap(torch.func.vmap(lambda x: words.append((arrays.torch_modes(), arrays.torch_modes_refusal())) or x))(torch.zeros(2, 2))
    assert len(words) == 4 and all(word and refusal for word, refusal in words)
    assert arrays.torch_modes() == 0


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.inference_mode()", "torch.autocast('cpu')", "torch.device('meta')"])
def test_a_first_look_inside_a_mode_is_right(mode):
    program = f"""
import torch, framejit_array_tests as arrays
with {mode}:
    grad = torch.is_grad_enabled()
    assert arrays.torch_grad_enabled() == grad
    inside = arrays.torch_modes()
    assert (inside != 0) == ("no_grad" not in "{mode}")
    assert torch.is_grad_enabled() == grad
assert arrays.torch_modes() == 0 and arrays.torch_grad_enabled()
tensor = torch.zeros(2, 3)
assert arrays.read(tensor)["shape"] == (2, 3) and arrays.torch_unsupported_reason() == ""
with {mode}:
    assert arrays.torch_modes() == inside and arrays.torch_grad_enabled() == grad
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_imported_later_is_found():
    program = """
import framejit_array_tests as arrays
assert not arrays.has_torch() and arrays.array_library(1) is None
import torch
assert arrays.has_torch() and arrays.array_library(torch.zeros(1)) == "torch" and arrays.read(torch.zeros(2, 3))["strides"] == (3, 1)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_is_leaked():
    tensor, parameter = torch.zeros(3, 4), torch.nn.Parameter(torch.zeros(3))
    for _ in range(3):
        before = sys.getallocatedblocks()
        for _ in range(200):
            arrays.describe(tensor), arrays.read(parameter), arrays.allocate("torch", "f32", (2, 3), (1, 2)), arrays.view_of(tensor, "f32", (3,), (1,), 0)
            arrays.cross_view(tensor, "numpy"), arrays.bump_versions([tensor]), arrays.torch_modes(), arrays.torch_grad_enabled()
            arrays.describe(torch.zeros(1, device="meta")), arrays.dtype_from_object(torch.float32), arrays.dtype_object("torch", "f32")
        growth = sys.getallocatedblocks() - before
    assert growth < 50
