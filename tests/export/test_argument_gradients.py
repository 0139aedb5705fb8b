"""What a program's code has decided by what autograd knows of an argument holds in each call, or the call is refused."""
import pytest

import framejit
from framejit import ExportedProgram, Graph, GraphError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")


def ways(tmp_path, f, *args, **options):
    """The graph from a file, the program, and the program from a file."""
    framejit.capture(f, *args, **options).save(tmp_path / "f.graph")
    program = framejit.export(f, args, **options)
    program.save(tmp_path / "f.program")
    return Graph.load(tmp_path / "f.graph"), program, ExportedProgram.load(tmp_path / "f.program")


def plain():
    return torch.arange(6.0).reshape(2, 3)


def leaf():
    return plain().requires_grad_()


def computed():
    return leaf() + 0


def by_requires_grad(x):
    return x * 2 if x.requires_grad else x * 3


def by_leaf(x):
    return x * 2 if x.is_leaf else x * 3


def by_what_is_computed(x):
    y = x + 1
    return y * 2 if y.requires_grad else y * 3


def by_a_view(x):
    y = x[0]
    return x * 2 if y.requires_grad else x * 3


def by_what_is_not_read(x, y):
    return x * 2 if y.requires_grad else x * 3


def by_the_mode(x):
    return x * 2 if torch.is_grad_enabled() else x * 3


def by_inference(x):
    return x * 2 if x.is_inference() else x * 3


@pytest.mark.parametrize("f", [by_requires_grad, by_leaf, by_what_is_computed, by_a_view])
@pytest.mark.parametrize("captured", [plain, leaf, computed])
@pytest.mark.parametrize("called", [plain, leaf, computed])
def test_the_answer_is_eagers_or_the_call_is_refused(tmp_path, f, captured, called):
    for program in ways(tmp_path, f, captured()):
        try:
            found = program(called())
        except GraphError as error:
            assert "by which its code decided something" in str(error)
            assert f(captured()).sum() != f(called()).sum() or captured is not called
        else:
            assert torch.equal(found, f(called()))
    for program in ways(tmp_path, f, captured()):
        assert torch.equal(program(captured()), f(captured()))


def test_of_an_argument_that_is_not_read(tmp_path):
    for program in ways(tmp_path, by_what_is_not_read, plain(), leaf()):
        assert torch.equal(program(plain(), leaf()), plain() * 2)
        with pytest.raises(GraphError, match="y.requires_grad == True"):
            program(plain(), plain())


def test_of_the_mode(tmp_path):
    for program in ways(tmp_path, by_the_mode, plain()):
        assert torch.equal(program(plain()), plain() * 2)
        with torch.no_grad(), pytest.raises(GraphError, match=r"torch.is_grad_enabled\(\) == True"):
            program(plain())


def test_of_inference_tensors(tmp_path):
    with torch.inference_mode():
        x = plain()
    for program in ways(tmp_path, by_inference, plain()):
        assert torch.equal(program(plain()), plain() * 3)
        with pytest.raises(GraphError, match=r"x.is_inference\(\) == False"):
            program(x)


def unrecorded(x):
    with torch.no_grad():
        return x * 2


def stopped(x):
    return (x * 2).detach() * x


def stopped_in_part(x):
    with torch.no_grad():
        w = x * 2
    return w * x


@pytest.mark.parametrize("f", [unrecorded, stopped, stopped_in_part])
def test_where_a_derivative_stops(tmp_path, f):
    for program in ways(tmp_path, f, plain()):
        assert torch.equal(program(plain()), f(plain()))
        with pytest.raises(GraphError, match="x.requires_grad == False"):
            program(leaf())
    for program in ways(tmp_path, f, leaf()):
        for called in (plain, leaf):
            one, other = called(), called()
            found, expected = program(one), f(other)
            assert torch.equal(found, expected) and found.requires_grad == expected.requires_grad
            if expected.requires_grad:
                found.sum().backward()
                expected.sum().backward()
                assert torch.equal(one.grad, other.grad)


def asked_in_another_mode(x):
    y = x + 1
    with torch.no_grad():
        required = y.requires_grad
    return y * 2 if required else y * 3


def asked_after_writes(x):
    y = torch.zeros(2, 3)
    y[:] = x
    y.zero_()
    return x * 2 if y.requires_grad else x * 3


@pytest.mark.parametrize("f", [asked_in_another_mode, asked_after_writes])
def test_of_what_was_computed_before(tmp_path, f):
    for program in ways(tmp_path, f, plain()):
        assert torch.equal(program(plain()), f(plain()))
        with pytest.raises(GraphError, match="requires_grad == False"):
            program(leaf())
    for program in ways(tmp_path, asked_in_another_mode, leaf()):
        with torch.no_grad(), pytest.raises(GraphError, match="is_grad_enabled"):
            program(leaf())


def test_of_a_computed_inference_tensor(tmp_path):
    def f(x):
        y = x + 1
        return y * 2 if y.is_inference() else y * 3

    for program in ways(tmp_path, f, plain()):
        assert torch.equal(program(plain()), f(plain()))
        with torch.inference_mode(), pytest.raises(GraphError, match="is_inference_mode_enabled"):
            program(plain())


def test_what_decides_nothing_is_free(tmp_path):
    for program in ways(tmp_path, lambda x: x * 2, plain()):
        for called in (plain, leaf, computed):
            assert torch.equal(program(called()), plain() * 2)
        with torch.no_grad():
            assert torch.equal(program(plain()), plain() * 2)


def test_libraries_of_c_and_onnx_have_no_gradients(tmp_path):
    framejit.export(by_requires_grad, (plain(),)).build(tmp_path / "lib")
    with pytest.raises(GraphError, match="requires no gradient"):
        framejit.export(by_requires_grad, (leaf(),)).build(tmp_path / "lib")
    pytest.importorskip("onnx", reason="onnx is not installed")
    framejit.capture(by_requires_grad, plain()).to_onnx(tmp_path / "f.onnx")
    with pytest.raises(GraphError, match="requires no gradient"):
        framejit.capture(by_requires_grad, leaf()).to_onnx(tmp_path / "f.onnx")
