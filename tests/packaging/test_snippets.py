"""Every Python snippet of the pages runs, and gives the output that the page shows.

The snippets of a page run in order and share their names, as typed into one session. A block without a language directly behind a snippet
is what the snippet prints: `...` stands for anything, and durations may be others. A snippet whose first line is `# name.py` is a file of
this name. Sections whose snippets need a package that is not installed are left out, and the test is skipped at its end; no other section
uses what they define.
"""
import contextlib
import doctest
import importlib.util
import io
import pathlib
import re

import pytest

import framejit

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if "```python\n" in page.read_text())]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n*```\n(.*?)^```\n)?", re.M | re.S)
NEEDED = {"torch": re.compile(r"\btorch\b"), "safetensors": re.compile(r"\.save\("), "onnx": re.compile(r"\bto_onnx\b"),
          "onnxruntime": re.compile(r"\bonnxruntime\b"), "scipy": re.compile(r"\bscipy\b")}
DURATION = re.compile(r"\b\d+(\.\d+)? ([nuµm]?s)\b")


def snippets(page):
    """(line, section, text, the output shown or None) of each Python snippet."""
    text = page.read_text()
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            section = re.findall(r"^#+ .*", BLOCK.sub("", text[:block.start()]), re.M)[-1].lstrip("# ")
            yield text[:block.start(2)].count("\n") + 1, section, block[2], block[3]


def differs(shown, printed):
    """How the output differs from the one on the page, or the empty text."""
    wanted, found = (DURATION.sub("(time)", text.rstrip() + "\n") for text in (shown, printed))
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, found, doctest.ELLIPSIS):
        return ""
    return checker.output_difference(doctest.Example("", wanted), found, doctest.ELLIPSIS | doctest.REPORT_NDIFF)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    left_out = {section: name for _, section, text, _ in snippets(page) for name in missing if NEEDED[name].search(text)}
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    try:
        for line, section, text, shown in snippets(page):
            if section in left_out:
                continue
            named = re.match(r"# (\w+\.py)\n", text)
            file = tmp_path / (named[1] if named else f"{page.stem}_{line}.py")
            file.write_text(text)
            output = io.StringIO()
            # As users run it: conftest.py turns `retire` off, and regions with it. A pool's threads are not in the block, and would compile anew.
            retire = {} if "ThreadPool" in text else {"retire": True}
            with contextlib.redirect_stdout(output), framejit.options(**retire):
                exec(compile(text, str(file), "exec"), names)
            if shown is not None:
                difference = differs(shown, output.getvalue())
                assert not difference, f"{page.name}:{line} prints something else\n{difference}"
    finally:
        framejit.set_logs()
    if left_out:
        pytest.skip("left out: " + ", ".join(f"{section} ({name} is not installed)" for section, name in left_out.items()))
