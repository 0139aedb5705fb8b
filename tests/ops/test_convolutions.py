"""Convolutions of little work are operations of the graph; the others are the library's."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import framejit

F = torch.nn.functional

# (function, input, weight, bias or not, further arguments)
SMALL = {
    "1d": (torch.conv1d, (2, 3, 10), (4, 3, 3), True, {}),
    "1d, padded, in steps": (torch.conv1d, (2, 3, 10), (4, 3, 4), False, {"stride": 3, "padding": 2}),
    "2d": (torch.conv2d, (2, 3, 6, 7), (5, 3, 3, 2), True, {"padding": 1}),
    "2d, of one image and one channel": (torch.conv2d, (1, 1, 8, 8), (1, 1, 3, 3), True, {"padding": (0, 2)}),
    "2d, of single elements": (torch.conv2d, (3, 4, 5, 5), (6, 4, 1, 1), True, {}),
    "2d, of single elements in steps": (torch.conv2d, (3, 4, 5, 5), (6, 4, 1, 1), False, {"stride": 2}),
    "2d, with gaps": (torch.conv2d, (2, 3, 11, 9), (5, 3, 3, 3), True, {"dilation": (2, 3), "stride": (1, 2), "padding": [2, 3]}),
    "2d, of the whole image": (torch.conv2d, (4, 2, 5, 5), (3, 2, 5, 5), True, {}),
    "2d, lists of one number": (torch.conv2d, (1, 2, 5, 5), (3, 2, 2, 2), True, {"stride": [2], "padding": (1,)}),
    "3d": (torch.conv3d, (2, 2, 5, 4, 6), (3, 2, 2, 3, 3), True, {"padding": (1, 0, 1), "stride": (2, 1, 1)}),
}
CALLS = {
    "groups": (torch.conv2d, (2, 4, 6, 6), (4, 2, 3, 3), True, {"groups": 2}),
    "a padding in words": (torch.conv2d, (2, 4, 6, 6), (4, 4, 3, 3), True, {"padding": "same"}),
    "no axis of images": (torch.conv2d, (4, 6, 6), (4, 4, 3, 3), True, {}),
    "no images": (torch.conv2d, (0, 4, 6, 6), (4, 4, 3, 3), True, {}),
    "much work": (torch.conv2d, (8, 32, 16, 16), (32, 32, 3, 3), True, {"padding": 1}),
}


def tensors(shapes, bias, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = [*shapes, shapes[1][:1]] if bias else shapes
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.stride() == expected.stride() and found.is_contiguous()


@pytest.mark.parametrize("name", SMALL)
def test_a_small_convolution_is_a_product(name):
    function, *shapes, bias, more = SMALL[name]
    given = tensors(shapes, bias)

    def convolved(*arguments):
        return function(*arguments, **more)

    compiled = framejit.compile(convolved, fullgraph=True)
    report = framejit.explain(convolved)(*given)
    assert "matmul" in str(report.graphs[0]) and "extern_call" not in str(report.graphs[0])
    for _ in range(2):
        close(compiled(*given), convolved(*given))


@pytest.mark.parametrize("name", CALLS)
def test_another_is_the_librarys(name):
    function, *shapes, bias, more = CALLS[name]
    given = tensors(shapes, bias)

    def convolved(*arguments):
        return function(*arguments, **more) * 2

    report = framejit.explain(convolved)(*given)
    assert all("matmul" not in str(graph) for graph in report.graphs)
    close(framejit.compile(convolved)(*given), convolved(*given))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_of_other_dtypes_it_is_the_librarys(dtype):
    x, weight = tensors([(2, 3, 6, 6), (4, 3, 3, 3)], False, dtype)
    assert torch.equal(framejit.compile(torch.conv2d)(x, weight), torch.conv2d(x, weight))


def test_of_bfloat16_it_is_computed_in_float32_and_rounded_once():
    x, weight = tensors([(2, 3, 6, 6), (4, 3, 3, 3)], False, torch.bfloat16)
    assert "extern_call" not in str(framejit.explain(torch.conv2d)(x, weight).graphs[0])
    torch.testing.assert_close(framejit.compile(torch.conv2d)(x, weight), torch.conv2d(x.float(), weight.float()).bfloat16(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("image", [(2, 1, 8, 8), (2, 3, 1, 4), (1, 1, 1, 1), (2, 1, 1, 4), (1, 3, 4, 4)])
@pytest.mark.parametrize("kernel", [(4, 1, 1), (1, 1, 1), (4, 3, 3), (1, 1, 3)])
def test_where_axes_of_one_element_decide_the_layout(image, kernel):
    """One function for all layouts, which differ in the strides of axes of one element."""
    def laid_out(x):
        return x, x.to(memory_format=torch.channels_last), x.transpose(0, 1).contiguous().transpose(0, 1)

    def convolved(x, weight):
        return F.conv2d(x, weight, None, 1, 1)

    compiled = framejit.compile(convolved)
    for x in laid_out(torch.randn(image)):
        for weight in laid_out(torch.randn(kernel[0], image[1], *kernel[1:])):
            found, expected = compiled(x, weight), convolved(x, weight)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert found.stride() == expected.stride()


def test_the_format_of_channels_last_is_kept():
    x, weight = tensors([(2, 3, 6, 6), (4, 3, 3, 3)], False)
    for a, b in [(x.to(memory_format=torch.channels_last), weight), (x, weight.to(memory_format=torch.channels_last))]:
        found, expected = framejit.compile(F.conv2d)(a, b), F.conv2d(a, b)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("derived", [(True, True), (True, False), (False, True)])
def test_gradients_of_both_orders(name, derived):
    function, *shapes, bias, more = SMALL[name]

    def loss(*arguments):
        return function(*arguments, **more).square().mean()

    def gradients(f):
        given = tensors(shapes, bias)
        for tensor, wanted in zip(given, derived):
            tensor.requires_grad_(wanted)
        leaves = [tensor for tensor in given if tensor.requires_grad]
        first = torch.autograd.grad(f(*given), leaves, create_graph=True)
        sum(gradient.square().sum() for gradient in first).backward()
        return [*first, *(leaf.grad for leaf in leaves)]

    compiled = framejit.compile(loss)
    for _ in range(2):
        for found, expected in zip(gradients(compiled), gradients(loss)):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_sizes_that_change_over_the_bound():
    """One graph up to it, the library beyond it; a length of rows that changes is the library's."""
    def convolved(x, weight):
        return torch.relu(torch.conv2d(x, weight, None, 1, 1))

    compiled = framejit.compile(convolved)
    weight = torch.randn(8, 4, 3, 3)
    for images in (1, 3, 70, 2, 90, 1):
        x = torch.randn(images, 4, 8, 8)
        close(compiled(x, weight), convolved(x, weight))
    for width in (9, 10, 12):
        x = torch.randn(2, 4, 8, width)
        close(compiled(x, weight), convolved(x, weight))


@pytest.mark.parametrize("shapes", [[(2, 3, 6, 6), (4, 2, 3, 3)], [(2, 3, 2, 6), (4, 3, 3, 3)], [(2, 3, 6), (4, 3, 3, 3)]])
def test_what_the_library_refuses_is_its_error(shapes):
    x, weight = tensors(shapes, False)
    with pytest.raises(RuntimeError) as expected:
        torch.conv2d(x, weight)
    with pytest.raises(RuntimeError) as found:
        framejit.compile(lambda x, w: torch.conv2d(x, w) + 1)(x, weight)
    assert str(found.value) == str(expected.value)


def test_a_weight_written_before_backward_is_eagers_error():
    def convolved(x, weight):
        return torch.conv2d(x, weight)

    for f in (convolved, framejit.compile(convolved)):
        x, weight = tensors([(2, 3, 6, 6), (4, 3, 3, 3)], False)
        weight.requires_grad_()
        result = f(x, weight)
        with torch.no_grad():
            weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_captured_graph_keeps_the_call():
    graph = framejit.capture(torch.nn.Conv2d(3, 4, 3), torch.randn(2, 3, 6, 6))
    assert [node.op for node in graph if "conv2d" in str(node.attrs.get("callee"))] == ["extern_call"] and not graph.find(op="matmul")


def test_a_small_network_trains_as_eager():
    def network():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                   torch.nn.Conv2d(6, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 4))

    models = [network(), network()]
    steps = [models[0], framejit.compile(models[1])]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    x, y = torch.randn(8, 1, 8, 8), torch.randint(4, (8,))
    for _ in range(6):
        losses = []
        for step, optimizer in zip(steps, optimizers):
            optimizer.zero_grad()
            losses.append(F.cross_entropy(step(x), y))
            losses[-1].backward()
            optimizer.step()
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    for found, expected in zip(models[1].parameters(), models[0].parameters()):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
