"""Where machine code comes from: two tiers, other processes by way of the disk, forks, exits, and the command line."""
import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import framejit

PROGRAM = """
    import numpy as np
    import framejit

    @framejit.compile
    def f(x, y):
        return np.tanh(x) * y + (x - y).sum(0)

    x, y = np.linspace(-3, 3, 600, dtype=np.float32).reshape(30, 20), np.ones((30, 20), np.float32)
    results = [f(x, y) for _ in range(3)]
    framejit._core.finish_compiling()
    results.append(f(x, y))
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    info = framejit.cache_info()
    assert info["internal_errors"] == info["kernels_failed"] == 0
    print(results[0].astype(np.float64).sum().hex(), info["kernels_compiled"], info["kernels_loaded"], info["disk"]["rejected"])
"""


def start(program, *arguments, **environment):
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen([sys.executable, "-P", *(["-c", textwrap.dedent(program)] if program else []), *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path, **environment})


def finish(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out, error


def run(program, *arguments, **environment):
    return finish(start(program, *arguments, **environment))


def values(output):
    value, compiled, loaded, rejected = output.split()
    return value, int(compiled), int(loaded), int(rejected)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kernels"


def test_a_second_process_loads_what_the_first_compiled(folder):
    first = values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])
    assert first[1] > 0 and first[2] == 0
    second = values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])
    assert second == (first[0], 0, len(list(folder.iterdir())), 0)


def test_processes_that_start_at_once_agree(folder):
    processes = [start(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder)) for _ in range(3)]
    results = [values(finish(process)[0]) for process in processes]
    assert len({result[0] for result in results}) == 1 and all(result[3] == 0 for result in results)
    assert not [file for file in folder.iterdir() if file.suffix != ".kernel"]
    assert values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])[1] == 0


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:10], lambda whole: whole[:72], lambda whole: whole[:-1],
                                    lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]), lambda whole: b"foreign" * 99,
                                    lambda whole: whole + b"more"],
                         ids=["empty", "header cut", "header only", "end cut", "last byte", "foreign", "longer"])
def test_damaged_files_are_compiled_again(folder, damage):
    expected = values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])[0]
    files = sorted(folder.iterdir())
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    assert "damaged" in run(None, "-m", "framejit", "cache", "list", FRAMEJIT_CACHE_FOLDER=str(folder))[0]
    value, compiled, loaded, rejected = values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])
    assert value == expected and compiled > 0 and loaded == 0 and rejected == len(files)
    assert sorted(folder.iterdir()) == files
    assert values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])[1:] == (0, len(files), 0)


@pytest.mark.parametrize("where", ["below a file", "nowhere"])
def test_a_folder_that_cannot_be_is_said_once(tmp_path, where):
    (tmp_path / "file").touch()
    place = {"below a file": tmp_path / "file" / "cache", "nowhere": pathlib.Path("/proc/framejit/cache")}[where]
    out, error = run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(place))
    assert values(out)[1] > 0
    assert error.count("framejit:") == 1 and f"a file of the kernel cache {place} can't be written" in error


def test_a_full_disk_is_said_once_and_leaves_nothing(folder):
    full = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))\n"
    out, error = run(full + textwrap.dedent(PROGRAM), FRAMEJIT_CACHE_FOLDER=str(folder))
    assert values(out)[1] > 0
    assert error.count("framejit:") == 1 and "can't be written" in error
    assert list(folder.iterdir()) == []


def test_leftovers_and_single_bad_places_cost_nothing_else(folder):
    """A process that was killed may have left files under any name that the next one would choose."""
    expected = values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))[0])[0]
    files = sorted(folder.iterdir())
    files[0].unlink()
    files[0].mkdir(mode=0o700)
    for process in range(1, 4000, 7):
        (folder / f"{files[0].stem}.{process}.0.unfinished").write_text("cut off")
    out, error = run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))
    value, compiled, loaded, rejected = values(out)
    assert (value, loaded) == (expected, len(files) - 1) and compiled > 0 and rejected == 1
    assert error.count("framejit:") == 2 and "is not read: it is no ordinary file" in error and "Is a directory" in error


def test_no_bytes_means_no_files(folder):
    assert values(run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder), FRAMEJIT_CACHE_BYTES="0")[0])[1] > 0
    assert not folder.exists()


def test_the_users_folder_is_the_default(tmp_path):
    environment = {"FRAMEJIT_CACHE_FOLDER": "", "XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home")}
    where = run(None, "-m", "framejit", "cache", "where", **environment)[0].strip()
    assert where == str(tmp_path / "xdg" / "framejit")
    environment["XDG_CACHE_HOME"] = "relative/paths/do/not/count"
    assert run(None, "-m", "framejit", "cache", "where", **environment)[0].strip() == str(tmp_path / "home" / ".cache" / "framejit")


def test_the_bound_holds_over_processes(folder):
    program = """
        import numpy as np, framejit
        for k in range(12):
            f = framejit.compile(eval(f"lambda x: np.sqrt(x * {k + 2}) + {k}", {"np": np}))
            f(np.ones(7 + k, np.float32))
        framejit._core.finish_compiling()
        print(framejit.cache_info()["disk"]["evicted"])
    """
    evicted = int(run(program, FRAMEJIT_CACHE_FOLDER=str(folder), FRAMEJIT_CACHE_BYTES="8000")[0])
    assert evicted > 0 and 0 < sum(file.stat().st_size for file in folder.iterdir()) <= 8000


def test_command_line(folder):
    run(PROGRAM, FRAMEJIT_CACHE_FOLDER=str(folder))
    count = len(list(folder.iterdir()))
    (folder / "mine.txt").write_text("not a kernel")

    def cache(*arguments):
        return run(None, "-m", "framejit", "cache", *arguments, FRAMEJIT_CACHE_FOLDER=str(folder))[0]

    assert cache("where").strip() == str(folder)
    assert f"{folder}: {count} kernels, " in cache()
    listed = cache("list").splitlines()
    assert len(listed) == count + 1 and all("optimised" in line or "quick" in line for line in listed[:-1])
    assert cache("clear").startswith(f"{count} kernels deleted")
    assert [file.name for file in folder.iterdir()] == ["mine.txt"]
    off = start(None, "-m", "framejit", "cache", FRAMEJIT_CACHE_BYTES="0")
    assert "keeps no kernels on disk" in off.communicate()[1] and off.returncode == 1


def work(x, y):
    z = np.exp(x * 0.5) - y
    w = z / (1 + np.abs(z).max(axis=1, keepdims=True))
    return w.sum(0), np.where(w > 0.1, w, y) @ y.T, (x.astype(np.float16) * 3).astype(np.float32)


def samples():
    random = np.random.default_rng(3)
    x, y = random.standard_normal((2, 37, 53)).astype(np.float32)
    x[0, :5] = np.inf, -np.inf, np.nan, -0.0, 1e-40
    return x, y


def test_both_tiers_give_the_same_bits():
    x, y = samples()
    results = {}
    with np.errstate(all="ignore"):
        for tier in ("quick", "optimised"):
            framejit.reset()
            results[tier] = framejit.compile(work, tier=tier)(x, y)
            info = framejit.cache_info()
            assert info["internal_errors"] == 0 and info["kernels_launched"] > 0
            made = info["kernels_compiled"] + info["kernels_loaded"] + info["kernels_shared"]
            assert made >= info["kernels_launched"] and info["kernels_optimised"] == (0 if tier == "quick" else info["kernels_compiled"])
    for quick, optimised in zip(results["quick"], results["optimised"]):
        assert np.array_equal(quick, optimised, equal_nan=True) and np.array_equal(np.signbit(quick[quick == 0]), np.signbit(optimised[quick == 0]))


def test_threads_see_no_difference_while_code_is_swapped():
    x, y = samples()
    wrong = []
    with np.errstate(all="ignore"):
        for round_number in range(4):
            with framejit.options(cache_bytes=0):
                framejit.reset()
                compiled = framejit.compile(work, cache_bytes=0)
                expected = [part.tobytes() for part in compiled(x, y)]

                def call():
                    with np.errstate(all="ignore"):
                        for _ in range(200):
                            if [part.tobytes() for part in compiled(x, y)] != expected:
                                wrong.append(round_number)

                threads = [threading.Thread(target=call) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                framejit._core.finish_compiling()
                assert framejit.cache_info()["kernels_optimised"] > 0 and framejit.cache_info()["kernels_failed"] == 0
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_while_the_background_compiles():
    out, _ = run("""
        import os, warnings
        import numpy as np
        import framejit

        warnings.simplefilter("ignore")  # Python's warning that a process with threads forks
        x = np.linspace(0, 1, 4000, dtype=np.float32)
        def make(k):
            return framejit.compile(eval(f"lambda x: np.exp(x * {k}) - np.tanh(x) / {k}", {"np": np}), cache_bytes=0)
        for k in range(1, 13):
            f = make(k)
            expected = f(x).tobytes()
            f(x)  # asks for the optimised tier
            child = os.fork()
            if child == 0:
                good = f(x).tobytes() == expected and make(k + 0.5)(x).shape == x.shape
                framejit._core.finish_compiling()
                info = framejit.cache_info()
                good = good and f(x).tobytes() == expected and info["kernels_optimised"] >= 1 and info["kernels_failed"] == 0
                os._exit(0 if good else 1)
            assert os.waitpid(child, 0)[1] == 0, k
        print("done")
    """)
    assert "done" in out


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "framejit.reset()", "del f, fs"])
def test_a_process_may_end_while_the_background_compiles(ending):
    run(f"""
        import numpy as np
        import framejit

        x = np.ones(100, np.float32)
        fs = [framejit.compile(eval(f"lambda x: np.exp(x * {{k}}) - np.tanh(x)", {{"np": np}}), cache_bytes=0) for k in range(8)]
        for f in fs:
            f(x), f(x)
        {ending}
    """)


def test_a_process_may_end_in_the_middle_of_a_long_compilation():
    """LLVM's own tables must outlive the job that uses them."""
    processes = [start(f"""
        import time
        import numpy as np
        import framejit

        @framejit.compile(cache_bytes=0)
        def f(x):
            for i in range(60):
                x = np.exp(x * i) - np.tanh(x)
            return x

        x = np.ones(100, np.float32)
        f(x), f(x)
        time.sleep({delay / 1000})
    """) for delay in range(0, 400, 40)]
    for process in processes:
        finish(process)


def test_reset_forgets_counts_and_keeps_the_disk():
    f = framejit.compile(lambda x: x * 2.5 + 1)
    x = np.ones(5, np.float32)
    f(x)
    framejit._core.finish_compiling()
    assert framejit.cache_info()["kernels_compiled"] + framejit.cache_info()["kernels_loaded"] == 1
    framejit.reset()
    assert framejit.cache_info()["kernels_compiled"] == framejit.cache_info()["disk"]["stored"] == 0
    f(x)
    info = framejit.cache_info()
    assert info["kernels_loaded"] == info["disk"]["hits"] == 1 and info["kernels_compiled"] == 0


def test_wrong_tier_names_are_the_callers_error():
    with pytest.raises(ValueError, match="auto or quick or optimised"):
        framejit.compile(lambda x: x, tier="slow")
