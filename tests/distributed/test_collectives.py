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


def gather(x):
    y = x * 2
    parts = [torch.empty_like(y) for _ in range(2)] if dist.get_rank() == 1 else None
    dist.gather(y, parts, dst=1)
    return torch.cat(parts) + 1 if parts else y - 1


def reduce(x):
    y = x * 2
    dist.reduce(y, 1)
    return y + 1


def reduce_scatter_of_a_list(x):
    out = torch.empty(3)
    dist.reduce_scatter(out, [x[0] * 2, x[1] + 1])
    return out + 1


def all_gather_single(x):
    y = x * 2
    out = torch.empty(2 * y.shape[0], y.shape[1])
    dist.all_gather_single(out, y)
    return out + 1


def reduce_scatter_single(x):
    out = torch.empty(1, 3)
    dist.reduce_scatter_single(out, x * 2)
    return out + 1


def all_to_all_single(x):
    y, out = x * 2, torch.empty(2, 3)
    dist.all_to_all_single(out, y)
    return out + 1


def of_a_group_by_keywords(x):
    y = x * 2
    dist.all_reduce(tensor=y, op=dist.ReduceOp.MAX, group=dist.group.WORLD, async_op=False)
    return y + 1


def versions(x):
    y, parts = x * 2, [torch.zeros(2, 3) for _ in range(2)]
    dist.all_reduce(y)
    dist.broadcast(y[0], 0)
    dist.all_gather(parts, y)
    dist.all_reduce(x)
    return y, parts[0], parts[1], x


def queued(x):
    from torch.distributed.distributed_c10d import _coalescing_manager

    y, z = x * 2, x * 3
    with _coalescing_manager():
        dist.all_reduce(y)
        before = y + 0
        dist.all_reduce(z)
    return y + z, before


def read_by_a_derivative(x, weight=torch.ones(2, 3, requires_grad=True)):
    z = x * 2
    loss = (weight * z).sum()
    dist.all_reduce(z)  # torch does not notice that what it saved is something else now
    return torch.autograd.grad(loss, [weight])[0] if loss.requires_grad else loss


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


def reduced_and_scaled(x):
    dist.all_reduce(x)
    return x * 2


def fails_behind_a_function_that_reduces(x):
    y = reduced_and_scaled(x) + 1
    z = reduced_and_scaled(y)
    return z[torch.tensor([7])]


def fails_behind_a_compiled_function_that_reduces(x):
    y = framejit.compile(reduced_and_scaled)(x) + 1
    dist.barrier()
    return y[torch.tensor([7])]


def catches_what_fails(x):
    y = x * 2
    dist.all_reduce(y)
    try:
        z = y[torch.tensor([7])]
    except IndexError:
        z = y * 3
    dist.all_reduce(z)
    return z, y


def fails_in_front_of_another(x):
    """The first is not made, and what the handler makes is not it."""
    y = x.reshape(6, 1) * torch.ones(1, 4000)
    w = y + 1
    try:
        z = y[torch.arange(6) + 3] * 3  # read behind the call
    except IndexError:
        z = y * 5
        dist.all_reduce(z)
        return z
    dist.all_reduce(w)
    return z + w


def divides_in_front_of_another(x):
    y = x.long() + 1
    z = y // (y - y)
    dist.all_reduce(x)
    return z + x


def warned_about_in_front_of_another(x):
    import numpy as np

    with np.errstate(divide="raise"):
        try:
            y = 1 / (x.numpy() * 0)
        except FloatingPointError:
            x = x * 3
            dist.all_reduce(x)
            return x
        dist.all_reduce(x)
    return x + torch.from_numpy(y)


def fails_in_the_second(x):
    y = x * 2
    dist.all_reduce(y)
    x += y
    dist.all_reduce(y, op=dist.ReduceOp.BAND)  # not of floats
    return y


def divides_integers(x):
    y = x.long() + 1
    dist.all_reduce(y)
    x += y
    return y // (y - y)


PROGRAMS = [sum_of_both, one_feeds_the_next, changed_between, in_a_loop, into_the_argument, through_a_view, broadcast, all_gather,
            all_gather_into_one, reduce_scatter, scatter, waited_for_later, functional, objects, rank_and_size, barrier,
            from_one_to_the_other, fails_afterwards, gather, reduce, reduce_scatter_of_a_list, all_gather_single, reduce_scatter_single,
            all_to_all_single, of_a_group_by_keywords, versions, queued, read_by_a_derivative,
            fails_behind_a_function_that_reduces, fails_behind_a_compiled_function_that_reduces, catches_what_fails, fails_in_the_second,
            divides_integers, fails_in_front_of_another, divides_in_front_of_another, warned_about_in_front_of_another]
# One graph each: the collective is a node of it.
WHOLE = [sum_of_both, one_feeds_the_next, in_a_loop, into_the_argument, through_a_view, broadcast, all_gather, barrier, reduce,
         reduce_scatter_of_a_list, all_gather_single, reduce_scatter_single, all_to_all_single, of_a_group_by_keywords, versions,
         rank_and_size]
NAMES = [program.__name__ for program in PROGRAMS]


def outcome(function, x):
    try:
        results = function(x)
    except Exception as error:
        return type(error), str(error), x, x._version
    results = results if isinstance(results, tuple) else (results,)
    return [torch.as_tensor(result) * 1 for result in results], [result._version for result in results], x, x._version


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


def run_in_one_graph(rank):
    """What is not one graph is an error."""
    for program in WHOLE:
        framejit.reset()
        compiled = framejit.compile(program, fullgraph=True)
        with torch.no_grad():
            for call in range(3):
                compiled(torch.arange(6.0).reshape(2, 3) + rank)
        info = framejit.cache_info()
        assert (info["graphs"], info["eager_replays"], info["internal_errors"]) == (1, 0, 0), (program.__name__, info)
    return len(WHOLE)


FAILING = {fails_afterwards: 1, fails_behind_a_function_that_reduces: 2, fails_behind_a_compiled_function_that_reduces: 2, catches_what_fails: 2,
           divides_integers: 1, fails_in_front_of_another: 1, divides_in_front_of_another: 0}


def run_count_of_collectives_of_programs_that_fail(rank):
    """{program: (collectives the group has begun in each of three calls, pieces that were run again)}"""
    group, counts = dist.distributed_c10d._get_default_group(), {}
    for program in FAILING:
        framejit.reset()
        compiled, begun = framejit.compile(program), []
        for _ in range(3):
            before = group._get_sequence_number_for_group()
            outcome(compiled, torch.arange(6.0).reshape(2, 3))
            begun.append(group._get_sequence_number_for_group() - before)
        counts[program.__name__] = begun, framejit.cache_info()["eager_replays"]
    return counts


def run_memory_that_processes_share(rank):
    """A collective orders what they write: such a piece is not run as one program."""
    compiled = framejit.compile(into_the_argument)
    shared = torch.arange(6.0).reshape(2, 3).share_memory_()
    lent = torch.frombuffer(bytearray(24), dtype=torch.float32)
    found = [compiled(shared), shared, compiled(lent), lent]
    return [tensor.clone() for tensor in found], framejit.cache_info()["eager_replays"]


def run_beside_a_gradient(rank):
    group = dist.distributed_c10d._get_default_group()

    def program(x, w):
        y = torch.sin(x * w)
        mean = y.detach().mean().clone()
        dist.all_reduce(mean)
        dist.barrier()
        return (y * mean).sum(), mean

    def outcomes(function):
        found = []
        for call in range(3):
            x, w = torch.arange(6.0).reshape(2, 3) + rank * 10 + call, torch.full((2, 3), 0.5, requires_grad=True)
            before = group._get_sequence_number_for_group()
            loss, mean = function(x, w)
            loss.backward()
            found.append((loss.detach(), mean, w.grad, torch.tensor(group._get_sequence_number_for_group() - before)))
        return found

    framejit.reset()
    return outcomes(framejit.compile(program)), outcomes(program), framejit.cache_info()


def run_training_step(rank):
    """Gradients averaged by hand, in the step: one graph."""

    def train(wrap):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.25)

        def step(x):
            loss = (module(x) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            for parameter in module.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        return [step(torch.arange(6.0).reshape(2, 3) + rank * 10) for _ in range(4)] + [parameter.detach() for parameter in module.parameters()]

    eager = train(lambda step: step)
    framejit.reset()
    return train(framejit.compile), eager, framejit.cache_info()


def run_traceback_of_the_second(rank):
    import traceback

    def entries(function):
        try:
            function(torch.ones(2, 3))
        except RuntimeError as error:
            return [(entry.name, entry.line) for entry in traceback.extract_tb(error.__traceback__) if "framejit" not in entry.filename]

    compiled = framejit.compile(fails_in_the_second)
    return [entries(compiled), entries(compiled)], [entries(fails_in_the_second)] * 2


def run_context_of_what_a_collective_raises(rank):
    def program(x):
        y = x * 2
        try:
            [][0]
        except IndexError:
            dist.all_reduce(y, op=dist.ReduceOp.BAND)  # not of floats

    def contexts(function):
        try:
            function(torch.ones(2, 3))
        except RuntimeError as error:
            return [type(error.__context__), type(error.__context__.__context__)]

    compiled = framejit.compile(program)
    return [contexts(compiled), contexts(compiled)], [contexts(program)] * 2


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
    others = ["run_count_of_collectives", "run_in_one_graph", "run_count_of_collectives_of_programs_that_fail", "run_memory_that_processes_share",
              "run_traceback_of_the_second", "run_context_of_what_a_collective_raises", "run_training_step", "run_beside_a_gradient"]
    return two_processes.run(__name__, ["run_" + name for name in NAMES] + others)


@pytest.mark.parametrize("name", NAMES)
def test_a_collective_gives_what_it_gives_in_eager(results, name):
    for equal, info, pairs in two_processes.checked(results["run_" + name]):
        assert equal, pairs
        assert info["graphs"] > 0 and info["internal_errors"] == 0, info


def test_each_call_runs_each_collective_once(results):
    """Their order shows in the results: none of the programs has two collectives that could change places."""
    for counts in two_processes.checked(results["run_count_of_collectives"]):
        assert counts == [3, 3, 3]


def test_collectives_are_nodes_of_one_graph(results):
    assert two_processes.checked(results["run_in_one_graph"]) == [len(WHOLE)] * 2


def test_a_program_that_fails_behind_a_collective_does_not_repeat_it(results):
    for counts in two_processes.checked(results["run_count_of_collectives_of_programs_that_fail"]):
        for program, count in FAILING.items():
            begun, replays = counts[program.__name__]
            assert begun == [count] * 3 and replays >= 2, (program.__name__, counts)


def test_memory_that_processes_share_is_written_in_order(results):
    for (first, shared, second, lent), replays in two_processes.checked(results["run_memory_that_processes_share"]):
        assert torch.equal(shared, torch.arange(6.0).reshape(2, 3) * 2 + 1) and torch.equal(first, shared * 2)
        assert torch.equal(lent, torch.ones(6)) and torch.equal(second, lent * 2)
        assert replays == 2


def test_what_a_collective_raises_has_the_traceback_of_eager(results):
    for ours, eager in two_processes.checked(results["run_traceback_of_the_second"]):
        assert ours == eager


def test_what_a_collective_raises_in_a_handler_has_the_context_of_eager(results):
    for ours, eager in two_processes.checked(results["run_context_of_what_a_collective_raises"]):
        assert ours == eager == [[IndexError, type(None)]] * 2


def test_a_collective_of_what_needs_no_gradient_beside_what_does(results):
    for ours, eager, info in two_processes.checked(results["run_beside_a_gradient"]):
        for got, wanted in zip(ours, eager):
            torch.testing.assert_close(got, wanted)
        assert info["breaks"] == info["internal_errors"] == 0 and info["hits"] == 2, info


def test_a_training_step_with_collectives_is_one_graph(results):
    for ours, eager, info in two_processes.checked(results["run_training_step"]):
        for got, wanted in zip(ours, eager):
            torch.testing.assert_close(got, wanted)
        # The first step makes the gradients, the others add to them.
        assert info["breaks"] == info["eager_replays"] == info["internal_errors"] == 0 and info["hits"] >= 2, info
