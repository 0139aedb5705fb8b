"""What a program's code has decided by how an argument lies in memory holds in each call, or the call is refused."""
import numpy as np
import pytest

import framejit
from framejit import ExportedProgram, Graph, GraphError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")


def rows(kind):
    return torch.arange(6.0).reshape(2, 3) if kind == "torch" else np.arange(6.0).reshape(2, 3)


def columns(kind):
    return torch.arange(6.0).reshape(3, 2).t() if kind == "torch" else np.arange(6.0).reshape(3, 2).T


def ways(tmp_path, f, *args, **options):
    """The graph from a file, the program, and the program from a file."""
    framejit.capture(f, *args, **options).save(tmp_path / "f.graph")
    program = framejit.export(f, args, **options)
    program.save(tmp_path / "f.program")
    return Graph.load(tmp_path / "f.graph"), program, ExportedProgram.load(tmp_path / "f.program")


def by_stride(x):
    return x * x.stride(0)


def by_is_contiguous(x):
    return x * 2 if x.is_contiguous() else x - 1


def by_flags(x):
    return x * 2 if x.flags["C_CONTIGUOUS"] else x - 1


def by_strides(x):
    return x * x.strides[0]


def by_place(x):
    return torch.as_strided(x, (2, 2), (1, 2)) * 1


def by_a_stride_of_what_is_computed(x):
    return x * (x + 1).stride(1)


def writes_what_may_be_a_copy(x):
    y = x.contiguous()
    y += 1
    return x * 2


def writes_what_may_be_a_copy_of_numpy(x):
    y = np.ascontiguousarray(x)
    y += 1
    return x * 2


def writes_a_reshape(x):
    x.reshape(-1)[1:] *= 3
    return x + 0


def writes_a_reshape_of_what_is_computed(x):
    y = x * 2
    y.reshape(-1)[0] = 9
    return y


def gives_what_may_be_itself(x):
    return x.astype(x.dtype, order="C", copy=False), x * 2


def gives_what_may_be_a_view(x):
    return x.ravel(), x * 2


@pytest.mark.parametrize("f, kind", [
    (by_stride, "torch"), (by_is_contiguous, "torch"), (by_place, "torch"), (by_a_stride_of_what_is_computed, "torch"), (writes_what_may_be_a_copy, "torch"),
    (writes_a_reshape, "torch"), (writes_a_reshape_of_what_is_computed, "torch"), (gives_what_may_be_a_view, "torch"), (by_flags, "numpy"), (by_strides, "numpy"),
    (writes_what_may_be_a_copy_of_numpy, "numpy"), (writes_a_reshape, "numpy"), (writes_a_reshape_of_what_is_computed, "numpy"), (gives_what_may_be_itself, "numpy"),
    (gives_what_may_be_a_view, "numpy")], ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("captured, called", [(rows, columns), (columns, rows)], ids=["rows", "columns"])
def test_another_layout_than_the_code_has_seen_is_refused(tmp_path, f, kind, captured, called):
    for program in ways(tmp_path, f, captured(kind)):
        want = f(x := captured(kind))
        got = program(y := captured(kind))
        for a, b in zip((want, x) if not isinstance(want, tuple) else (*want, x), (got, y) if not isinstance(got, tuple) else (*got, y)):
            np.testing.assert_array_equal(a, b)
        untouched = called(kind)
        with pytest.raises(GraphError, match="lies in memory|strides"):
            program(untouched)
        np.testing.assert_array_equal(untouched, called(kind))


def test_a_layout_that_decides_nothing_is_free(tmp_path):
    def f(x, y):
        return x.reshape(-1) * 2, y.contiguous().sum(0), (x @ y).reshape(4).contiguous()

    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
    for program in ways(tmp_path, f, x, y):
        given = columns("torch"), rows("torch").t()
        for got, want in zip(program(*given), f(*given)):
            assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("f, kind", [(lambda x: x.copy(), "numpy"), (lambda x: x.copy(order="F"), "numpy"), (lambda x: x.astype("f4", order="C"), "numpy"),
                                     (lambda x: x.clone(memory_format=torch.contiguous_format), "torch"), (lambda x: (x * 2).contiguous(), "torch")])
def test_a_copy_lies_as_the_code_asks_for(tmp_path, f, kind):
    for program in ways(tmp_path, f, rows(kind)):
        for x in (rows(kind), columns(kind)):
            got, want = program(x), f(x)
            np.testing.assert_array_equal(got, want)
            assert (got.stride() == want.stride()) if kind == "torch" else (got.strides == want.strides)


def test_arguments_that_are_looked_at_and_not_read(tmp_path):
    def f(x, y):
        scale = 2 if x.is_contiguous() else 3
        return y * scale * x.ndim

    x, y = rows("torch"), torch.ones(2)
    graph, program, loaded = ways(tmp_path, f, x, y)
    for g in (graph, program, loaded):
        assert torch.equal(g(x, y), f(x, y))
        for other in (columns("torch"), x[0], x.double(), x.numpy(), None):
            with pytest.raises(GraphError, match="x"):
                g(other, y)


def test_sizes_of_arguments_that_are_not_read(tmp_path):
    def f(x, y):
        return y * x.shape[0] if x.shape[0] > 3 else y

    rows = framejit.Dim("rows", min=4)
    x, y = torch.ones(5, 2), torch.ones(3)
    for g in ways(tmp_path, f, x, y, dynamic_shapes={"x": {0: rows}}):
        assert g(torch.ones(7, 2), y).tolist() == [7.0] * 3
        with pytest.raises(GraphError):
            g(torch.ones(2, 2), y)
        with pytest.raises(GraphError):
            g(torch.ones(7, 3), y)


def test_views_of_arguments_that_are_not_read(tmp_path):
    x, y = rows("numpy"), np.ones(2)
    for g in ways(tmp_path, lambda x, y: (x[1], y * 2), x, y):
        part, twice = g(x, y)
        assert np.shares_memory(part, x) and part.tolist() == [3.0, 4.0, 5.0] and twice.tolist() == [2.0, 2.0]


def test_libraries_of_c_and_onnx_take_contiguous_arrays_alone(tmp_path):
    program = framejit.export(by_stride, (columns("torch"),))
    with pytest.raises(GraphError, match="how x lies in memory, with strides \\(1, 2\\)"):
        program.build(tmp_path)
    pytest.importorskip("onnx", reason="onnx is not installed")
    with pytest.raises(GraphError, match="how x lies in memory"):
        program.graph.to_onnx(tmp_path / "f.onnx")


def test_views_of_arguments_that_lie_otherwise(tmp_path):
    """Of one that the graph does not read either: its elements are shown by their places."""
    x = np.arange(6.0).reshape(3, 2)
    for g in ways(tmp_path, lambda x, y: (x.T, y * 2), x, np.ones(2)):
        assert g(x, np.ones(2))[0].tolist() == x.T.tolist()
        with pytest.raises(GraphError, match="captured with x with strides"):
            g(np.asfortranarray(x), np.ones(2))
    with pytest.raises(GraphError, match=r"result\[0\] is a part of the argument x"):
        framejit.export(lambda x, y: (x.T, y * 2), (x, np.ones(2))).build(tmp_path)
    with pytest.raises(GraphError, match=r"result\[0\] is the argument x"):
        framejit.export(lambda x, y: (x, y * 2), (x, np.ones(2))).build(tmp_path)


def test_detached_results(tmp_path):
    def f(x, y):
        z = x * 2
        return z, z.detach(), y.detach(), z.detach()[1:]

    x, y = torch.ones(3, requires_grad=True), torch.ones(2)
    for g in ways(tmp_path, f, x, y):
        z, apart, given, part = g(x, y)
        assert z.requires_grad and not apart.requires_grad and z.data_ptr() == apart.data_ptr() and given.data_ptr() == y.data_ptr()
        assert part.tolist() == [2.0, 2.0] and part.data_ptr() == z.data_ptr() + 4
    built = framejit.export(lambda x: ((x * 2).detach(), x.sum().detach()), (torch.ones(3),)).build(tmp_path / "c")
    assert "result_0" in built.header.read_text() and "result_1" in built.header.read_text()
