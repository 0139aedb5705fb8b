"""Programs on tensors of a CUDA device, against eager torch.

On a true device where torch has one (`./run test --gpu`), else in a process of its own on the fake one (test_cuda_tensors.py). What only the fake
can tell, the calls of the driver, is asked of it where it is there.
"""
import copy
import os
import pathlib
import random
import re
import sys
import warnings

import numpy as np
import pytest

fake = None
if os.environ.get("FRAMEJIT_FAKE_DEVICE"):
    import fake_device

    fake = fake_device.FakeDevice()  # before torch is imported

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import framejit  # noqa: E402
from harness import assert_same, same_as_eager  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parent.parent / "ops"))
import torch_cases as cases  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device here")
needs_fake = pytest.mark.skipif(fake is None, reason="asks what the driver was told")
needs_true = pytest.mark.skipif(fake is not None, reason="eager of the fake device follows the host's rules")
needs_two = pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="there is one CUDA device")
half_types = [torch.float16, torch.bfloat16]


def sample(*shape, dtype=torch.float32, seed=0, device="cuda:0"):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype).to(device)
    return torch.randint(-9, 9, shape, generator=generator).to(dtype).to(device)


@pytest.fixture(autouse=True)
def record():
    if fake:
        fake.calls()
    yield
    if fake:
        fake.fail()
        fake.use_stream(0)
        fake.out_of_memory(False)
        fake.capture(False)


def launches():
    return [call for call in fake.calls() if call.startswith("launch")]


# ---- what kernels compute

@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *half_types, torch.int64, torch.int32])
def test_chains(dtype):
    def f(x, y):
        z = x * 2 + y
        return z, torch.maximum(z, -x), (z > x)

    same_as_eager(f, sample(5, 7, dtype=dtype), sample(5, 7, dtype=dtype, seed=1), breaks=())


def test_functions_of_one_element():
    def f(x):
        return torch.exp(-x.abs()).sqrt(), torch.tanh(x), F.gelu(x), F.relu(x), torch.sigmoid(x), x.clamp(-1, 1)

    same_as_eager(f, sample(33), breaks=())


@pytest.mark.parametrize("dtype", [torch.float32, *half_types])
def test_sums_with_alpha(dtype):
    def f(x, y):
        z = x * 2
        z.add_(y, alpha=0.1)
        return z, torch.sub(x, y, alpha=3), torch.add(y, 0.1, alpha=0.3), 0.1 - x, x + 0.3

    same_as_eager(f, sample(5, 7, dtype=dtype), sample(5, 7, dtype=dtype, seed=1), breaks=())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.bool])
@pytest.mark.parametrize("count", [4096, 77])
def test_small_integers(dtype, count):
    """Sums, whose signs a compiler forgot to extend where sixteen elements are loaded at once."""
    def f(x, y, z):
        s = x + y if x.dtype != torch.bool else z + y
        return (s, F.relu(s), s < 3, s.float(), s >> 1, s.abs() if s.dtype != torch.uint8 else s, s // 3, torch.maximum(s, y), s * y, s.to(torch.int32),
                s.clamp(2, 5), s == y, torch.where(s > 1, s, y))

    x, y, z = (torch.randint(-16 if dtype != torch.uint8 else 0, 16, (count,), generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    same_as_eager(f, x.to(dtype).cuda(), y.to(torch.int8 if dtype == torch.bool else dtype).cuda(), z.to(torch.int8).cuda(), breaks=())


zeros = [-0.0, 0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 0.0, -0.0]


@needs_true
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *half_types])
def test_bounds_and_extrema_of_zeros_have_the_devices_signs(dtype):
    def f(x, y):
        return (F.relu(x), x.clamp_min(0), x.clamp_max(0), x.clamp(min=-0.0), x.clamp(0, 6), F.relu6(x), F.hardtanh(x, 0.0, 2.0), torch.maximum(x, y), torch.minimum(x, y),
                torch.fmax(x, y), torch.fmin(x, y), x.clamp(min=float("nan")), x.clamp(max=float("nan")), x.clamp(min=y), x.clamp(0, float("inf")))

    x = torch.tensor(zeros * 9, dtype=dtype).cuda()
    y = torch.tensor([value for value in zeros for _ in range(9)], dtype=dtype).cuda()
    same_as_eager(f, x, y, exact=True)


@needs_true
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *half_types])
def test_the_largest_of_zeros_has_the_devices_sign(dtype):
    def f(x):
        return x.max(), x.min(), x.amax(0), x.amin(1), x.amax(), torch.cummax(x, 1).values

    generator = torch.Generator().manual_seed(1)
    for shape in ((3, 1), (2, 5), (4, 40), (300, 3)):
        x = torch.where(torch.rand(shape, generator=generator) < 0.5, 0.0, -0.0).to(dtype)
        same_as_eager(f, x.cuda(), exact=True)


@needs_true
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *half_types])
def test_floats_become_small_integers_as_on_the_device(dtype):
    def f(x):
        return x.to(torch.uint8), x.to(torch.int8), x.to(torch.int16), x.to(torch.bool), x.to(torch.int32), (x * 2).to(torch.uint8)

    same_as_eager(f, torch.tensor([-1.0, -2.5, 254.0, 256.0, 300.0, -130.0, 1e4, -1e4, 0.5, -0.5] * 8, dtype=dtype).cuda(), breaks=())


@needs_true
def test_an_error_behind_dropout_leaves_the_generators_as_eager():
    def f(x, mask):
        noise = F.dropout(x.select(0, 0), 0.5)
        return noise[mask] * 2

    states = []
    for function in (f, framejit.compile(f)):
        torch.manual_seed(3)
        for _ in range(2):
            with pytest.raises(IndexError):
                function(sample(4, 6), torch.ones(1, 1, dtype=torch.bool, device="cuda:0"))
        states.append((torch.get_rng_state().tolist(), torch.cuda.get_rng_state().tolist()))
    assert states[0][0] == states[1][0] and states[0][1] == states[1][1]


@needs_true
def test_a_loss_of_two_dtypes_fails_where_eager_fails():
    def f(x, y):
        return F.mse_loss(x, y)

    for function in (f, framejit.compile(f)):
        y = torch.ones((), device="cuda:0", requires_grad=True)
        with pytest.raises(RuntimeError, match="dtype"):
            function(torch.ones((), dtype=torch.float64, device="cuda:0"), y).backward()


@pytest.mark.parametrize("dtype", half_types)
def test_halves_and_numbers_are_added_in_float32(dtype):
    """As torch's kernels for a device do, to the last bit: neither alpha nor a number of the host is rounded to a half."""
    def f(x, y, number):
        return torch.add(x, y, alpha=0.1), torch.add(x, 0.1, alpha=3), torch.sub(x, 0.3), 0.3 + x, x - number

    def wide(a, b, alpha=1.0):
        # float64 holds the product of floats exactly, and their sum but for bits that no half sees.
        return (a.double() + float(np.float32(alpha)) * b.double()).float().to(dtype)

    x, y, number = sample(600, dtype=dtype), sample(600, dtype=dtype, seed=1), torch.tensor(0.7)
    with torch.no_grad():
        results = framejit.compile(f)(x, y, number)
    tenth, third, seventh = (torch.tensor(value, dtype=torch.float32) for value in (0.1, 0.3, 0.7))
    x, y = x.cpu(), y.cpu()
    expected = wide(x, y, 0.1), wide(x, tenth, 3), wide(x, third, -1), wide(third, x), wide(x, seventh, -1)
    for result, exact in zip(results, expected):
        assert result.dtype == dtype and torch.equal(result.cpu(), exact)


@pytest.mark.parametrize("dtype", [torch.float32, *half_types])
@pytest.mark.parametrize("sizes", [(64, 64), (32, 96), (60, 68), (33, 31), (8, 8, 16)], ids=str)
def test_rows_of_parts(dtype, sizes):
    """Where one part ends and the next begins between packs, within one, and at none."""
    def f(x):
        x = x / (x * x).mean(-1, keepdim=True)
        return torch.cat([part * (i + 1) for i, part in enumerate(x.split(sizes, -1))][::-1], -1)

    same_as_eager(f, sample(600, sum(sizes), dtype=dtype), breaks=())


def test_broadcasting_views_and_transposes():
    def f(x, y):
        return x.t() * y[:, None] + x[1:4].t().sum(1, keepdim=True), x.t(), x[::2, 1:]

    same_as_eager(f, sample(6, 9), sample(9, seed=1), breaks=())


def test_layouts_are_eagers():
    same_as_eager(lambda x: (x * 2, x.contiguous() + 1), sample(4, 5, 6).permute(2, 0, 1), breaks=())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_reductions(dtype, dim):
    def f(x):
        if dim is None:
            return x.sum(), x.amax()
        return x.sum(dim), x.mean(dim), x.amax(dim), x.argmax(dim)

    same_as_eager(f, sample(19, 70, dtype=dtype), breaks=())


def test_softmax_and_norms():
    def f(x, weight, bias):
        return F.softmax(x, -1), F.log_softmax(x, -1), F.layer_norm(x, (48,), weight, bias), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    same_as_eager(f, sample(5, 48), sample(48, seed=1), sample(48, seed=2), breaks=())


def test_running_sums_gathers_and_concatenations():
    def f(x, index):
        return x.cumsum(1), x[index], torch.cat([x, x * 2], 1), torch.gather(x, 1, index[:, None].expand(-1, 3) % 7), torch.where(x > 0, x, 0.0)

    same_as_eager(f, sample(5, 7), torch.tensor([0, 3, 4, 1, 2], device="cuda:0"), breaks=())


def test_new_tensors():
    def f(x):
        device = x.device
        return (torch.zeros(3, device=device), torch.arange(4, device="cuda:0") + x.shape[0], torch.ones_like(x), x.new_full((2, 2), 7.0),
                torch.tensor([1.0, 2.0], device=device), device, x.is_cuda, x.is_cpu)

    same_as_eager(f, sample(3), breaks=())


def test_inputs_are_written_in_place():
    def f(x, y):
        x.mul_(2).add_(y)
        y[1:] = 0
        return x.sum()

    same_as_eager(f, sample(5), sample(5, seed=1), breaks=())


def test_a_scattered_addition():
    def f(x, index, y):
        return x.index_add(0, index, y) * 2

    same_as_eager(f, sample(6, 3), torch.tensor([0, 5, 0], device="cuda:0"), sample(3, 3, seed=1))


def test_empty_tensors():
    same_as_eager(lambda x: (x * 2, x.sum()), sample(0, 3), breaks=())


def test_modules_under_no_grad():
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).to("cuda:0")

    def f(x):
        with torch.no_grad():
            return model(x) + x

    same_as_eager(f, sample(4, 8))


EXPRESSIONS = cases.POINTWISE + cases.REDUCTIONS + cases.SHAPES


def accepted(text, x):
    """Eager gives a result, and no warning, which torch may give once in a process."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            eval(text, {"torch": torch, "F": F, "x": x.clone()})
        except Exception:
            return False
    return not caught


@pytest.mark.parametrize("first", range(0, len(EXPRESSIONS), 20))
def test_expressions_of_the_tests_of_the_front_end(first):
    x = sample(2, 4, 3, 5) * 2
    body = ",\n        ".join(text for text in EXPRESSIONS[first:first + 20] if accepted(text, x))
    scope = {"torch": torch, "F": F}
    exec(f"def f(x):\n    return (\n        {body},\n    )", scope)
    same_as_eager(scope["f"], x, calls=1, compiles=False)


# ---- sizes, and guards

def test_sizes_are_symbols_once_they_change():
    f = framejit.compile(lambda x: F.softmax(x * 2, -1))
    for rows in (4, 5, 6, 7):
        x = sample(rows, 40)
        assert_same(f(x), F.softmax(x * 2, -1))
    assert framejit.cache_info()["graphs"] == 2
    if fake:
        compiled = fake.compiled()
        f(sample(9, 40))
        assert fake.compiled() == compiled


def test_another_device_is_another_program():
    f = framejit.compile(lambda x: x * 2 + 1)
    for device in ("cuda:0", "cpu", "cuda:0", "cpu"):
        x = sample(8, device=device)
        assert_same(f(x), x * 2 + 1)
    assert framejit.cache_info()["graphs"] == 2


@needs_two
def test_an_ordinal_is_guarded():
    f = framejit.compile(lambda x: x * 2 + 1)
    for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1"):
        x = sample(8, device=device)
        assert_same(f(x), x * 2 + 1)
        if fake:
            assert [call[-1] for call in launches()] == [device[-1]]
    assert framejit.cache_info()["graphs"] == 2
    assert "f32[8] of cuda:" in "\n".join(framejit.explain(f).so_far().guards.all)


@needs_two
def test_a_tensor_whose_data_moves_to_another_device():
    f = framejit.compile(lambda x: x * 2)
    x = sample(8)
    for device in ("cuda:0", "cuda:1"):
        x.data = sample(8, device=device)
        assert_same(f(x), x * 2)


# ---- several devices in one function

def test_numbers_of_the_host_are_operands():
    def f(x, scale, shift):
        return x * scale + shift, scale * x, torch.where(x > 0, x, scale)

    run = same_as_eager(f, sample(5), torch.tensor(3.0), torch.tensor(2, dtype=torch.int64), breaks=())
    assert run.info["eager_replays"] == 0


def test_numbers_drawn_by_python_and_numpy_are_the_hosts():
    for generator in (random, np.random):
        def f(x):
            return x * generator.random() + 1, x * generator.uniform(2, 3)

        compiled = framejit.compile(f)
        for calls in range(3):
            x, results = sample(5), []
            for run in (f, compiled):
                generator.seed(calls)
                results.append(run(x))
            assert_same(results[1], results[0])


def test_numbers_made_here():
    same_as_eager(lambda x: (x * torch.tensor(2.5), torch.tensor(3) + x), sample(5), breaks=())


def test_a_float_that_changes_is_given_to_the_kernel():
    f = framejit.compile(lambda x, rate: x - x * rate)
    for rate in (0.1, 0.2, 0.3, 0.4):
        x = sample(6)
        assert_same(f(x, rate), x - x * rate)
    assert framejit.cache_info()["graphs"] == 2
    if fake:
        fake.calls()
        f(sample(6), 0.5)
        calls = fake.calls()
        assert [call.split()[0] for call in calls] == ["push", "upload", "launch", "pop"]


def test_what_is_made_of_numbers_of_the_host_is_the_hosts():
    same_as_eager(lambda x, a, b: (x * (a + b), a + b, a * 2), sample(5), torch.tensor(3.0), torch.tensor(2.0))


def test_a_number_of_the_host_is_written():
    def f(x, count):
        count += 1
        return x * 2, x / count

    same_as_eager(f, sample(5), torch.tensor(3.0))


def test_arrays_of_the_host_and_of_a_device_take_turns():
    def f(x, y):
        a = x * 2 + 1
        b = y.exp() + 1
        return a + 1, b * 2, a

    same_as_eager(f, sample(5), sample(7, device="cpu"))


def test_a_tensor_of_the_host_made_beside_those_of_a_device():
    def f(x):
        y = torch.ones(3)
        z = x * 2
        return y, z, y + 1

    same_as_eager(f, sample(5))


def test_tensors_move_between_devices():
    def f(x):
        y = (x * 2).cpu()
        z = (y + 1).to("cuda:0")
        return y, z * 3, z.to("cpu", torch.float64), x.to("cuda:0"), x.to(torch.float64) + 1, z.cpu().numpy()

    same_as_eager(f, sample(5))


def test_eager_says_what_is_wrong_with_mixed_devices():
    def f(x, y):
        return x * 2 + y

    run = same_as_eager(f, sample(5), sample(5, device="cpu"), fallback=True)
    assert "SeveralDevices" in run.breaks


@needs_two
def test_two_devices_in_one_function():
    def f(x, y):
        return x * 2 + 1, y * 3 + 1, x.to(y.device) + y

    same_as_eager(f, sample(5), sample(5, device="cuda:1"))


@needs_two
def test_eager_says_what_is_wrong_with_two_devices():
    same_as_eager(lambda x, y: x + y, sample(5), sample(5, device="cuda:1"), compiles=False)


def test_indices_of_the_host():
    same_as_eager(lambda x, i: x[i] * 2, sample(5, 3), torch.tensor([0, 2]))


# ---- what torch does between kernels

def test_products_are_torchs_between_kernels():
    def f(x, w):
        y = x * 2 + 1
        return F.relu(y @ w - 1), torch.mm(y, w).sum()

    run = same_as_eager(f, sample(8, 16), sample(16, 4, seed=1), breaks=())
    assert "extern_call" in run.graph_ops
    if fake:
        calls = fake.calls()
        # torch runs with its own device current.
        assert any(re.fullmatch("push 0,launch.*,pop,push 0,.*", ",".join(calls[i:i + 4]) + ",") for i in range(len(calls)))


def test_convolutions_attention_and_sorts():
    def f(x, w, q):
        y = F.conv2d(x * 2, w).relu() + 1
        return y, F.scaled_dot_product_attention(q + 1, q, q) * 2, torch.sort(q * 2, -1).values + 1

    same_as_eager(f, sample(1, 2, 8, 8), sample(3, 2, 3, 3, seed=1), sample(1, 2, 6, 8, seed=2))


def test_complex_numbers_are_torchs():
    same_as_eager(lambda x: torch.fft.fft(x * 2).abs() + 1, sample(8))


def same_numbers_drawn(f):
    compiled, x = framejit.compile(f), sample(50)
    torch.manual_seed(3)
    expected = f(x), f(x)
    torch.manual_seed(3)
    assert_same((compiled(x), compiled(x)), expected)
    assert framejit.cache_info()["kernels_launched"] > 0
    return framejit.explain(compiled).so_far().text()


def test_random_numbers_are_torchs():
    def f(x):
        return x * 2 + torch.rand_like(x), torch.randn(3, device="cuda:0") * x.sum()

    assert 'callee = "rand_like"' in same_numbers_drawn(f)


def test_what_dropout_draws_is_torchs_own_affair():
    assert 'callee = "dropout"' in same_numbers_drawn(lambda x: F.dropout(x * 2, 0.3) + 1)


def test_deterministic_algorithms_are_torchs():
    torch.use_deterministic_algorithms(True)
    try:
        run = same_as_eager(lambda x: x * 2 + 1, sample(5), compiles=False)
        assert run.info["kernels_launched"] == 0
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_element_becomes_a_number():
    def f(x):
        y = x * 2
        scale = y.sum().item()
        if (y > 100).any():
            return y
        return y * scale + float(x[0])

    run = same_as_eager(f, sample(5))
    assert set(run.breaks) == {"ScalarFromArray", "BranchOnData"}
    assert "of cuda:0, of which Python waits for one element" in run.report.text()


def test_sizes_that_depend_on_data_are_torchs():
    same_as_eager(lambda x: x[x > 0] * 2 + 1, sample(9))


def test_a_loop_with_a_break():
    def f(x):
        for _ in range(3):
            x = x * 2 + 1
            framejit.graph_break()
        return x - 1

    same_as_eager(f, sample(5))


def test_inference_mode():
    def f(x):
        with torch.inference_mode():
            return x * 2 + 1

    same_as_eager(f, sample(5))
    with torch.inference_mode():
        same_as_eager(lambda x: x * 2 + 1, sample(5))


def test_autocast_is_left_to_torch():
    def f(x, w):
        with torch.autocast("cuda", dtype=torch.float16):
            return (x + 1) @ w

    same_as_eager(f, sample(4, 4), sample(4, 4, seed=1), compiles=False)


# ---- gradients

def test_gradients():
    def f(x, w):
        return (F.softmax(x * w, -1) * x).sum()

    for calls in range(2):
        grads = []
        for run in (f, framejit.compile(f)):
            x, w = sample(5, 8).requires_grad_(), sample(8, seed=1).requires_grad_()
            loss = run(x, w)
            loss.backward()
            grads.append((loss.detach(), x.grad, w.grad))
        assert_same(grads[1], grads[0])
    assert framejit.cache_info()["eager_replays"] == 0


def test_a_training_step():
    def step(model, optimiser, x, y):
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    losses = []
    for run in (step, framejit.compile(step)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3)).to("cuda:0")
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        losses.append([run(model, optimiser, sample(4, 6), sample(4, 3, seed=1)) for _ in range(4)])
        losses[-1] += [p.detach() for p in model.parameters()]
    assert_same(losses[1], losses[0])


def test_second_derivatives():
    def f(x):
        return (x * x).sin()

    for create_graph in (False, True):
        results = []
        for run in (f, framejit.compile(f)):
            x = sample(6).requires_grad_()
            (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=create_graph)
            results.append([first.detach()] + ([torch.autograd.grad(first.sum(), x)[0]] if create_graph else []))
        assert_same(results[1], results[0])


def test_a_convolutional_network_with_running_statistics_and_dropout():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Flatten(),
                                torch.nn.Linear(144, 3)).to("cuda:0")
    results = []
    for compiled in (False, True):
        mine = copy.deepcopy(model)

        def f(x):
            return mine(x).sum()

        torch.manual_seed(1)
        loss = (framejit.compile(f) if compiled else f)(sample(2, 1, 8, 8))
        loss.backward()
        results.append([loss.detach(), [p.grad for p in mine.parameters()], list(mine.buffers())])
    assert_same(results[1], results[0])


def test_a_number_of_the_host_that_requires_a_gradient():
    def f(x, scale):
        y = (x * scale).sum()
        y.backward()
        return scale.grad

    same_as_eager(f, sample(4), torch.tensor(3.0, requires_grad=True), compiles=False)
    same_as_eager(lambda x, scale: (x * scale).sum(), sample(4), torch.tensor(3.0, requires_grad=True), fallback=True)


def test_functions_that_derive():
    def f(x):
        return (x * x * x).sum()

    x = sample(5)
    assert_same(framejit.grad(f)(x), 3 * x * x)
    value, pull_back = framejit.vjp(torch.sin, x)
    assert_same((value, pull_back(torch.ones_like(x))[0]), (x.sin(), x.cos()))
    assert_same(framejit.vmap(lambda row: row * row.sum())(x.expand(3, 5)), x * x.sum() * torch.ones(3, 1, device="cuda:0"))
    with pytest.raises(framejit.GraphBreakError, match="branches in a piece on cuda:0"):
        framejit.grad(lambda x: x.sum() if x.sum() > 0 else f(x))(x)


# ---- the driver

@needs_fake
def test_kernels_run_on_the_current_stream_and_nothing_waits():
    f = framejit.compile(lambda x: (x * 2 + 1, x.sum(1)))
    f(sample(8, 64))
    x = sample(8, 64)
    waits = fake.waits()
    for stream in (0, 0x30, 0x40):
        fake.use_stream(stream)
        fake.calls()
        f(x)
        calls = fake.calls()
        assert calls[0] == "push 0" and calls[-1] == "pop"
        assert len(calls) > 2 and all(f"on stream {stream:x} of device 0" in call for call in calls[1:-1])
    assert fake.waits() == waits


@needs_fake
def test_results_and_temporaries_are_torchs_memory():
    f = framejit.compile(lambda x: (x.sum(0) * 2).sum())
    x = sample(300, 40)
    f(x)
    before, in_use = fake.allocations(), fake.bytes_in_use()
    result = f(x)
    assert fake.allocations() > before
    assert fake.bytes_in_use() == in_use + result.element_size()


@needs_fake
def test_out_of_memory_is_torchs_own_error():
    f = framejit.compile(lambda x: x * 2 + 1)
    x = sample(8)
    f(x)
    fake.out_of_memory(True)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        f(x)
    fake.out_of_memory(False)
    assert_same(f(x), x * 2 + 1)


@needs_fake
def test_an_index_out_of_range_is_eagers_error():
    f = framejit.compile(lambda x, i: x[i] * 2)
    x = sample(5, 3)
    f(x, torch.tensor([0, 4], device="cuda:0"))
    fake.calls()
    f(x, torch.tensor([0, 4], device="cuda:0"))
    assert "wait for stream 0" in fake.calls()
    with pytest.raises(IndexError):
        f(x, torch.tensor([0, 5], device="cuda:0"))


@needs_fake
def test_what_a_cuda_graph_would_not_repeat_is_not_recorded():
    plain, scaled, gathered = (framejit.compile(f) for f in (lambda x: x * 2 + 1, lambda x, s: x * s + 1, lambda x, i: x[i] + 1))
    x, scale, index = sample(5, 3), torch.tensor(3.0), torch.tensor([0, 4], device="cuda:0")
    calls = [lambda: plain(x), lambda: scaled(x, scale), lambda: gathered(x, index)]
    for call in calls:
        call()
    fake.capture(True)
    fake.calls()
    assert_same([call() for call in calls], [x * 2 + 1, x * scale + 1, x[index] + 1])
    assert len(launches()) == 1 and framejit.cache_info()["eager_replays"] == 2
    fake.capture(False)
    assert_same([call() for call in calls], [x * 2 + 1, x * scale + 1, x[index] + 1])
    assert len(launches()) == 3


@needs_fake
@pytest.mark.parametrize("function", ["launch", "load"])
def test_what_the_driver_refuses_is_said_with_the_users_line(function, capsys):
    def f(x):
        return torch.sin(x) * (3 if function == "launch" else 5)

    x = sample(8)
    fake.fail(function, 700)
    compiled = framejit.compile(f)
    assert_same(compiled(x), f(x))
    line = f.__code__.co_firstlineno + 1
    said = framejit.explain(compiled).so_far().text()
    assert re.search(rf"CUDA error 700 \(an illegal memory access was encountered\) {function}ing kernel0 \(.*on_device.py:{line}\)", said), said
    fake.fail()
    assert_same(compiled(x), f(x))


# ---- many small kernels of the same work

@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_small_updates_of_many_parameters_are_few_launches(dtype, mode):
    def step(parameters, gradients):
        for p, g in zip(parameters, gradients):
            p.mul_(0.5).sub_(g * g)

    shapes = [(8, 8), (7,), (3, 5, 7), (2,)] * 5

    def given():
        return [[sample(*shape, seed=seed + i).to(dtype) for i, shape in enumerate(shapes)] for seed in (0, 100)]

    compiled, ours, eager = framejit.compile(step, mode=mode), given(), given()
    misaligned = sample(10).to(dtype)
    for values in (ours, eager):
        values[0][4] = torch.cat([misaligned, misaligned])[1:9]  # 8 elements, no multiple of 16 bytes
        values[1][4] = sample(8, seed=3).to(dtype)
    for _ in range(3):
        before = framejit.cache_info()["kernels_launched"]
        compiled(*ours), step(*eager)
        assert framejit.cache_info()["kernels_launched"] == before + 1
        assert_same(ours, eager)


# ---- mode="reduce-overhead"

def two_kernels(x):
    return (x * 2).sum(0), x.sum() + 1


@pytest.mark.parametrize("function", [
    two_kernels,
    lambda x: torch.sort((x.sum(0) + 1).cumsum(0)).values.cumsum(0) + x.mean(),  # a library's call between kernels
    lambda x: (x @ x.t()).sum(0).cumsum(0) - x.sum(),
    lambda x: (x[:, torch.tensor([0, 2], device=x.device)].sum(0).cumsum(0), x.amax()),  # a status is read
], ids=["kernels", "sort", "product", "gather"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_joined_launches_give_every_call_results_of_its_own(function, dynamic):
    compiled = framejit.compile(function, mode="reduce-overhead", dynamic=dynamic)
    given = [sample(rows, 33, seed=seed) for seed, rows in enumerate((20, 20, 20, 300, 20, 300) if dynamic else (20,) * 5)]
    results = [compiled(x) for x in given]
    assert not fake or sum(call.startswith("launch graph") for call in fake.calls()) >= 2
    for x, result in zip(given, results):
        assert_same(result, function(x))
    assert framejit.cache_info()["eager_replays"] == 0


def test_joined_launches_of_updates_and_gradients():
    def step(parameters, means):
        loss = sum((p * p).sum(0).cumsum(0).sum() for p in parameters)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, m, g in zip(parameters, means, gradients):
                m.mul_(0.9).add_(g, alpha=0.1)
                p.sub_(0.1 * m)
        return loss.detach()

    def training(run):
        parameters = [sample(6, 5, seed=i).requires_grad_() for i in range(4)]
        means = [torch.zeros_like(p) for p in parameters]
        return [run(parameters, means) for _ in range(5)], parameters, means

    assert_same(training(framejit.compile(step, mode="reduce-overhead")), training(step))

    def loss(x, w):
        return ((x * w).sum(0).cumsum(0) * w.sum()).sum()

    compiled = framejit.compile(loss, mode="reduce-overhead")
    for seed in range(4):
        x, ours = sample(6, 5, seed=seed), sample(6, 5, seed=9).requires_grad_()
        eager = ours.detach().clone().requires_grad_()
        compiled(x, ours).backward()
        loss(x, eager).backward()
        assert_same(ours.grad, eager.grad)


@needs_fake
def test_launches_are_joined_from_the_second_call_on_by_stream():
    compiled, x = framejit.compile(two_kernels, mode="reduce-overhead"), sample(300, 40)
    kernels = len(compiled(x)) and len(launches())
    assert kernels > 1
    joined = None
    for stream, made in ((0, "graph"), (0, None), (0x30, "launches"), (0x30, "graph"), (0, None)):
        fake.use_stream(stream)
        fake.calls()
        assert_same(compiled(x), two_kernels(x))
        calls = fake.calls()
        assert ("instantiate" in calls) == (made == "graph")
        launched = [call for call in calls if call.startswith("launch")]
        assert all(call.endswith(f"on stream {stream:x} of device 0") for call in launched)
        assert len(launched) == (kernels if made == "launches" else 1)
        if made != "launches":
            joined = joined or launched[0].split(" on ")[0]
            assert launched[0].split(" on ")[0] == joined and joined.startswith("launch graph kernel") and len(joined.split()) == 2 + kernels
    fake.capture(True)
    fake.calls()
    assert_same(compiled(x), two_kernels(x))
    assert len(launches()) == kernels


@needs_fake
def test_a_graph_the_driver_refuses_is_said_and_the_kernels_run():
    compiled, x, said = framejit.compile(lambda x: (x.sum(0) - 3, x.sum()), mode="reduce-overhead"), sample(300, 40), []
    compiled(x)
    fake.fail("instantiate", 2)
    framejit.set_logs("fallbacks", sink=lambda artifact, text: said.append(text))
    try:
        for _ in range(3):
            assert_same(compiled(x), (x.sum(0) - 3, x.sum()))
    finally:
        framejit.set_logs()
    assert len(said) == 1 and re.fullmatch(r"CUDA error 2 \(out of memory\) making a graph of \d launches: they are made one by one", said[0]), said


def updates(x, y):
    x.mul_(2).add_(y.sum(1, keepdim=True))
    return F.softmax(x, -1), y[:, 1:] * 3


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_measured_launches_leave_nothing_behind(mode, tmp_path):
    rows = 600 + len(mode)  # what was measured holds for equal kernels in the process
    compiled, ours, eager = framejit.compile(updates, mode=mode, cache_folder=str(tmp_path)), sample(rows, 64), sample(rows, 64)
    y = sample(rows, 64, seed=1)
    for call in range(3):
        result = None
        if fake:
            fake.calls()
            in_use = fake.bytes_in_use()
        result = compiled(ours, y)
        if fake:
            calls = fake.calls()
            assert fake.bytes_in_use() == in_use + sum(r.nbytes for r in result)
            assert calls.count("wait for event") > 0 if call == 0 else "wait for event" not in calls
            assert sum(c.startswith("allocate") for c in calls) == calls.count("release")
            # The fake's time is the threads of a block: the last launches are the measured choice.
            assert all(" x 128 on" in c for c in calls if c.startswith("launch kernel") or c.startswith("launch other")) or call == 0
            # What is measured between kernels parts them: they follow each other for the first time in the second call.
            assert any(c.startswith("launch graph") for c in calls) == (call > 1 and mode == "max-autotune")
        assert_same(result, updates(eager, y))
        assert_same(ours, eager)
    framejit.reset()
    result = framejit.compile(updates, mode=mode, cache_folder=str(tmp_path))(ours, y)
    if fake:
        calls = fake.calls()
        assert "wait for event" not in calls and all(" x 128 on" in c for c in calls if c.startswith("launch"))
    assert_same(result, updates(eager, y))


def test_modes():
    with pytest.raises(ValueError, match="option mode is default or reduce-overhead or max-autotune or max-autotune-no-cudagraphs, not 'fast'"):
        framejit.compile(two_kernels, mode="fast")
    x = sample(5, 7, device="cpu")
    assert_same(framejit.compile(two_kernels, mode="reduce-overhead")(x), two_kernels(x))
    with framejit.options(mode="reduce-overhead"):
        assert_same(framejit.compile(two_kernels)(x), two_kernels(x))


# ---- back ends

def test_back_ends_by_name():
    def f(x):
        return x * 2 + 1

    same_as_eager(f, sample(8), backend="cuda", breaks=())
    for backend in ("llvm", "reference"):
        run = same_as_eager(f, sample(8), backend=backend, compiles=False)
        assert f"the back end {backend} works on the CPU" in run.report.text()
    run = same_as_eager(f, sample(8, device="cpu"), backend="cuda", compiles=False)
    assert run.info["kernels_launched"] == 0


def test_dynamic_from_the_first_call():
    same_as_eager(lambda x: (x * 2).sum(1) + x.shape[0], sample(5, 33), dynamic=True)


# ---- numbers of the host

@pytest.mark.parametrize("write", [
    lambda x, c: c.zero_(), lambda x, c: c.fill_(3), lambda x, c: c.copy_(torch.tensor(7.0)), lambda x, c: torch.add(c, 1, out=c),
    lambda x, c: c.copy_(x.sum()), lambda x, c: c.add_(1), lambda x, c: c.__iadd__(2),
])
@pytest.mark.parametrize("first", [True, False])
def test_a_number_of_the_host_is_written_where_it_is(write, first):
    def f(x, c):
        if first:
            y = x * 2
            write(x, c)
        else:
            write(x, c)
            y = x * 2
        return y

    compiled, (ours, eager) = framejit.compile(f), (torch.tensor(5.0), torch.tensor(5.0))
    for _ in range(2):
        assert_same(compiled(sample(8), ours), f(sample(8), eager))
        assert_same(ours, eager)


def test_an_array_of_numpy_is_written_beside_a_device():
    def f(x, c):
        y = x * 2
        c += 1
        return y

    ours, eager = np.array(2.0), np.array(2.0)
    assert_same(framejit.compile(f)(sample(8), ours), f(sample(8), eager))
    assert ours == eager


@pytest.mark.parametrize("function", [lambda x, c: torch.stack([x.sum(), c]), lambda x, c: torch.hstack([x.sum(), c])])
def test_lists_hold_tensors_of_one_device(function):
    with pytest.raises(RuntimeError) as eager:
        function(sample(8), torch.tensor(1.0))
    with pytest.raises(RuntimeError) as ours:
        framejit.compile(function)(sample(8), torch.tensor(1.0))
    assert str(ours.value) == str(eager.value)
