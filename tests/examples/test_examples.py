"""Every example gives what eager gives, in as many graphs and breaks as it promises."""
import numpy as np
import pytest

import framejit
from harness import Outcome, both_libraries, compare, needs_torch, same_as_eager, torch

import add_mul
import branch
import chain_ops
import printing

if torch is not None:
    import activation
    import bridges
    import mixed
    import test_net


@both_libraries
def test_chain_ops_is_one_graph_and_one_kernel(lib):
    function = getattr(chain_ops, "chain_" + lib.name)
    run = same_as_eager(function, *chain_ops.arguments(lib.name, 256), breaks=())
    assert len(run.graphs) == 1 and run.kernels == 1


@both_libraries
def test_add_mul_is_one_kernel(lib):
    run = same_as_eager(add_mul.add_mul, *add_mul.arguments(lib.name, 1000), breaks=())
    assert len(run.graphs) == 1 and run.kernels == 1


@both_libraries
def test_concat_with_changing_lengths_is_traced_at_most_three_times(lib):
    function = getattr(add_mul, "concat_" + lib.name)
    compiled = framejit.compile(function)
    for first, second in [(5, 7), (6, 9), (1, 3), (0, 4), (100, 28), (1000, 1), (17, 17), (2, 0)]:
        arguments = add_mul.concat_arguments(lib.name, first, second)
        compare(Outcome(compiled, arguments, {}), Outcome(function, arguments, {}))
    info = framejit.cache_info()
    assert info["graphs"] <= 3 and info["internal_errors"] == 0 and info["eager_replays"] == 0
    assert framejit.explain(compiled).so_far().kernel_count <= info["graphs"]


@both_libraries
def test_both_sides_of_a_branch_are_compiled(lib):
    compiled = framejit.compile(branch.branch)
    x = lib.sample((6, 5), "positive")
    for arguments in [(x,), (-x,), (x,), (-x,)]:
        compare(Outcome(compiled, arguments, {}), Outcome(branch.branch, arguments, {}))
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) == 3
    assert {b.name for b in report.breaks} == {"BranchOnData"}
    assert report.breaks[0].number == "FJ104" and "if x.mean() > 0" in report.text()
    assert framejit.cache_info()["internal_errors"] == 0


@both_libraries
def test_print_between_keeps_both_sides_compiled(lib):
    run = same_as_eager(printing.print_between, lib.sample((4, 4)), calls=3, breaks=["Print"])
    assert len(run.graphs) == 2


@both_libraries
def test_print_in_a_loop_compiles_the_body_once(lib):
    run = same_as_eager(printing.print_in_loop, lib.sample((4, 4)), calls=3)
    assert set(run.breaks) == {"Print"}
    # What runs before the print and what runs after it, whatever the number of iterations.
    assert len(run.graphs) == 2


@needs_torch
def test_module_with_branches_on_data_takes_every_path():
    net = test_net.TestNet()
    compiled = framejit.compile(net)
    with torch.no_grad():
        for _ in range(2):
            for name, x in test_net.arguments().items():
                compare(Outcome(compiled, (x,), {}), Outcome(net, (x,), {}))
    report = framejit.explain(compiled).so_far()
    assert {b.name for b in report.breaks} == {"BranchOnData"}
    assert len({b.line for b in report.breaks}) == 2
    assert framejit.cache_info()["internal_errors"] == 0
    assert framejit.cache_info()["eager_replays"] == 0


@needs_torch
def test_no_array_kernel_runs_while_tracing():
    """Modes and profilers see eager's operations. So: each of these would need 512 GiB, and tracing them goes through."""
    def f(x, weight):
        y = torch.relu(x.sin() * 2 + x @ weight)
        return y.sum(0), y.flatten() > x.mean(), torch.nn.functional.linear(y, weight)

    class Traced(Exception):
        pass

    def backend(graph, inputs):
        raise Traced(len(graph.nodes))

    x, weight = torch.ones(1, 1).expand(1 << 27, 1 << 10), torch.ones(1, 1).expand(1 << 10, 1 << 10)
    with pytest.raises(framejit.BackendError) as raised:
        framejit.compile(f, backend=backend)(x, weight)
    assert isinstance(raised.value.__cause__, Traced) and raised.value.__cause__.args[0] > 10


@needs_torch
def test_flag_that_changes_between_calls():
    module = activation.Switch()
    compiled = framejit.compile(module)
    arguments = activation.arguments()
    with torch.no_grad():
        for flag in (False, True, False, True, True):
            module.use_gelu = flag
            compare(Outcome(compiled, arguments, {}), Outcome(module, arguments, {}))
    report = framejit.explain(compiled).so_far()
    assert len(report.graphs) == 2 and not report.breaks
    assert any("use_gelu" in reason for reason in report.recompiles), report.recompiles


@needs_torch
def test_mixed_libraries_are_one_kernel():
    run = same_as_eager(mixed.mixed, *mixed.arguments(), breaks=())
    assert len(run.graphs) == 1 and run.kernels == 1


@needs_torch
def test_a_graph_is_edited_in_torch_fx_and_comes_back():
    module = framejit.capture(bridges.scaled, *bridges.arguments(), dynamic_shapes={"x": {0: "rows"}}).to_fx()
    graph = framejit.from_fx(bridges.without_relu(module))
    for rows in (4, 7):
        x, weight = bridges.arguments(rows)
        torch.testing.assert_close(graph(x=x, weight=weight)[0], x @ weight * 2)


@needs_torch
def test_a_back_end_of_torch_compile_compiles_graphs():
    seen = []
    compiled = framejit.compile(bridges.scaled, backend=framejit.fx_backend(bridges.counting_backend(seen)))
    x, weight = bridges.arguments()
    torch.testing.assert_close(compiled(x, weight), bridges.scaled(x, weight))
    assert len(seen) == 1
