"""Where the entries of the logs go: Python's loggers, stderr, a sink, a file; and that a program's results don't depend on it."""
import contextlib
import io
import logging
import os
import pathlib
import re
import sys
import threading

import numpy as np
import pytest

import framejit
from framejit import _logs
from harness import run_program


@pytest.fixture(autouse=True)
def nothing_chosen():
    yield
    framejit.set_logs()


def broken():
    """A compiled function with one graph break, which is logged in its first call."""
    def f(x):
        y = x * 2
        framejit.graph_break()
        return y + 1

    return framejit.compile(f)


def run_broken():
    assert broken()(np.ones(3)).tolist() == [3, 3, 3]


@contextlib.contextmanager
def handler(logger, level=logging.NOTSET):
    """What a handler of the user's is given, as (logger, level, text)."""
    class Kept(logging.Handler):
        def emit(self, record):
            found.append((record.name, record.levelname, record.getMessage()))

    found, logger, kept = [], logging.getLogger(logger), Kept()
    logger.addHandler(kept)
    logger.setLevel(level)
    try:
        yield found
    finally:
        logger.removeHandler(kept)
        logger.setLevel(logging.NOTSET if logger.name != "root" else logging.WARNING)


def test_an_entry_is_seen_by_capsys_and_by_caplog(capsys, caplog):
    framejit.set_logs("graph_breaks")
    run_broken()
    [record] = caplog.records
    assert (record.name, record.levelno) == ("framejit.graph_breaks", logging.INFO)
    assert record.getMessage().startswith(f"graph break at {__file__}:") and "FJ113" in record.getMessage()
    assert (record.pathname, record.lineno) == (__file__, run_broken.__code__.co_firstlineno + 1)  # the call that compiles
    assert capsys.readouterr().err == f"framejit: {record.getMessage()}\n"


def test_stderr_is_that_of_the_moment():
    framejit.set_logs("graph_breaks")
    for _ in range(2):
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            run_broken()
        assert stream.getvalue().count("framejit: graph break at") == 1


@pytest.mark.parametrize("name", ["root", "framejit", "framejit.graph_breaks"])
def test_with_a_handler_of_the_user_stderr_gets_nothing(name, capsys):
    framejit.set_logs("graph_breaks")
    with handler(None if name == "root" else name) as found:
        run_broken()
    assert [entry[:2] for entry in found] == [("framejit.graph_breaks", "INFO")]
    assert capsys.readouterr().err == ""


def test_levels_of_artifacts(capsys):
    framejit.set_logs("all")
    with handler("framejit", logging.DEBUG) as found:
        f = broken()
        f(np.ones(3))
        f(np.ones(3, np.float32))
    levels = {name.removeprefix("framejit."): level for name, level, _ in found}
    said = {"graph_breaks": "INFO", "recompiles": "INFO", "timings": "INFO"}
    assert levels == said | dict.fromkeys(["graphs", "guards", "bytecode", "code"], "DEBUG")


def test_a_level_takes_away_and_the_root_s_does_not(capsys):
    framejit.set_logs("graphs")  # DEBUG; the root's level is WARNING
    with handler(None, logging.WARNING) as found:
        run_broken()
    assert [level for _, level, _ in found] == ["DEBUG", "DEBUG"]
    for name in ("framejit", "framejit.graphs"):
        with handler(name, logging.INFO) as found:
            run_broken()
        assert found == []
    assert capsys.readouterr().err == ""


def test_a_level_alone_chooses_nothing(capsys):
    with handler("framejit", logging.DEBUG) as found:
        run_broken()
    assert found == [] and capsys.readouterr().err == ""


def test_what_silences_logging_silences_framejit(capsys):
    framejit.set_logs("graph_breaks")
    logging.disable(logging.INFO)
    try:
        run_broken()
    finally:
        logging.disable(logging.NOTSET)
    nothing = logging.NullHandler()
    logging.getLogger("framejit").addHandler(nothing)
    try:
        run_broken()
    finally:
        logging.getLogger("framejit").removeHandler(nothing)
    assert capsys.readouterr().err == ""


def test_failures_of_framejit_s_own_are_warnings_and_need_no_choice():
    """A file of the cache that can't be written is noticed on a thread without the GIL: the main thread says so."""
    done = run_program("""
        import logging, sys
        import numpy as np
        import framejit

        logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
        assert framejit.compile(lambda x: np.exp(x) + 1)(np.zeros(3)).tolist() == [2, 2, 2]
        framejit._core.finish_compiling()
        for _ in range(3):
            pass
        print("end")
    """, FRAMEJIT_CACHE_FOLDER="/dev/null/kernels")
    said = "WARNING framejit.fallbacks a file of the kernel cache /dev/null/kernels can't be written: Not a directory\n  file  "
    assert done.stdout.startswith(said)
    assert done.stdout.count("WARNING") == 1 and done.stdout.endswith("\nend\n") and done.stderr == ""


@pytest.mark.parametrize("made", [str, pathlib.Path, lambda path: bytes(path)])
def test_a_path_is_appended_to(made, tmp_path, capsys, monkeypatch):
    path = tmp_path / "framejit.log"
    path.write_text("before\n")
    monkeypatch.chdir(tmp_path)
    framejit.set_logs("graph_breaks", sink=made(pathlib.Path("framejit.log")))
    monkeypatch.chdir("/")  # the path is that of the call
    run_broken()
    text = path.read_text()
    assert text.startswith(f"before\nframejit: graph break at {__file__}:") and text.endswith("\n") and capsys.readouterr().err == ""


def test_a_file_is_written_to(tmp_path, capsys):
    stream = io.StringIO()
    framejit.set_logs("graph_breaks", sink=stream)
    run_broken()
    assert stream.getvalue().startswith(f"framejit: graph break at {__file__}:") and stream.getvalue().endswith("\n")
    with open(tmp_path / "log", "w") as file:
        framejit.set_logs("graph_breaks", sink=file)
        run_broken()
        assert (tmp_path / "log").read_text() == stream.getvalue()  # at once
    assert capsys.readouterr().err == ""


def closed():
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("kind, said, sink", [
    (TypeError, "a sink is a callable of an artifact and a text, a path or a text file, not 3", lambda: 3),
    (TypeError, r"a sink is a callable of an artifact and a text, a path or a text file, not <class '_io.StringIO'>", lambda: io.StringIO),
    (TypeError, r"a sink is a callable of an artifact and a text, a path or a text file, not <function .*>", lambda: lambda text: None),
    (TypeError, r"no text can be written to the sink <_io.BytesIO .*>: a bytes-like object is required, not 'str'", io.BytesIO),
    (ValueError, r"no text can be written to the sink <_io.StringIO .*>: I/O operation on closed file", closed),
    (ValueError, r"no text can be written to the sink <_io.TextIOWrapper .*>: not writable", lambda: open(__file__)),
    (IsADirectoryError, r"\[Errno 21\] framejit.set_logs: the file of the logs can't be written: Is a directory: '/'", lambda: "/"),
    (FileNotFoundError, r"\[Errno 2\] framejit.set_logs: the file of the logs can't be written: No such file or directory: '/no/such'",
     lambda: "/no/such")])
def test_what_is_no_sink_is_refused_at_once(kind, said, sink):
    entries = []
    framejit.set_logs("graph_breaks", sink=lambda artifact, text: entries.append(text))
    given = sink()
    with contextlib.closing(given) if hasattr(given, "close") and not isinstance(given, type) else contextlib.nullcontext():
        with pytest.raises(kind, match=f"{said}$") as raised:
            framejit.set_logs(sink=given)
    assert type(raised.value) is kind and "framejit.set_logs: " in str(raised.value)
    run_broken()
    assert len(entries) == 1  # nothing has changed


PROGRAM = """
    import sys
    import numpy as np
    import framejit

    @framejit.compile
    def f(x):
        y = x * 2
        print("seen")
        return y + 1

    assert f(np.ones(3)).tolist() == [3, 3, 3]
"""


def test_the_environment_names_a_file(tmp_path):
    path = tmp_path / "framejit.log"
    for _ in range(2):
        assert run_program(PROGRAM, FRAMEJIT_LOGS="graph_breaks", FRAMEJIT_LOGS_FILE=str(path)).stderr == ""
    assert path.read_text().count("/program.py:") == 2
    done = run_program(PROGRAM, FRAMEJIT_LOGS="graph_breaks", FRAMEJIT_LOGS_FILE="/no/such")
    ignored, _, entry = done.stderr.partition("\n")
    assert ignored == "framejit: FRAMEJIT_LOGS_FILE is ignored: [Errno 2] FRAMEJIT_LOGS_FILE: the file of the logs can't be written: " \
                      "No such file or directory: '/no/such'"
    assert re.match("framejit: graph break at /.*/program.py:", entry)


def test_a_mistyped_artifact_of_the_environment_is_told_the_nearest():
    done = run_program(PROGRAM, FRAMEJIT_LOGS="graph_brakes")
    assert done.stderr.startswith("framejit: FRAMEJIT_LOGS is ignored: no log is called 'graph_brakes'; there are: all, graph_breaks, ")
    assert done.stderr.endswith("; did you mean 'graph_breaks'?\n") and done.stderr.count("\n") == 1


def test_a_sink_goes_before_the_file_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(_logs, "_from_environment", _logs.as_sink(tmp_path / "log", "test"))
    stream = io.StringIO()
    framejit.set_logs("graph_breaks", sink=stream)
    run_broken()
    assert stream.getvalue() and (tmp_path / "log").read_text() == ""
    framejit.set_logs("graph_breaks")
    run_broken()
    assert (tmp_path / "log").read_text() == stream.getvalue()


def test_threads_log_whole_entries(tmp_path):
    framejit.set_logs("graph_breaks", "graphs", sink=tmp_path / "log")
    threads = [threading.Thread(target=run_broken) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = (tmp_path / "log").read_text()
    assert text.count("framejit: ") == text.count("\nframejit: ") + 1 == 24 and text.count("framejit: graph break at") == 8


@pytest.mark.parametrize("at", ["sink", "handler"])
def test_what_a_sink_raises_changes_no_result(at, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append((str(raised.exc_value), raised.object)))

    def refuse(*arguments):
        raise RuntimeError("of the sink")

    framejit.set_logs("graph_breaks", "graphs", "guards", sink=refuse if at == "sink" else None)
    with handler("framejit"):
        logging.getLogger("framejit").handlers[0].addFilter(refuse)
        run_broken()
        with pytest.raises(ZeroDivisionError):  # one that is pending is the program's
            framejit.compile(lambda x: [np.exp(x), framejit.graph_break(), 1 // 0])(np.ones(3))
    assert set(unraisable) == {("of the sink", "a sink of framejit's logs")} and len(unraisable) > 5


def test_an_interrupt_while_a_sink_runs_reaches_the_program():
    def interrupted(artifact, text):
        raise KeyboardInterrupt

    framejit.set_logs("graph_breaks", sink=interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_broken()
        for _ in range(10):
            pass


def test_a_sink_may_use_framejit():
    """What it calls runs as written: nothing is compiled while something else is."""
    found = []

    def sink(artifact, text):
        found.append((inner(np.ones(2)).tolist(), framejit.is_compiling()))

    @framejit.compile
    def inner(x):
        return x * 3

    framejit.set_logs("graph_breaks", "graphs", "bytecode", sink=sink)
    run_broken()
    assert len(found) > 4 and all(entry == ([3, 3], False) for entry in found)


@pytest.mark.parametrize("stderr", ["None", "closed", "unreadable", "refusing"])
def test_without_a_stderr_the_program_goes_on(stderr):
    make = {"None": "sys.stderr = None", "closed": "sys.stderr.close()",
            "unreadable": "r, w = os.pipe(); os.close(r); sys.stderr = open(w, 'w')",
            "refusing": "sys.stderr = object()"}[stderr]
    done = run_program(f"import os, sys\n{make}\nimport numpy as np\nimport framejit\n"
                       "assert framejit.compile(lambda x: [x * 2, print('seen')])(np.ones(2))[0].tolist() == [2, 2]\n"
                       "print('end', flush=True)\nos._exit(0)",
                       FRAMEJIT_LOGS="all", FRAMEJIT_CACHE_FOLDER="/dev/null/kernels")
    assert done.stdout == "seen\nend\n" and done.stderr == ""


def test_entries_while_the_program_ends():
    done = run_program("""
        import atexit, sys
        import numpy as np

        def end():
            print(f(np.ones(3, np.float32)))

        atexit.register(end)  # runs after framejit's own function of atexit
        import framejit

        @framejit.compile
        def f(x):
            y = x * 2
            framejit.graph_break()
            return y + 1

        class Last:
            def __del__(self, f=f, x=np.ones(3)):
                print(f(x))  # the modules are gone, but for those in use

        last = Last()
        sys.modules["last of all"] = last
    """, FRAMEJIT_LOGS="graph_breaks,graphs", FRAMEJIT_CACHE_FOLDER="/dev/null/kernels")
    assert done.stdout == "[3. 3. 3.]\n[3. 3. 3.]\n"
    assert done.stderr.count("framejit: graph of f") == 4 and "Traceback" not in done.stderr, done.stderr


def normalised(x):
    if np.abs(x).max() > 1:
        x = x / np.abs(x).max()
    return x


def smooth(x):
    return normalised(x[1:] + x[:-1])


def step(x, rate):
    return smooth(x) * rate


def test_a_break_names_the_chain_of_calls_and_the_whole_path():
    entries = []
    framejit.set_logs("graph_breaks", sink=lambda artifact, text: entries.append(text))
    framejit.compile(step)(np.arange(5.0), 0.5)
    line = normalised.__code__.co_firstlineno + 1
    assert entries[0].splitlines()[0] == f"framejit: graph break at {__file__}:{line} in step -> smooth -> normalised"


def test_an_error_of_fullgraph_says_nothing_of_what_follows():
    with pytest.raises(framejit.GraphBreakError) as raised:
        framejit.compile(step, fullgraph=True, join_branches=False)(np.arange(5.0), 0.5)
    first, reason, remedy = str(raised.value).splitlines()
    assert first.endswith(" in step -> smooth -> normalised") and reason.startswith("  FJ104 ")
    assert remedy == "  try   where(condition, a, b) of the array's library, or keep the comparison out of the compiled function"
    with pytest.raises(framejit.GraphBreakError) as raised:
        framejit.compile(lambda x: [np.exp(x), print("seen")], fullgraph=True)(np.ones(3))
    assert str(raised.value).endswith("\n  try   keep it out of the function, or compile without fullgraph: Python runs it then")


def test_fallbacks_name_what_the_user_wrote():
    """torch's functions behind `print` are left to CPython, some fifty of them; the user wrote the print alone."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = run_program("""
        import re
        import torch
        import framejit

        @framejit.compile
        def f(x):
            y = x * 2
            print(y)
            framejit.graph_break()
            return y + len(re.sub("a", plain, "abc"))

        def plain(match):
            return match[0] * 2

        for i in range(5):
            f(torch.ones(3) + i)
    """, FRAMEJIT_LOGS="fallbacks")
    first, why, *rest = done.stderr.splitlines()
    assert re.fullmatch(r"framejit: left to CPython: what `print\(y\)` calls, at /.*/program.py:9 in f", first)
    assert why == "  no array work in it in 3 calls from a graph break"
    line, users = [line for line in rest if line.startswith("framejit: ")]
    assert 'what `return y + len(re.sub("a", plain, "abc"))` calls, at ' in line and users == "framejit: left to CPython: plain"


def test_logging_is_imported_with_the_first_entry():
    done = run_program("""
        import sys
        import framejit
        before = "logging" in sys.modules
        framejit.set_logs("bytecode")
        framejit.compile(lambda x: x + 1)(2)
        print(before, "logging" in sys.modules)
    """)
    assert done.stdout == "False True\n"
