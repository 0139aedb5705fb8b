"""What ./run demo shows: a table that fits a screen, reports when they are asked for, a page."""
import os
import pty
import subprocess
import sys

import pytest

import demo

HEAD = ["example", "graphs", "breaks", "call", "eager", "compiled", "as", "fast"]


@pytest.fixture
def at_once(monkeypatch):
    """The examples run and are compiled; their times are not taken."""
    monkeypatch.setattr(demo, "interleaved", lambda functions, arguments: [2e-3, 1e-3])
    monkeypatch.setattr(demo, "busy", lambda: [])


def rows(text):
    """{title: the other cells} of the table."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    cut = demo.WIDTHS[0]
    return {line[:cut].strip(): line[cut:].split() for line in lines[start:lines.index("", start)]}


def test_the_table_of_all_examples_fits_a_screen(at_once, capsys):
    demo.main([])
    text = capsys.readouterr().out
    lines = text.split("\n")
    assert len(lines) <= 60 and max(map(len, lines)) < 80 and lines[1].split() == HEAD
    found = rows(text)
    assert len(found) == len(list(demo.examples())) and set(found) == {title for title, _, _ in demo.examples()}
    graphs, breaks, _, _, *times = found["print in the middle, numpy"]
    assert (graphs, breaks) == ("2", "1") and times == ["2.00", "ms", "1.00", "ms", "2.00"]
    assert found["chain_ops, numpy"][:2] == ["1", "0"]
    assert "./run demo --verbose" in text and "--html report.html" in text and "./run demo chain" in text


def test_words_choose_examples(at_once, capsys):
    demo.main(["CHAIN", "masses"])
    assert {title.partition(",")[0] for title in rows(capsys.readouterr().out)} == {"chain_ops", "masses and springs"}
    with pytest.raises(SystemExit):
        demo.main(["nosuchexample"])
    assert "there are: chain_ops, numpy; " in capsys.readouterr().err


def test_verbose_shows_reports(at_once, capsys):
    demo.main(["branch on data, numpy", "--verbose"])
    text = capsys.readouterr().out
    assert "branch: 2 graphs" in text and "FJ104" in text and "guards: " in text and "2.00 times as fast" in text


def test_the_page_has_the_table_and_the_reports(at_once, capsys, tmp_path):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    demo.main(["print in", "--html", str(tmp_path / "report.html")])
    assert f"written: {tmp_path / 'report.html'}" in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<a href="#example-0">print in the middle, numpy</a></td><td>2</td><td>1</td>' in text and 'id="example-0"' in text
    assert "FJ102" in text and "<script" not in text and "http" not in text


def test_times_have_three_digits():
    assert [demo.duration(seconds) for seconds in (1e-7, 9.996e-3, 0.99999, 1.234e-3, 12.34, 1234.0)] == [
        "0.100 us", "10.0 ms", "1.00 s", "1.23 ms", "12.3 s", "1.23e+03 s"]


def demo_process(**streams):
    environment = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return subprocess.Popen([sys.executable, demo.__file__, "(x + y) * 2, numpy"], env=dict(environment, TERM="xterm-256color"), **streams)


def test_on_a_terminal_the_table_is_rich_s():
    pytest.importorskip("rich", reason="rich is not installed")
    ours, theirs = pty.openpty()
    process = demo_process(stdout=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:  # Linux's end of a terminal
        pass
    os.close(ours)
    assert process.wait() == 0 and b"\x1b[1;36m" in text and b"(x + y) * 2, numpy" in text


def test_output_that_nobody_reads():
    process = demo_process(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 1
    closed = subprocess.run(["sh", "-c", 'exec "$0" "$1" "(x + y)" >&-', sys.executable, demo.__file__], stderr=subprocess.PIPE)
    assert closed.returncode == 0 and closed.stderr == b""
