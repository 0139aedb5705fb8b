"""Collectives of torch.distributed in compiled code: run once for each call, in the order written, never while tracing; what is around
them is compiled."""
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

import torch.distributed as dist

import framejit
import two_processes


# ---- programs: what each computes depends on both processes ------------------------------------------------------


def sum_of_both(x):
    y = x * 2 + 1
    dist.all_reduce(y)
    return y * 3


def one_feeds_the_next(x):
    y = x * 2 + 1
    z = x - 5
    dist.all_reduce(y)
    z = z + y
    dist.all_reduce(z, op=dist.ReduceOp.MAX)
    return y * 3, z.sum()


def changed_between(x):
    y = x + 1
    dist.all_reduce(y)
    y *= dist.get_rank() + 1
    dist.all_reduce(y)
    return y - x


def in_a_loop(x):
    for i in range(3):
        x = x * 0.5 + i
        dist.all_reduce(x)
    return x


def into_the_argument(x):
    dist.all_reduce(x)
    x += 1
    return x * 2


def through_a_view(x):
    y = x * 2
    dist.all_reduce(y[0])
    return y + 1


def broadcast(x):
    y = x * 2 + 1
    dist.broadcast(y, src=1)
    return y + x


def all_gather(x):
    y = x * 2
    parts = [torch.empty_like(y) for _ in range(2)]
    dist.all_gather(parts, y)
    return torch.cat(parts) + 1


def all_gather_into_one(x):
    y = x * 2
    out = torch.empty(2 * y.shape[0], y.shape[1])
    dist.all_gather_into_tensor(out, y)
    return out + 1


def reduce_scatter(x):
    out = torch.empty(1, 3)
    dist.reduce_scatter_tensor(out, x * 2)
    return out + 1


def scatter(x):
    y = torch.empty(3)
    dist.scatter(y, [x[0] * 1, x[1] * 2] if dist.get_rank() == 0 else None, src=0)
    return y * 2


def waited_for_later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


def functional(x):
    import torch.distributed._functional_collectives as functional_collectives

    return functional_collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


def objects(x):
    ranks = [None, None]
    dist.all_gather_object(ranks, float(dist.get_rank()))
    return x * ranks[1] + ranks[0]


def rank_and_size(x):
    return x * (dist.get_rank() + 1) / dist.get_world_size()


def barrier(x):
    y = x + 1
    dist.barrier()
    return y * 2


def from_one_to_the_other(x):
    y = x * 2
    if dist.get_rank() == 0:
        dist.send(y, 1)
    else:
        dist.recv(y, 0)
    return y + 1


def fails_afterwards(x):
    y = x * 2
    dist.all_reduce(y)
    z = y + 1
    return z[torch.tensor([7])]  # no such row


PROGRAMS = [sum_of_both, one_feeds_the_next, changed_between, in_a_loop, into_the_argument, through_a_view, broadcast, all_gather,
            all_gather_into_one, reduce_scatter, scatter, waited_for_later, functional, objects, rank_and_size, barrier,
            from_one_to_the_other, fails_afterwards]
NAMES = [program.__name__ for program in PROGRAMS]


def outcome(function, x):
    try:
        results = function(x)
    except Exception as error:
        return type(error), str(error), x
    return [torch.as_tensor(result) * 1 for result in (results if isinstance(results, tuple) else (results,))], x


def same(ours, eager):
    if isinstance(ours, (tuple, list)):
        return len(ours) == len(eager) and all(map(same, ours, eager))
    return torch.equal(ours, eager) if isinstance(ours, torch.Tensor) else ours == eager


def compared(program, rank):
    """(all outcomes are eager's, what calls did, outcomes), with gradient mode on and off."""
    pairs, info = [], None
    compiled = framejit.compile(program)
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of old names
            for call in range(3):
                x = torch.arange(6.0).reshape(2, 3) + rank * 10 + call
                pairs.append([outcome(compiled, x.clone()), outcome(program, x.clone())])
        info = framejit.cache_info()
    return all(same(ours, eager) for ours, eager in pairs), info, pairs


for program in PROGRAMS:
    globals()["run_" + program.__name__] = (lambda program: lambda rank: compared(program, rank))(program)


def run_count_of_collectives(rank):
    """How many collectives the process group has begun after each of three calls, the first of which traces."""
    group = dist.distributed_c10d._get_default_group()

    def program(x):
        y = x + 1
        dist.all_reduce(y)
        z = y * 2
        dist.broadcast(z, src=0)
        parts = [torch.empty_like(z) for _ in range(2)]
        dist.all_gather(parts, z)
        return parts[0] + parts[1]

    compiled, counts = framejit.compile(program), [group._get_sequence_number_for_group()]
    for _ in range(3):
        compiled(torch.ones(2, 3))
        counts.append(group._get_sequence_number_for_group())
    return [after - before for before, after in zip(counts, counts[1:])]


@pytest.fixture(scope="module")
def results():
    return two_processes.run(__name__, ["run_" + name for name in NAMES] + ["run_count_of_collectives"])


@pytest.mark.parametrize("name", NAMES)
def test_a_collective_gives_what_it_gives_in_eager(results, name):
    for equal, info, pairs in two_processes.checked(results["run_" + name]):
        assert equal, pairs
        assert info["graphs"] > 0 and info["internal_errors"] == 0, info


def test_each_call_runs_each_collective_once(results):
    """Their order shows in the results: none of the programs has two collectives that could change places."""
    for counts in two_processes.checked(results["run_count_of_collectives"]):
        assert counts == [3, 3, 3]
