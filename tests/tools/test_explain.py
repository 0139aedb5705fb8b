"""What `explain` says: at most 40 lines of it, all of it as objects, as JSON and as a page."""
import builtins
import html.parser
import io
import json
import os
import pty
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import framejit
from framejit._report.sources import is_library
from harness import needs_torch, torch

X = np.linspace(0.5, 2, 640).reshape(10, 64)


def gain(x, g):
    s = np.sum(x * x, axis=1)
    return x / np.sqrt(s)[:, None] * g


def deep(x):
    if x.sum() > 3:
        return x
    return x + 1


def mid(x):
    return deep(x * 2)


def top(x):
    return mid(x) + 1


def wrong(x):
    y = np.exp(x) + 1
    raise ValueError(f"no [bold]{y.shape}")


def breaking(times):
    """A function of so many lines, each of which ends a graph."""
    lines = "".join(f"    x = np.sin(x)\n    if x.sum() > {i}: x = x + 1\n" for i in range(times))
    space = {"np": np}
    exec(compile(f"def many(x):\n{lines}    return x", "many.py", "exec"), space)
    return space["many"]


def encoder(torch):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()


@pytest.fixture(scope="module")
def encoded():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with torch.no_grad():
        return framejit.explain(encoder(torch))(torch.randn(2, 10, 64))


def in_bounds(report):
    shown = str(report)
    assert repr(report) == shown == report.summary() == f"{report}"
    lines = shown.split("\n")
    assert len(lines) <= 40 and max(map(len, lines)) <= 120 and all(line == line.rstrip() for line in lines)
    return lines


def test_the_first_lines_say_what_was_captured():
    lines = in_bounds(framejit.explain(gain)(X, np.ones(64)))
    assert lines[0] == "gain: 1 graph, 7 operations, 1 kernel, 0 breaks, 0 recompiles"
    assert lines[1].startswith("  The whole function is one graph; compiling took ")
    assert f"  [0] gain(x: f64[10, 64], g: f64[64]): 7 operations, 1 kernel, from test_explain.py:{gain.__code__.co_firstlineno + 1} on" in lines
    assert any(line.startswith("  [0] gain: x: f64[10, 64]; g: f64[64]; ") for line in lines)


def test_a_break_has_its_chain_of_calls_and_what_to_do():
    report = framejit.explain(top)(X)
    (b,) = report.breaks
    assert (b.number, b.calls, b.source) == ("FJ104", ("top", "mid", "deep"), "if x.sum() > 3:")
    assert b.cost and b.remedy and b.cost in str(b) and b.remedy in str(b)
    lines = in_bounds(report)
    assert f"  test_explain.py:{b.line} in top -> mid -> deep" in lines
    assert lines[2].startswith(f"  do first: test_explain.py:{b.line}: where(condition, a, b)")


def test_a_function_that_two_others_call_has_no_single_chain():
    def left(x):
        return deep(x)

    def both(x):
        return left(x) + mid(x)

    assert [b.calls for b in framejit.explain(both)(X).breaks] == [()]


class Scaled:
    def __init__(self):
        self.asked = []

    @property
    def factor(self):
        self.asked.append("factor")
        return 2.0

    def inner(self, x):
        return deep(x) * self.factor

    def __call__(self, x):
        return self.inner(x) + 1


def test_chains_lead_through_methods_and_ask_no_property():
    scaled = Scaled()
    report = framejit.explain(scaled)(X)
    asked = len(scaled.asked)
    assert [b.calls for b in report.breaks if b.number == "FJ104"] == [("Scaled.__call__", "Scaled.inner", "deep")]
    assert framejit.explain(scaled)(X) is not None and len(scaled.asked) <= 2 * asked


def test_a_module_s_break_is_reached_through_the_modules_it_holds():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Inner(torch.nn.Module):
        def forward(self, x):
            return deep(x)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) * 2

    report = framejit.explain(Outer())(torch.ones(5))
    place = "test_a_module_s_break_is_reached_through_the_modules_it_holds.<locals>."
    assert [b.calls for b in report.breaks] == [(place + "Outer.forward", place + "Inner.forward", "deep")]


def test_breaks_that_do_not_fit_are_counted_by_reason():
    report = framejit.explain(breaking(60))(X)
    assert len(report.breaks) == 60
    lines = in_bounds(report)
    shown = sum(line.endswith(" in many") for line in lines)
    assert 2 <= shown < 60
    assert f"  and {60 - shown} more: {60 - shown} FJ104 branch on a value known only when the arrays are computed" in lines
    assert any("more graphs: report.graphs" in line for line in lines)


def test_an_encoder_of_twelve_layers_is_told_in_forty_lines(encoded):
    lines = in_bounds(encoded)
    assert lines[0].startswith("TransformerEncoder: 1 graph, ") and " kernels, 0 breaks" in lines[0]
    assert len(encoded.text().split("\n")) > 1000
    assert not any(kernel.kind == "call" for kernel in encoded.kernels)
    assert {f"layers.{i}" for i in range(12)} <= {kernel.module for kernel in encoded.kernels}
    users = encoded.guards[0].users
    assert any(guard == "src: f32[2, 10, 64]" for guard in users) and "self.layers.0.linear1.weight: f32[128, 64]" in "\n".join(users)
    assert len(encoded.guards[0].all) > 1000 and not any("__dict__" in guard or "__globals__" in guard for guard in users)


def test_kernels_have_operations_lines_bytes_and_work():
    (kernel,) = framejit.explain(gain)(X, np.ones(64)).kernels
    assert kernel.kind == "loops" and set(kernel.operations) == {"mul", "reduce_sum", "sqrt", "div"} and kernel.graph == 0
    assert [line.rpartition(":")[0] for line in kernel.lines] == [__file__] * len(kernel.lines) and len(kernel.lines) == 2
    assert (kernel.read_bytes, kernel.written_bytes) == (640 * 8 + 64 * 8, 640 * 8)
    assert kernel.float_operations == 640 * 4 + 10 and kernel.bytes == 640 * 16 + 512 and not kernel.is_library_call


def test_a_split_sum_is_two_kernels():
    first, second = framejit.explain(lambda x: np.sum(x * x))(np.ones((1000, 1000))).kernels
    assert first.operations == ("mul", "reduce_sum") and first.read_bytes == 8_000_000 and first.float_operations == 2_000_000
    assert second.kind == "loops" and second.operations == () and second.written_bytes == 8


def test_a_matrix_product_is_a_library_call_of_known_work():
    report = framejit.explain(lambda a, b: np.tanh(a @ b))(np.ones((200, 300)), np.ones((300, 400)))
    (product,) = [kernel for kernel in report.kernels if kernel.is_library_call]
    assert product.kind == "matmul" and product.float_operations == 2 * 200 * 300 * 400
    assert product.bytes == 8 * (200 * 300 + 300 * 400 + 200 * 400)
    assert "1 library call," in report.summary(160).split("\n")[0]


def test_guards_are_grouped_by_graph_with_the_users_first():
    report = framejit.explain(top)(X)
    assert [group.graph for group in report.guards if group.graph is not None] == list(range(len(report.graphs)))
    group = framejit.explain(gain)(X, np.ones(64)).guards[0]
    assert group.users[:2] == ["x: f64[10, 64]", "g: f64[64]"] and "np.errstate as when traced" in group.users
    assert "'sqrt' in G.np.__dict__" in group.all and "'sqrt' in G.np.__dict__" in group.internal
    assert set(group.internal) <= set(group.all) and len(group) == len(group.all)
    assert "L.x: f64[10, 64]" in framejit.explain(gain)(X, np.ones(64)).guards


def test_recompiles_say_what_changed():
    compiled = framejit.compile(gain)
    compiled(X, np.ones(64))
    compiled(X[:5], np.ones(64))
    report = framejit.explain(compiled).so_far()
    assert len(report.recompiles) == 1 and "L.x: f64[10, 64] no longer holds" in report.recompiles[0]
    assert any("`x: f64[10, 64]` held no longer: was f64[10, 64], now f64[5, 64]" in line for line in in_bounds(report))


def test_a_function_that_was_not_called_has_nothing_compiled():
    report = framejit.explain(framejit.compile(gain)).so_far()
    lines = in_bounds(report)
    assert lines[1] == "  Nothing is compiled: the function was not called yet, or it works on no arrays."
    assert report.graphs == report.kernels == report.breaks == report.recompiles == list(report.guards) == [] and report.kernel_count == 0


def test_a_function_that_raises_is_reported_beside_its_exception():
    explanation = framejit.explain(wrong)
    with pytest.raises(ValueError, match="no "):
        explanation(X)
    lines = in_bounds(explanation.last)
    assert lines[1] == "  The call raised ValueError: no [bold](10, 64)" and explanation.last.error == "ValueError: no [bold](10, 64)"
    assert explanation.last.result is None


def test_json_is_written_where_a_page_would_be(tmp_path):
    report, path = framejit.explain(gain)(X, np.ones(64)), tmp_path / "report.json"
    assert report.to_json(path) == report.to_json() == path.read_text().rstrip("\n")
    assert report.to_json(str(path), indent=2).startswith('{\n  "name": "gain"') and json.loads(path.read_text()) == report.as_dict()


def test_an_explanation_that_was_not_called_says_so():
    assert repr(framejit.explain(gain)) == "<framejit.explain(gain): call this with the function's arguments for the report>"


def test_each_count_of_kernels_is_of_those_that_framejit_makes():
    def large(x):
        return np.exp(x[x > 0.5]).sum()

    report = framejit.explain(large)(np.linspace(0, 1, 100))
    assert "count" in [kernel.kind for kernel in report.kernels]
    assert sum(kernel.is_own for kernel in report.kernels) == report.kernel_count
    own = f" {report.kernel_count} kernel" + "s" * (report.kernel_count > 1)
    assert own in in_bounds(report)[0] and own in next(line for line in in_bounds(report) if line.startswith("  [0] large"))


def test_a_graph_of_library_calls_alone_is_said_to_be_no_faster():
    def phase(x):
        return np.exp(x * 1j)

    assert "\n  The whole function is one graph of library calls alone, so none of it is faster; " in framejit.explain(phase)(X).summary()


def test_an_array_of_one_value_is_no_part_of_a_reduction():
    assert any(line.endswith(": an array of one value; 40 bytes") for line in in_bounds(framejit.explain(lambda: np.zeros(5))()))


def test_there_is_no_advice_where_the_library_raises_its_own_error():
    def inverse(x):
        return np.linalg.inv(x) + 1

    def mismatched(x):
        return np.ones(3) + x

    for function, argument in ((inverse, np.zeros((3, 3))), (mismatched, np.ones(2))):
        explanation = framejit.explain(function)
        with pytest.raises(ValueError):
            explanation(argument)
        assert "\n  The call raised " in explanation.last.summary() and "do first" not in explanation.last.summary()


def test_json_has_everything():
    compiled = framejit.compile(top)
    for x in (X, X[:5]):
        compiled(x)
    report = framejit.explain(compiled).so_far()
    read = json.loads(report.to_json())
    assert read == report.as_dict()
    assert read["graphs"][0]["text"] == str(report.graphs[0]) and read["breaks"][0]["calls"] == ["top", "mid", "deep"]
    assert [group["all"] for group in read["guards"]] == [group.all for group in report.guards]
    assert len(read["kernels"]) == len(report.kernels) and read["recompiles"] == report.recompiles and read["timings"] == report.timings


@needs_torch
def test_modules_have_the_names_that_the_program_gives_them(tmp_path):
    space = {"torch": torch}
    exec(compile("""
def made(net):
    def inner(x):
        return net(x)
    return inner

def by_global(x):
    return model(x)

def by_local(x, given):
    return given(x)

def by_cell_of_another(x):
    return inner(x)
""", "names.py", "exec"), space)
    space["model"] = net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    space["inner"], x = space["made"](net), torch.randn(3, 8)
    for function, given, name in (("by_global", (), "model"), ("by_local", (net,), "given"), ("inner", (), "net"), ("by_cell_of_another", (), "inner.net")):
        report = framejit.explain(space[function])(x, *given)
        modules = {kernel.module for kernel in report.kernels} | {node.module for node in report.graphs[0].nodes}
        assert f"{name}.1" in modules and modules <= {"", name, f"{name}.0", f"{name}.1"}
        assert f"{name}.1.eps == 1e-05" in report.guards[0].users or f"len({name}._forward_hooks) == 0" in report.guards[0].users
        assert "__closure__" not in str(report) and "G." not in str(report)


def test_timings_are_by_graph_and_stage():
    (row,) = framejit.explain(gain)(X, np.ones(64)).timings
    assert 0 < row["stages"]["trace"] <= row["seconds"] < 60


class Outside(html.parser.HTMLParser):
    """Tags, and what the page would load."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes
                       if name in ("src", "href", "srcset", "data") and not value.startswith("#") or "url(" in (value or "")]


def page_of(report, folder):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    report.to_html(folder / "report.html")
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_marks_lines_and_loads_nothing(tmp_path):
    text = page_of(framejit.explain(top)(X), tmp_path)
    found = Outside(text)
    assert found.loads == [] and not {"script", "link", "img", "iframe"} & set(found.tags) and "details" in found.tags
    assert "http" not in text and "@import" not in text and "url(" not in text
    assert '<span class="break"><i>' in text and "if x.sum() &gt; 3:" in text
    marked = {line.partition("</i> ")[2].strip(): line.partition('class="')[2].partition('"')[0] for line in text.split("\n") if "</i> " in line}
    assert marked["return deep(x * 2)"] == "compiled" and marked["if x.sum() &gt; 3:"] == "break" and marked["return x"] == "none"


def test_a_function_left_to_python_is_marked_eager(tmp_path):
    def words(x):
        return sorted(str(x))

    assert 'class="eager"' in page_of(framejit.explain(framejit.compile(words)).so_far(), tmp_path)


def test_markup_in_names_is_text(tmp_path):
    space = {"np": np}
    source = "def f(x):\n    print('<script>alert(1)</script> [red]&', x.shape)\n    return np.exp(x) + 1\n"
    exec(compile(source, "<b>[bold]name.py", "exec"), space)
    space["f"].__qualname__ = "<img src=x>[red]"
    report = framejit.explain(space["f"])(X)
    text = page_of(report, tmp_path)
    assert "<script" not in text and "<img" not in text and "&lt;img src=x&gt;[red]" in text
    assert "<img" not in report._repr_html_() and str(report).startswith("<img src=x>[red]: ")


def test_the_page_of_an_encoder_is_small(encoded, tmp_path):
    text = page_of(encoded, tmp_path)
    assert len(text.encode()) < 5_000_000 and "layers.11.linear2" in text


def test_graphs_too_large_for_a_browser_are_cut(tmp_path):
    report = framejit.explain(gain)(X, np.ones(64))
    report.graphs *= 9000
    assert sum(len(graph.nodes) for graph in report.graphs) > 20_000
    text = page_of(report, tmp_path)
    assert len(text.encode()) < 5_000_000 and "more lines: str(report.graphs[i])" in text
    in_bounds(report)


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    report, path = framejit.explain(gain)(X, np.ones(64)), tmp_path / "report.html"
    report.to_html(path)
    old = path.read_text()

    def full(*arguments):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no room"):
        report.to_html(path)
    assert path.read_text() == old and len(list(tmp_path.iterdir())) == 1
    missing = tmp_path / "missing" / "report.html"
    with pytest.raises(FileNotFoundError) as raised:
        report.to_html(missing)
    assert raised.value.filename == str(missing)


def without(monkeypatch, package):
    real = builtins.__import__

    def importing(name, *rest, **more):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", importing)


def test_without_jinja2_the_page_says_what_to_install(tmp_path, monkeypatch):
    report = framejit.explain(gain)(X, np.ones(64))
    without(monkeypatch, "jinja2")
    with pytest.raises(framejit.Error, match=r"pip install framejit\[report\]"):
        report.to_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == [] and report._repr_html_().startswith("<pre>gain: 1 graph")


PROGRAM = """
    import numpy as np, framejit
    def γ(x):
        print("")
        return np.exp(x) + 1
    report = framejit.explain(γ)(np.ones(3))
    print(report)
    print("plain", chr(27) not in report.summary() + report.text() + f"{report}" + report.to_json())
"""


def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    return [sys.executable, str(path)]


def in_terminal(command, columns, **environment):
    """What a program writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
    environment = {**kept, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            written += part
        errors = process.stderr.read().decode()
    os.close(ours)
    assert process.returncode == 0, errors
    return written.decode()


def test_a_terminal_has_colour_and_its_width(tmp_path):
    pytest.importorskip("rich", reason="rich is not installed")
    for columns in (40, 100):
        written = in_terminal(program(tmp_path), columns)
        lines = re.sub(r"\x1b\[[\d;]*m", "", written).replace("\r", "").split("\n")
        assert "\x1b[" in written and max(map(len, lines)) <= columns and len(lines) <= 44 and "plain True" in lines
    assert "\x1b" not in in_terminal(program(tmp_path), 100, NO_COLOR="1") and "\x1b" not in in_terminal(program(tmp_path), 100, TERM="dumb")


def test_there_is_no_colour_outside_a_terminal_and_no_utf_8_is_needed(tmp_path):
    for encoding in ("ascii", "latin-1", "utf-8"):
        run = subprocess.run(program(tmp_path), capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding, "FORCE_COLOR": "1"})
        assert run.returncode == 0, run.stderr
        written = run.stdout.decode(encoding)
        assert "\x1b" not in written and "plain True" in written
        assert ("γ: 1 graph, " if encoding == "utf-8" else "\\u03b3: 1 graph, ") in written


def test_a_closed_standard_output_is_no_terminal(monkeypatch):
    report = framejit.explain(gain)(X, np.ones(64))
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert str(report) == report.summary()


def test_files_that_were_installed_are_libraries():
    assert is_library(np.__file__) and is_library(os.__file__) and is_library("<frozen importlib._bootstrap>") and not is_library(__file__)


def test_import_needs_none_of_the_report():
    code = "import sys, framejit; print([n for n in sys.modules if n.partition('.')[0] in ('rich', 'jinja2', 'json', 'html') or '_report' in n])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "rich" not in found and "jinja2" not in found and "_report" not in found
