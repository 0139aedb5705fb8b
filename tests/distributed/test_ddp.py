"""A compiled module in DistributedDataParallel trains as eager: two processes that average gradients, and one with both batches.

Where parameters are compared exactly, every number is a fraction with a small power of two below, so that float64 holds each sum and
product exactly, in whatever order it is computed: two programs agree to the bit or compute something else.
"""
import contextlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

from torch import nn
from torch.nn.parallel import DistributedDataParallel

import framejit
import two_processes


def small_integers(*shape, seed):
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).double()


def exact_network():
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()
    with torch.no_grad():
        for seed, parameter in enumerate(network.parameters()):
            parameter.copy_(small_integers(*parameter.shape, seed=seed))
    return network


class Branched(nn.Module):
    """A parameter that some steps do not use, and statistics that are buffers."""

    def __init__(self):
        super().__init__()
        # No bias before the norm: its gradient would be rounding errors only, which Adam divides by their size.
        self.first, self.norm = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8)
        self.one, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x, use_one):
        x = torch.tanh(self.norm(self.first(x)))
        return self.one(x) if use_one else self.other(x)


def branched():
    torch.manual_seed(0)
    return Branched()


def steps(rank, count=3, samples=8):
    """Each process its half of the batches; rank None: all of them."""
    half = slice(None) if rank is None else slice(rank * samples // 2, (rank + 1) * samples // 2)
    for seed in range(count):
        yield small_integers(samples, 6, seed=10 + seed)[half], small_integers(samples, 4, seed=20 + seed)[half]


def train(network, rank, synchronise=lambda step: contextlib.nullcontext()):
    """Three backward passes and two updates, the digits of whose results fit float64."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.25)
    for step, (x, y) in enumerate(steps(rank)):
        with synchronise(step):
            # The mean that DDP takes of two processes is that of both batches.
            ((network(x) - y) ** 2).sum(1).mean().backward()
        if step != 1:
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in network.parameters()]


def train_branched(network, rank, dtype):
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for step, (x, y) in enumerate(steps(rank, 6)):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(x.to(dtype), step % 2 == 0), y.to(dtype)).backward()
        optimizer.step()
    return [tensor.detach().clone() for tensor in network.state_dict().values()]


def counts():
    info = framejit.cache_info()
    return {name: info[name] for name in ("graphs", "hits", "eager_replays", "internal_errors")}


# ---- what the two processes run ----------------------------------------------------------------------------------


def compiled_inside(rank, **options):
    wrapped = DistributedDataParallel(framejit.compile(exact_network()), **options)
    return train(wrapped, rank), train(DistributedDataParallel(exact_network(), **options), rank), counts()


def compiled_inside_with_views_of_buckets(rank):
    return compiled_inside(rank, gradient_as_bucket_view=True)


def compiled_inside_with_small_buckets(rank):
    return compiled_inside(rank, bucket_cap_mb=1e-6)


def compiled_inside_with_a_static_graph(rank):
    return compiled_inside(rank, static_graph=True)


def compiled_around(rank):
    return train(framejit.compile(DistributedDataParallel(exact_network())), rank), train(DistributedDataParallel(exact_network()), rank), counts()


def without_synchronisation_in_one_step(rank):
    def run(network):
        return train(network, rank, lambda step: network.no_sync() if step == 1 else contextlib.nullcontext())

    return run(DistributedDataParallel(framejit.compile(exact_network()))), run(DistributedDataParallel(exact_network())), counts()


def unused_parameters_and_buffers(rank):
    results = [train_branched(DistributedDataParallel(wrap(branched()), find_unused_parameters=True), rank, torch.float32)
               for wrap in (framejit.compile, lambda network: network)]
    return *results, counts()


def saved_and_loaded(rank):
    wrapped = DistributedDataParallel(framejit.compile(exact_network()))
    train(wrapped, rank)
    other = DistributedDataParallel(exact_network())
    other.load_state_dict(wrapped.state_dict())
    return list(other.parameters()), list(wrapped.parameters()), counts()


EXACT = ["compiled_inside", "compiled_inside_with_views_of_buckets", "compiled_inside_with_small_buckets",
         "compiled_inside_with_a_static_graph", "compiled_around", "without_synchronisation_in_one_step", "saved_and_loaded"]
NAMES = [*EXACT, "unused_parameters_and_buffers"]


@pytest.fixture(scope="module")
def results():
    return two_processes.run(__name__, NAMES)


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_eager_s_to_the_bit(results, name):
    for ours, eager, info in two_processes.checked(results[name]):
        assert all(map(torch.equal, ours, eager))
        assert info["graphs"] > 0 and info["hits"] > 0 and info["eager_replays"] == info["internal_errors"] == 0, info


@pytest.mark.parametrize("name", ["compiled_inside", "compiled_around"])
def test_two_processes_train_what_one_trains_on_both_batches(results, name):
    alone = train(exact_network(), None)
    assert not all(map(torch.equal, alone, exact_network().parameters()))
    for ours, _, _ in two_processes.checked(results[name]):
        assert all(map(torch.equal, ours, alone))


def test_unused_parameters_and_broadcast_buffers(results):
    for ours, eager, info in two_processes.checked(results["unused_parameters_and_buffers"]):
        for got, wanted in zip(ours, eager):
            # Sums in another order, float32; Adam divides by the size of a gradient, so that rounding of small ones grows.
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert info["graphs"] > 0 and info["internal_errors"] == 0, info
    (first, _, _), (second, _, _) = results["unused_parameters_and_buffers"]
    assert all(map(torch.equal, first[:1], second[:1]))  # parameters agree between the processes
