"""A tensor's memory seen as another dtype: bits of floats, complex numbers as real ones and back."""
import numpy as np
import pytest

from harness import counted, needs_torch, same_as_eager, torch

pytestmark = needs_torch


def real(*shape):
    return torch.from_numpy(np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def complex_numbers(*shape):
    return torch.complex(real(*shape), real(*shape).flip(0))


def inverse_root(x):
    bits = 0x5F3759DF - (x.view(torch.int32) >> 1)
    guess = bits.view(torch.float32)
    return guess * (1.5 - 0.5 * x * guess * guess)


def test_bits_of_floats_are_read():
    same_as_eager(inverse_root, real(3, 4).abs() + 0.1, breaks=())
    same_as_eager(lambda x: (x * 2).view(torch.int32) & 0x7FFFFFFF, real(3, 4), breaks=())


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16", "complex64"])
def test_elements_of_another_size(dtype):
    same_as_eager(lambda x: (x + 1).view(getattr(torch, dtype)) * 1, real(3, 4), breaks=())
    same_as_eager(lambda x: x[1:].view(getattr(torch, dtype)) * 1, real(3, 4), breaks=())


def test_what_torch_refuses_torch_refuses():
    for dtype in (torch.int64, torch.complex64):
        same_as_eager(lambda x, dtype=dtype: x.view(dtype) * 1, real(3, 3), compiles=False)
        same_as_eager(lambda x, dtype=dtype: x.t().view(dtype) * 1, real(4, 3), compiles=False)
        same_as_eager(lambda x, dtype=dtype: x[:, 1:3].view(dtype) * 1, real(4, 6), compiles=False, fallback=True)


def rotated(x, angles):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(-2)


def test_pairs_are_rotated_as_complex_numbers():
    angles = torch.polar(torch.ones(3, 4), real(3, 4))
    same_as_eager(rotated, real(2, 3, 8), angles, breaks=())
    same_as_eager(rotated, real(2, 3, 8).double(), angles.to(torch.complex128), breaks=())


@pytest.mark.parametrize("pick", [lambda z: torch.view_as_real(z), lambda z: z.real, lambda z: z.imag, lambda z: torch.view_as_real(z)[1:, 0],
                                  lambda z: z[1].imag[2:]], ids=["pairs", "real", "imag", "part", "part_of_row"])
def test_parts_of_complex_numbers_are_handed_back_as_views(pick):
    same_as_eager(lambda z: (pick(z) + 1, pick(z)), complex_numbers(3, 4), breaks=())
    same_as_eager(lambda z: (pick(z * 2), pick(z) * 2), complex_numbers(3, 4), breaks=())
    same_as_eager(lambda z: (pick(z[1:]), z, pick(z) - 1), complex_numbers(4, 4), breaks=())


def test_complex_numbers_of_pairs_are_handed_back_as_views():
    same_as_eager(lambda x: (torch.view_as_complex(x), torch.view_as_complex(x[1:])[0] * 2), real(3, 4, 2), breaks=())
    same_as_eager(lambda x: torch.view_as_complex(x * 2)[1], real(3, 4, 2), breaks=())


def test_a_view_shows_what_is_written_later():
    def f(x):
        y = x * 2
        z = torch.view_as_complex(y)
        before = z * 1
        y.add_(1)
        return before, z * 1, z

    same_as_eager(f, real(3, 4, 2), breaks=())


def test_bits_that_are_handed_back_are_torch_s():
    """view(dtype) shares memory and is no view: only torch makes such a tensor."""
    same_as_eager(lambda x: (x * 2).view(torch.int32), real(3, 4), compiles=False)
    same_as_eager(lambda x: (x * 2).view(torch.int32).view(torch.float32)[1:], real(3, 4), compiles=False)
    same_as_eager(lambda x: (x + 1, x.view(torch.int32)), real(3, 4), compiles=False)


def test_writes_through_such_views_are_torch_s():
    def f(z):
        w = z * 2
        w.real.add_(1)
        torch.view_as_real(w)[..., 1].mul_(3)
        return w + 1

    def bits(x):
        y = x * 2
        y.view(torch.int32).bitwise_and_(0x7FFFFFFF)
        return y + 1

    same_as_eager(f, complex_numbers(3, 4), compiles=False)
    same_as_eager(bits, real(3, 4), compiles=False)


def test_sizes_that_change():
    samples = [(rotated, lambda n: (real(2, n, 8), torch.polar(torch.ones(n, 4), real(n, 4)))),
               (inverse_root, lambda n: (real(n, 4).abs() + 1,)),
               (lambda z: z[1:].imag * 2 + z[1:].real, lambda n: (complex_numbers(n, 3),))]
    for function, sample in samples:
        info = counted(function, [sample(n) for n in (3, 4, 5, 7, 9)])
        assert info["graphs"] <= 3 and info["breaks"] == 0


def test_under_gradients():
    def f(x, angles):
        return rotated(x, angles) * 2

    run = same_as_eager(f, real(2, 3, 8).requires_grad_(), torch.polar(torch.ones(3, 4), real(3, 4)), compiles=False, fallback=True)
    assert run.info["internal_errors"] == 0
