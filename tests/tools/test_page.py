"""The page of a report, as a browser reads it."""
import html
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import framejit
from harness import needs_torch, torch

pytest.importorskip("jinja2", reason="jinja2 is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
X = np.linspace(0.5, 2, 640).reshape(10, 64)


def looped(x):
    total = np.zeros_like(x)
    for k in range(40):
        total = total + np.sin(x * k) / (k + 1)
    return total.mean(axis=0)


def refused(x):
    y = np.exp(x) + 1
    return y.reshape(7, 13)


def never(x):
    return np.tanh(x) * 2


def of_loop(folder):
    return framejit.explain(framejit.compile(looped, retire=True))(X)  # the tests are without it, and so without machine code for loops


def of_refused(folder):
    compiled = framejit.compile(refused)
    with pytest.raises(ValueError):
        compiled(X)
    return framejit.explain(compiled).so_far()


def of_never(folder):
    return framejit.explain(framejit.compile(never)).so_far()


def of_printing_module(folder):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

        def forward(self, x):
            x = torch.relu(self.first(x))
            print("<b>half way</b>")
            return torch.softmax(self.last(x), -1)

    return framejit.explain(Net().eval())(torch.randn(3, 8))


def of_encoder(folder):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()

    def encoded(x):
        return encoder(x)

    with torch.no_grad():
        return framejit.explain(encoded)(torch.randn(2, 8, 16))


def texts(page):
    """What is read on the page, without tags and style."""
    return html.unescape(re.sub(r"<[^>]*>", "\n", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


def marks(page):
    """{source line: its mark} of what is not folded."""
    shown = re.sub(r"<details.*?</details>", "", page, flags=re.S)
    return {html.unescape(text).strip(): kind for kind, text in re.findall(r'<span class="(\w+)"><i>[^<]*</i>([^<]*)', shown)}


@pytest.mark.parametrize("report_of, anchors, said", [
    (of_loop, ["source", "loops", "kernels", "graphs", "guards"], ["the loop runs as machine code of its own", "as estimated from the sizes"]),
    (of_refused, ["source", "breaks", "kernels", "graphs", "guards"], ["cannot reshape array", "return y.reshape(7, 13)", "a graph of 4 operations ends here"]),
    (of_never, ["source"], ["Nothing is compiled", "Call the function, then explain it again."]),
    pytest.param(of_printing_module, ["source", "breaks", "kernels", "graphs", "guards"], ['print("<b>half way</b>")', "FJ102 output is written here"], marks=needs_torch),
    pytest.param(of_encoder, ["source", "kernels", "graphs", "guards"], ["encoder.layers.*", "compiled lines of installed libraries (1)"], marks=needs_torch),
])
def test_a_browser_shows_the_sections(report_of, anchors, said, tmp_path):
    report_of(tmp_path).to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    if BROWSER is None:
        pytest.skip("no chromium or google-chrome is installed: the page is written, and not looked at")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", (tmp_path / "report.html").as_uri()]
    page = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    assert re.findall(r'<h2 id="(\w+)"', page) == anchors == re.findall(r'<a href="#(\w+)"', page)
    read = texts(page)
    assert all(text in read for text in said)
    above_guards = read.partition("\nGuards\n")[0]
    assert not re.search(r"\b(None|undefined|nan|Undefined)\b|__closure__|\bG\.", above_guards) and "<script" not in page


def written(report, folder):
    report.to_html(folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_lines_of_a_loop_are_marked(tmp_path):
    found = marks(written(of_loop(tmp_path), tmp_path))
    assert found["total = total + np.sin(x * k) / (k + 1)"] == "loop" and found["return total.mean(axis=0)"] == "compiled"


@needs_torch
def test_a_function_whose_operations_are_a_library_s_is_not_eager(tmp_path):
    page = written(of_encoder(tmp_path), tmp_path)
    found = marks(page)
    assert found["return encoder(x)"] == "none" and "eager" not in found.values()
    (library,) = re.findall(r'<details class="library">.*?</details>', page, flags=re.S)
    assert "transformer.py:" in library and re.search(r"\d+ operations</i>", library)


def test_only_the_function_itself_is_eager(tmp_path):
    def inside(x):
        return sorted(str(x))

    found = marks(written(framejit.explain(framejit.compile(inside)).so_far(), tmp_path))
    assert found["return sorted(str(x))"] == "eager" and found["found = marks(written(framejit.explain(framejit.compile(inside)).so_far(), tmp_path))"] == "none"


def test_the_page_of_an_unrolled_function_is_small(tmp_path):
    lines = "".join(f"    x = x + np.sin(y * {i})\n    y = y * 0.9{i}\n" for i in range(2600))
    path = tmp_path / "unrolled.py"
    path.write_text(f"def unrolled(x, y):\n{lines}    return x, y\n")
    space = {"np": np}
    exec(compile(path.read_text(), str(path), "exec"), space)
    compiled = framejit.compile(space["unrolled"], node_limit=1_000_000, work_limit=1_000_000_000, instruction_limit=1_000_000)
    compiled(np.ones(8), np.ones(8))
    report = framejit.explain(compiled).so_far()
    assert sum(len(graph.nodes) for graph in report.graphs) > 20_000
    page = written(report, tmp_path)
    assert len(page.encode()) < 5_000_000 and "more lines of it" in page and pathlib.Path(path).name in page
