"""Every Python snippet of the pages for users runs, and gives the output that the page shows.

The snippets of a page run in order and share their names, as typed into one session. A block without a language directly behind a snippet
is what the snippet prints: `...` stands for anything, and durations may be others. A snippet whose first line is `# name.py` is a file of
this name. Sections that import torch, and what follows in the same page and uses their names, are left out where torch is missing.
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
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("index", "tutorial", "how-to"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n*```\n(.*?)^```\n)?", re.M | re.S)
DURATION = re.compile(r"\b\d+(\.\d+)? ([nµm]?s)\b")


def snippets(page):
    """(line, section, text, the output shown or None) of each Python snippet."""
    text = page.read_text()
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            section = re.findall(r"^##? .*", BLOCK.sub("", text[:block.start()]), re.M)[-1].lstrip("# ")
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
    has_torch = importlib.util.find_spec("torch") is not None
    uses_torch = {section for _, section, text, _ in snippets(page) if re.search(r"^import .*\btorch\b", text, re.M)}
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    left_out = []
    try:
        for line, section, text, shown in snippets(page):
            if section in uses_torch and not has_torch:
                left_out.append(section)
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
        pytest.skip("torch is not installed; left out: " + ", ".join(dict.fromkeys(left_out)))
