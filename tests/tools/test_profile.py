"""framejit.profile: what the steps of compiled graphs take, measured."""
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import framejit


def _work(x, y):
    z = np.exp(x) @ y
    return np.maximum(z, 0).sum(1)


def _square_sum(a):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * a[i]
    return total


def _settled(function, *arguments, **options):
    compiled = framejit.compile(function, **options)
    for _ in range(4):
        compiled(*arguments)
    return compiled


def test_counts_runs_bytes_and_operations_of_each_step():
    x, y = np.full((20, 30), 0.5), np.ones((30, 40))
    f = _settled(_work, x, y)
    with framejit.profile() as measured:
        for _ in range(5):
            result = f(x, y)
    assert np.allclose(result, 40 * 30 * np.exp(0.5))
    (program,) = measured.programs
    assert (program.function, program.runs, program.on_device) == ("_work", 5, False)
    by_operation = {name: kernel for kernel in measured.kernels for name in kernel.operations}
    exp, product, total = by_operation["exp"], by_operation["matmul"], by_operation["reduce_sum"]
    assert exp.runs == product.runs == total.runs == 5
    assert product.float_operations == 5 * 2 * 20 * 30 * 40
    assert product.bytes == 5 * 8 * (20 * 30 + 30 * 40 + 20 * 40)
    assert total.bytes == 5 * 8 * (20 * 40 + 20)
    assert product.dtype == "f64" and product.lines == (f"{__file__}:{_work.__code__.co_firstlineno + 1}",)
    assert all(kernel.seconds > 0 for kernel in measured.kernels)
    assert sum(kernel.seconds for kernel in measured.kernels) <= program.seconds <= measured.seconds
    assert [kernel.seconds for kernel in measured.kernels] == sorted((k.seconds for k in measured.kernels), reverse=True)


def test_kernels_that_are_compiled_inside_are_told_of():
    f = framejit.compile(lambda a: np.exp(a) * 3 + a.sum())
    with framejit.profile() as first:
        f(np.ones(5000))
    assert first.compiled_inside and "kernels were still compiled" in str(first).splitlines()[1] and json.loads(first.to_json())["compiled_inside"]
    f(np.ones(5000))                    # asks the background for optimised code, which the block waits for
    with framejit.profile() as later:
        assert framejit.cache_info()["background_jobs"] == 0
        f(np.ones(5000))
    assert not later.compiled_inside and "still compiled" not in str(later)


def test_sizes_are_those_of_each_run():
    f = framejit.compile(lambda a: a * 2 + 1, dynamic=True)
    for n in (10, 11):
        f(np.ones(n))
    with framejit.profile() as measured:
        for n in (100, 250):
            f(np.ones(n))
    (kernel,) = measured.kernels
    assert (kernel.runs, kernel.bytes, kernel.float_operations) == (2, 8 * 2 * 350, 2 * 350)


def test_small_kernels_that_run_directly_are_counted():
    f = _settled(lambda a: a * 2 + 1, np.ones(4))
    with framejit.profile() as measured:
        for _ in range(7):
            f(np.ones(4))
    assert [program.runs for program in measured.programs] == [7]
    with framejit.profile() as later:
        pass
    assert later.kernels == [] and later.programs == []
    assert "no compiled graph ran" in str(later)


def test_loops_of_python_are_steps():
    f = _settled(_square_sum, np.ones(1000), retire=True)  # loops are judged only then
    with framejit.profile() as measured:
        assert f(np.ones(1000)) == 1000
    (kernel,) = measured.kernels
    assert (kernel.kind, kernel.runs, kernel.function) == ("loop", 1, "_square_sum")
    assert "a loop over elements" in str(measured)


def test_steps_in_blocks_of_rows_share_their_time():
    # x is large enough that the steps run on blocks of its rows.
    x, w = np.ones((4096, 256), np.float32), np.ones((256, 512), np.float32)
    f = _settled(lambda x, w: np.tanh(x @ w).sum(1), x, w)
    with framejit.profile() as measured:
        f(x, w)
    blocked = [kernel for kernel in measured.kernels if kernel.in_blocks]
    assert len(blocked) > 1 and all(kernel.seconds > 0 for kernel in blocked)
    assert sum(kernel.seconds for kernel in measured.kernels) <= measured.programs[0].seconds


def test_profiles_overlap_and_see_all_threads():
    f = _settled(lambda a: a * 2 + 1, np.ones(4))

    def calls(count):
        for _ in range(count):
            f(np.ones(4))

    with framejit.profile() as outer:
        calls(3)
        with framejit.profile() as inner:
            threads = [threading.Thread(target=calls, args=(5,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert inner.programs[0].runs == 10  # of a block that is still open
        calls(1)
    assert (inner.programs[0].runs, outer.programs[0].runs) == (10, 14)


def test_profiles_of_two_threads():
    f = _settled(lambda a: a * 2 + 1, np.ones(4))
    failed = []

    def measure():
        try:
            for _ in range(50):
                with framejit.profile() as measured:
                    f(np.ones(4))
                assert measured.programs[0].runs >= 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=measure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_profile_measures_one_block():
    measured = framejit.profile()
    assert measured.seconds == 0 and measured.kernels == []
    with measured:
        pass
    with pytest.raises(framejit.Error, match="one block"):
        with measured:
            pass


def test_a_block_that_raises_is_measured():
    f = _settled(lambda a: a * 2 + 1, np.ones(4))
    measured = framejit.profile()
    with pytest.raises(ZeroDivisionError):
        with measured:
            f(np.ones(4))
            1 / 0
    assert measured.programs[0].runs == 1
    f(np.ones(4))
    assert measured.programs[0].runs == 1


def test_table_json_and_page(tmp_path):
    x = np.ones((300, 300))
    f = _settled(_work, x, x)
    with framejit.profile() as measured:
        f(x, x)
    lines = str(measured).splitlines()
    assert lines[0].startswith("1 run of 1 compiled graph took ") and lines[1].startswith("  [0] _work: 1 run, ")
    assert lines[2].split() == ["time", "share", "runs", "each", "memory", "work", "of", "limit", "what"]
    assert all(len(line) <= 140 for line in lines) and len(lines) == 3 + len(measured.kernels)
    again = json.loads(measured.to_json(tmp_path / "profile.json"))
    assert json.loads((tmp_path / "profile.json").read_text()) == again
    assert [row["runs"] for row in again["programs"]] == [1] and len(again["kernels"]) == len(measured.kernels)
    product = next(kernel for kernel in measured.kernels if "matmul" in kernel.operations)
    assert 0 < product.share_of_limit
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    measured.to_html(tmp_path / "profile.html")
    page = (tmp_path / "profile.html").read_text()
    assert "<h1>Profile</h1>" in page and "test_profile.py" in page and page.count("<tr>") == 1 + len(measured.kernels)


def test_backward_is_a_graph_of_its_own():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    w = torch.ones(8, 8, requires_grad=True)
    f = framejit.compile(lambda w: (w @ w).tanh().sum())
    for _ in range(4):
        f(w).backward()
    with framejit.profile() as measured:
        f(w).backward()
    assert [program.runs for program in measured.programs] == [1, 1]
    assert measured.programs[1].function.endswith("_backward")


def test_explain_tells_the_memory_of_each_graph():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    w = torch.ones(64, 64, requires_grad=True)
    report = framejit.explain(lambda w: (w @ w).tanh().sum())(w)
    (memory,) = report.memory
    assert (memory.inputs, memory.results) == (4 * 64 * 64, 4)
    assert memory.saved_for_backward == 4 * 64 * 64  # tanh's result
    assert report.as_dict()["memory"][0]["saved_for_backward"] == memory.saved_for_backward
    x = np.ones((64, 64))
    (memory,) = framejit.explain(lambda x: ((x @ x) @ x) @ x)(x).memory
    assert (memory.results, memory.saved_for_backward) == (8 * 64 * 64, 0)
    assert memory.temporaries == 2 * 8 * 64 * 64


def test_torchs_profiler_sees_compiled_graphs_and_their_steps():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def scaled(a):
        return (a @ a).exp()

    def shown(*arguments):
        with torch.profiler.profile() as recorded:
            result = f(*arguments)
        return result, [event.name for event in recorded.events()]

    f, a = framejit.compile(scaled), torch.ones(8, 8)
    for _ in range(3):
        f(a)
    line = scaled.__code__.co_firstlineno + 1
    result, names = shown(a)
    assert torch.equal(result, scaled(a))
    assert names == ["scaled", f"matmul, exp (test_profile.py:{line})"] or names == [
        "scaled", f"matmul (test_profile.py:{line})", f"exp (test_profile.py:{line})"]
    # What was not compiled before runs as written, and the profiler sees it so.
    result, names = shown(a.double())
    assert torch.equal(result, scaled(a.double())) and "aten::exp" in names and "scaled" not in names


def test_torchs_profiler_sees_backward():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    w = torch.ones(8, 8, requires_grad=True)
    f = framejit.compile(lambda w: (w @ w).tanh().sum())
    for _ in range(3):
        f(w).backward()
    with torch.profiler.profile() as recorded:
        f(w).backward()
    assert {"<lambda>", "<lambda>_backward"} <= {event.name for event in recorded.events()}


def test_small_kernels_are_shown_to_torchs_profiler():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    f, a = framejit.compile(lambda a: a * 2 + 1), torch.ones(4)
    for _ in range(30):
        f(a)
    with torch.profiler.profile() as recorded:
        f(a)
    line = test_small_kernels_are_shown_to_torchs_profiler.__code__.co_firstlineno + 2
    assert [event.name for event in recorded.events()] == ["<lambda>", f"mul, add (test_profile.py:{line})"]


@pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
def test_a_map_for_perf_names_kernels(tmp_path):
    program = tmp_path / "named.py"
    program.write_text(textwrap.dedent("""\
        import os
        import numpy as np
        import framejit

        @framejit.compile
        def smooth(x):
            return np.exp(x) * 2

        @framejit.compile
        def total(x):
            s = 0.0
            for i in range(len(x)):
                s += x[i] * x[i]
            return s

        for _ in range(3):
            smooth(np.ones(10))
            total(np.ones(100))
        path = f"/tmp/perf-{os.getpid()}.map"
        print(open(path).read())
        os.unlink(path)
        """))
    environment = {**os.environ, "FRAMEJIT_PERF_MAP": "1", "FRAMEJIT_RETIRE": "1"}
    lines = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    assert any(re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ framejit:smooth: exp, mul \(named.py:7\)", line) for line in lines), lines
    assert any(re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ framejit:total: loop", line) for line in lines), lines


def test_signal_handlers_keep_their_exceptions_under_torchs_profiler():
    """What tells the profiler runs no Python code: a handler that ran there would raise into nowhere."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Rung(Exception):
        pass

    def ring(*_):
        nonlocal rung
        rung += 1
        raise Rung

    f, a = framejit.compile(lambda a: a.sin() * 2 + 1), torch.ones(16)
    for _ in range(30):
        f(a)
    rung = caught = 0
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with torch.profiler.profile():
            while caught < 30 and rung < 60:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0005)
                    for _ in range(100_000):
                        f(a)
                except Rung:
                    caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught == rung == 30


def test_what_writes_in_place_is_shown_to_torchs_profiler():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def halved(a, b):
        a.add_(b)
        a.mul_(0.5)

    f, a = framejit.compile(halved), torch.ones(16)
    for _ in range(3):
        f(a, a.clone())
    with torch.profiler.profile() as recorded:
        f(a, a.clone())
    assert "halved" in [event.name for event in recorded.events()]


def test_other_recorders_of_torch_see_eagers_operations(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def labelled(a):
        with torch.profiler.record_function("user_range"):
            a = a.sin()
        return a + 1

    f, a = framejit.compile(labelled), torch.ones(16)
    for _ in range(3):
        f(a)
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "trace.json"))
    observer.start()
    f(a)
    observer.stop()
    observer.unregister_callback()
    names = {node["name"] for node in json.loads((tmp_path / "trace.json").read_text())["nodes"]}
    assert {"user_range", "aten::sin", "aten::add"} <= names


def test_a_profile_that_is_not_open_is_not_ended():
    f = _settled(lambda a: a * 2 + 1, np.ones(4))
    measured = framejit.profile()
    with pytest.raises(framejit.Error, match="not open"):
        measured.__exit__(None, None, None)
    with measured:
        f(np.ones(4))
    with pytest.raises(framejit.Error, match="not open"):
        measured.__exit__(None, None, None)
    with framejit.profile() as again:
        f(np.ones(4))
        str(again)
        assert [kernel.share_of_limit for kernel in again.kernels] == [None]
    assert [program.runs for program in again.programs] == [1]
