"""Results and gradients of a compiled torch function against eager's."""
import warnings

import torch

import framejit

# relative to the largest finite gradient: eager's rounding in half types is one rounding per operation, as ours is, in another order
TOLERANCE = {torch.float64: 1e-9, torch.float32: 5e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def assert_close(actual, expected, what, relative=None):
    if expected is None or actual is None:
        assert actual is expected, f"{what}: {actual}, eager gives {expected}"
        return
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, f"{what}: {actual.dtype} {tuple(actual.shape)}"
    if not expected.is_floating_point():
        assert torch.equal(actual, expected), what
        return
    a, e = actual.detach().double(), expected.detach().double()
    finite = e[e.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    tolerance = (TOLERANCE[expected.dtype] if relative is None else relative) * max(scale, 1e-30)
    same = (a == e) | (a.isnan() & e.isnan()) | ((a - e).abs() <= tolerance)
    assert bool(same.all()), f"{what}: at {[tuple(i) for i in (~same).nonzero()[:4].tolist()]}: {a[~same][:4].tolist()}, eager gives {e[~same][:4].tolist()}"


def run(function, arguments, seed=5):
    """(result tensors, gradients of the leaves) or the exception."""
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tensors(function(*leaves))
        except Exception as error:
            return error, None, None
        needing = [r for r in results if r.requires_grad]
        generator = torch.Generator().manual_seed(seed)
        weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in needing]
        asked = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        try:
            gradients = torch.autograd.grad(needing, asked, weights, allow_unused=True) if needing else ()
        except RuntimeError as error:  # no derivative, in eager too
            gradients = error
    return results, gradients, leaves


def compare_gradients(function, *arguments, calls=2):
    framejit.reset()
    compiled = framejit.compile(function)
    for call in range(calls):
        expected, expected_gradients, _ = run(function, arguments, call)
        actual, actual_gradients, _ = run(compiled, arguments, call)
        if isinstance(expected, Exception):
            assert type(actual) is type(expected) and str(actual) == str(expected), f"{actual!r}, eager raises {expected!r}"
            continue
        assert not isinstance(actual, Exception), repr(actual)
        assert len(actual) == len(expected)
        for i, (a, e) in enumerate(zip(actual, expected)):
            assert a.requires_grad == e.requires_grad, f"result {i}: requires_grad {a.requires_grad}, eager gives {e.requires_grad}"
            assert_close(a, e, f"result {i}")
        if isinstance(expected_gradients, Exception):
            assert str(actual_gradients) == str(expected_gradients)
            continue
        assert len(actual_gradients) == len(expected_gradients)
        relative = max([TOLERANCE[r.dtype] for r in expected if r.requires_grad] + [TOLERANCE.get(g.dtype, 0) for g in expected_gradients if g is not None], default=None)
        for i, (a, e) in enumerate(zip(actual_gradients, expected_gradients)):
            # A result in a smaller dtype was computed in it.
            assert_close(a, e, f"gradient {i}", relative)
    assert framejit.cache_info()["internal_errors"] == 0, framejit.explain(compiled).so_far()
    return compiled
