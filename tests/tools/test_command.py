"""python -m framejit: programs run as Python runs them and are reported on; doctor, cache and mistyped words."""
import json
import os
import subprocess
import sys

import pytest

import framejit

PROGRAM = """
import atexit, sys
import numpy as np
import framejit

@framejit.compile
def scaled(x):
    y = np.tanh(x) * 2
    print("mean", y.mean())
    return y + 1

class Layer:
    def __init__(self):
        self.weight = np.ones(3)
    @framejit.compile
    def forward(self, x):
        return np.exp(x * self.weight)

def main(word):
    @framejit.compile
    def inner(x):
        return np.exp(x).sum()
    inner(np.ones(3)), scaled(np.ones((3, 3))), Layer().forward(np.ones(3))
    print(__name__, __file__, sys.argv, sys.path[0], __spec__ is None, sys.modules["__main__"].main is main)
    if word == "raise":
        fail()
    if word == "interrupt":
        raise KeyboardInterrupt
    sys.exit({"message": "a message", "zero": None}.get(word, 3))

def fail():
    raise ValueError("of the program")

atexit.register(print, "the program's end")
if __name__ == "__main__":
    main(sys.argv[1])
"""
SUMMARY = """\
framejit: {program}
  3 functions compiled: 4 graphs, 4 kernels, 0 compiled loops, 1 break, 0 recompiles
  3 calls, 0 pieces found compiled; kernels: """


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def python(folder, *words, **how):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **how.pop("environment", {})}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, **how)


def command(folder, *words, **how):
    return python(folder, "-m", "framejit", *words, **how)


# ---- programs

@pytest.mark.parametrize("word", ["status", "zero", "message", "raise", "interrupt"])
@pytest.mark.parametrize("words", [("program.py",), ("-m", "program")], ids=["script", "module"])
def test_a_program_does_what_it_does_without_framejit(folder, words, word):
    plain, ours = python(folder, *words, word, "--json"), command(folder, "run", *words, word, "--json")
    assert ours.returncode == plain.returncode and ours.stdout == plain.stdout
    said, _, report = ours.stderr.partition("framejit: ")
    # Of a module Python's traceback begins in runpy.
    assert said == "".join(line for line in plain.stderr.splitlines(True) if "<frozen runpy>" not in line)
    assert ("framejit: " + report).startswith(SUMMARY.format(program=words[-1] if words[0] != "-m" else "-m program"))


def test_an_exit_status_and_a_traceback_are_these(folder):
    assert command(folder, "run", "program.py", "status").returncode == 3
    raised = command(folder, "run", "program.py", "raise")
    assert raised.returncode == 1
    files = [line.strip() for line in raised.stderr.splitlines() if line.strip().startswith("File ")]
    assert [line.partition(" in ")[2] for line in files] == ["<module>", "main", "fail"] and all("program.py" in line for line in files)
    assert "\nValueError: of the program\n" in raised.stderr


def test_the_summary_says_functions_and_breaks(folder):
    lines = command(folder, "run", "program.py", "zero").stderr.splitlines()
    assert lines[4:8] == ["  graphs  kernels  loops  breaks  recompiles  function",
                          "       2        2      0       1           0  scaled (program.py:6)",
                          "       1        1      0       0           0  Layer.forward (program.py:15)",
                          "       1        1      0       0           0  main.<locals>.inner (program.py:20)"]
    assert lines[9:] == ["  the break:", "  program.py:9 in scaled, 1 time", '    FJ102 output is written here: `print("mean", y.mean())`']


def test_the_summary_counts_loops_and_a_break_once_however_often_its_function_is_compiled(folder):
    (folder / "loops.py").write_text("""\
import framejit
import numpy as np

def total(a):
    s = 0.0
    for i in range(len(a)):
        s += a[i] * a[i]
    return s

def noted(x):
    y = x * 2
    print(end="")
    return y + 1

compiled = framejit.compile(total, retire=True)  # loops are judged only then
for _ in range(4):
    compiled(np.ones(1000))
for _ in range(3):
    framejit.compile(noted)(np.ones(3))
""")
    lines = command(folder, "run", "loops.py").stderr.splitlines()
    regions, words = (2, "2 compiled loops") if sys.version_info >= (3, 13) else (1, "1 compiled loop")  # 3.13 makes another first
    assert f", {words}, 3 breaks, " in lines[1] and f"       0        0      {regions}       0           0  total (loops.py:4)" in lines
    assert lines[-3:] == ["  the break:", "  loops.py:12 in noted, 3 times", '    FJ102 output is written here: `print(end="")`']


def test_json_has_every_function(folder):
    done = command(folder, "run", "--json=report.json", "program.py", "zero")
    assert done.returncode == 0 and done.stderr == ""
    found = json.loads((folder / "report.json").read_text())
    assert found["framejit"] == framejit.__version__ and found["program"] == "program.py" and found["totals"]["calls"] == 3
    assert [(one["name"], one["line"], one["graphs"], one["kernels"], len(one["breaks"])) for one in found["functions"]] == [
        ("scaled", 6, 2, 2, 1), ("Layer.forward", 15, 1, 1, 0), ("main.<locals>.inner", 20, 1, 1, 0)]
    scaled = next(one for one in found["functions"] if one["name"] == "scaled")
    assert scaled["file"] == str(folder / "program.py") and scaled["operations"] >= 4
    assert [(b["number"], b["line"], b["function"], b["count"]) for b in scaled["breaks"]] == [("FJ102", 9, "scaled", 1)]
    on_stderr = json.loads(command(folder, "run", "--json", "program.py", "zero").stderr)
    assert on_stderr["functions"] == found["functions"]


def test_a_file_that_cannot_be_written_is_said_before_the_program_runs(folder):
    done = command(folder, "run", "--json=nowhere/report.json", "program.py", "zero")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.endswith("error: the report can't be written to nowhere/report.json: No such file or directory\n")


def reported(done):
    return [name for name in ("scaled", "forward", "inner") if name in done.stdout]


def test_explain_prints_the_reports_of_the_functions_that_are_asked_for(folder):
    whole = command(folder, "explain", "program.py", "zero")
    assert whole.returncode == 0 and whole.stderr == ""
    assert reported(whole) == ["scaled", "forward", "inner"]
    assert reported(command(folder, "explain", "program.py:Layer.*", "zero")) == ["forward"]
    assert reported(command(folder, "explain", "program.py:inner", "zero")) == ["inner"]
    wrong = command(folder, "explain", "program.py:scalde", "zero")
    assert wrong.returncode == 0
    assert wrong.stderr.startswith("framejit: the program compiled no function 'scalde'; there are: ") and "did you mean 'scaled'?" in wrong.stderr


def test_html_is_written_or_refused_at_once(folder):
    pytest.importorskip("jinja2", reason="jinja2, which makes the page, is not installed")
    command(folder, "run", "--html", "report.html", "program.py", "zero")
    names = {path.name for path in folder.glob("report*.html")}
    assert names == {"report.scaled.html", "report.Layer.forward.html", "report.main._locals_.inner.html"}
    for file, why in (("missing/report.html", "No such file or directory"), (".", "Is a directory")):
        refused = command(folder, "run", "--html", file, "program.py", "zero")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.endswith(f"framejit run: error: the page can't be written to {file}: {why}\n")


def test_a_program_without_compiled_functions_is_one(folder):
    (folder / "plain.py").write_text("print('done')\n")
    done = command(folder, "run", "plain.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "framejit: plain.py\n  nothing was compiled: the program called no function that framejit.compile has returned\n"


def test_folders_archives_and_packages_run(folder):
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])\n")
    import zipfile

    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.write(package / "__main__.py", "__main__.py")
    for words in (["package"], ["archive.zip"], ["-m", "package"]):
        plain, ours = python(folder, *words, "-x"), command(folder, "run", *words, "-x")
        assert (ours.returncode, ours.stdout) == (0, plain.stdout) and plain.returncode == 0


@pytest.mark.parametrize("words", [("nowhere.py",), ("-m", "nowhere"), ("-m", "os.path.nowhere"), (".",), ("wrong.py",)])
def test_a_program_that_is_not_there_or_no_python_is_said_as_python_says_it(folder, words):
    (folder / "wrong.py").write_text("x = = 1\n")
    plain, ours = python(folder, *words), command(folder, "run", *words)
    assert (ours.returncode, ours.stderr, ours.stdout) == (plain.returncode, plain.stderr, "") and plain.returncode in (1, 2)


def test_processes_of_the_program_find_its_module_and_report_nothing(folder):
    (folder / "several.py").write_text("""
import multiprocessing, os
import numpy as np, framejit

@framejit.compile
def f(x):
    return np.exp(x) * 2

class Own:
    def __init__(self):
        self.value = float(f(np.zeros(2)).sum())

def work(kind):
    return Own()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([own.value for own in pool.map(work, [0])], flush=True)
    child = os.fork()
    if child == 0:
        raise SystemExit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), f(np.zeros(2)))
""")
    done = command(folder, "run", "several.py", environment={"PYTHONWARNINGS": "ignore"})
    assert done.stdout == "[4.0]\n5 [2. 2.]\n" and done.returncode == 0
    assert done.stderr.count("framejit: ") == 1 and "1 function compiled: 1 graph, " in done.stderr


# ---- the machine

def test_doctor_finds_the_machine(folder):
    environment = {"FRAMEJIT_THREADS": "1", "FRAMEJIT_CACHE_FOLDER": str(folder / "kernels")}
    found = json.loads(command(folder, "doctor", "--json", environment=environment).stdout)
    assert set(found) == {"versions", "processor", "threads", "blas", "gpu", "cache", "options", "off"}
    assert set(found["versions"]) == {"framejit", "python", "implementation", "executable", "platform", "numpy", "torch", "llvm"}
    assert set(found["processor"]) == {"name", "architecture", "vector_extensions", "caches", "cores"}
    assert set(found["gpu"]) == {"driver", "devices", "nvrtc", "why"} and set(found["blas"]) == {"numpy", "torch", "loaded"}
    assert set(found["cache"]) == {"folder", "writable", "kernels", "bytes", "bound", "why"} and set(found["options"]) == {"set", "ignored"}
    import numpy

    assert found["versions"]["numpy"] == numpy.__version__ and found["versions"]["framejit"] == framejit.__version__
    assert found["versions"]["python"] == sys.version.split()[0] and int(found["versions"]["llvm"].split(".")[0]) >= 19
    assert found["processor"]["cores"]["allowed"] == len(os.sched_getaffinity(0)) and found["processor"]["vector_extensions"] != []
    assert found["threads"] == {"framejit": 1, "why": "the option threads"}
    assert found["cache"] == {"folder": str(folder / "kernels"), "writable": True, "kernels": 0, "bytes": 0, "bound": 268435456, "why": None}
    assert found["options"]["set"]["FRAMEJIT_THREADS"] == "1" and found["options"]["ignored"] == {}
    assert "threads: one is used, by the option threads" in found["off"]
    assert (found["gpu"]["why"] is not None) == any(line.startswith("CUDA devices: ") for line in found["off"])
    assert found["gpu"]["devices"] or found["gpu"]["why"]


def test_doctor_finds_torch(folder):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    found = json.loads(command(folder, "doctor", "--json").stdout)
    assert found["versions"]["torch"] == str(torch.__version__)
    assert found["blas"]["torch"]["kernels"] == torch.backends.cpu.get_cpu_capability()


def test_doctor_names_options_that_are_ignored(folder):
    environment = {"FRAMEJIT_THREDS": "2", "FRAMEJIT_LOGS": "graph", "FRAMEJIT_TIER": "optimized", "FRAMEJIT_BACKEND": "lvm",
                   "FRAMEJIT_LOGS_FILE": "/no/such", "FRAMEJIT_DISABLE": "yes", "FRAMEJIT_NODE_LIMIT": "007"}
    found = json.loads(command(folder, "doctor", "--json", environment=environment).stdout)
    ignored = found["options"]["ignored"]
    assert sorted(ignored) == ["FRAMEJIT_BACKEND", "FRAMEJIT_LOGS", "FRAMEJIT_LOGS_FILE", "FRAMEJIT_THREDS", "FRAMEJIT_TIER"]
    assert ignored["FRAMEJIT_THREDS"]["why"] == "framejit has no option of this name; did you mean 'FRAMEJIT_THREADS'?"
    assert ignored["FRAMEJIT_LOGS"]["why"].endswith("; did you mean 'graphs'?")
    assert ignored["FRAMEJIT_LOGS_FILE"]["why"].endswith("the file of the logs can't be written: No such file or directory: '/no/such'")
    assert ignored["FRAMEJIT_BACKEND"]["why"].endswith("; did you mean 'llvm'?")
    assert ignored["FRAMEJIT_TIER"]["why"] == "it is no value of the option tier, which stays 'auto'"
    assert found["options"]["set"]["FRAMEJIT_DISABLE"] == "yes"
    assert "compiling: FRAMEJIT_DISABLE is set; everything runs as it is written" in found["off"]


def test_doctor_says_why_kernels_are_not_kept(folder):
    (folder / "file").write_text("")
    found = json.loads(command(folder, "doctor", "--json", environment={"FRAMEJIT_CACHE_FOLDER": str(folder / "file")}).stdout)
    assert found["cache"]["writable"] is False and found["cache"]["why"] == f"{folder / 'file'} is no folder"
    found = json.loads(command(folder, "doctor", "--json", environment={"FRAMEJIT_CACHE_BYTES": "0"}).stdout)
    assert found["cache"]["folder"] is None and "kernels on disk: the option cache_bytes is 0; every process compiles its own" in found["off"]


def test_doctor_as_text_has_its_sections(folder):
    done = command(folder, "doctor")
    assert done.returncode == 0 and done.stdout.startswith(f"framejit {framejit.__version__} on CPython {sys.version.split()[0]} ")
    titles = [line.partition(":")[0] for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles[1:] == ["processor", "BLAS", "CUDA devices", "kernels on disk", "options", "off"]


def test_the_cache_is_shown_listed_and_cleared(folder):
    environment = {"FRAMEJIT_CACHE_FOLDER": str(folder / "kernels")}
    command(folder, "run", "program.py", "zero", environment=environment)
    found = json.loads(command(folder, "cache", "list", "--json", environment=environment).stdout)
    assert found["folder"] == str(folder / "kernels") and found["kernels"] == len(found["files"]) >= 3
    assert found["bytes"] == sum(file["bytes"] for file in found["files"])
    assert len(command(folder, "cache", "list", environment=environment).stdout.splitlines()) == found["kernels"] + 1
    assert command(folder, "cache", "where", environment=environment).stdout == f"{folder / 'kernels'}\n"
    cleared = json.loads(command(folder, "cache", "clear", "--json", environment=environment).stdout)
    assert cleared == {"folder": str(folder / "kernels"), "deleted": found["kernels"], "left": 0}


# ---- words

def test_version(folder):
    assert command(folder, "--version").stdout == f"framejit {framejit.__version__}\n"


@pytest.mark.parametrize("words, said", [
    (["docter"], "there is no command 'docter'; there are: run, explain, doctor, cache; did you mean 'doctor'?"),
    (["xyzzy"], "there is no command 'xyzzy'; there are: run, explain, doctor, cache"),
    (["--verison"], "there is no option --verison; did you mean --version?"),
    (["doctor", "--jsn"], "there is no option --jsn; did you mean --json?"),
    (["run", "--htlm", "x.html", "program.py"], "there is no option --htlm; did you mean --html?"),
    (["cache", "lits"], "there is no action 'lits'; there are: show, where, list, clear; did you mean 'list'?"),
    (["cache", "list", "all"], "'all' is one word too many"),
    (["run"], "a script is needed, or -m and a module"),
    (["run", "-m"], "-m is followed by the name of a module")])
def test_words_that_mean_nothing(folder, words, said):
    done = command(folder, *words)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.splitlines()[-1].endswith(f"error: {said}")


def test_help_is_there_for_each_command(folder):
    assert command(folder).returncode == 2 and "framejit run script.py" in command(folder, "--help").stdout
    for name in ("run", "explain", "doctor", "cache"):
        done = command(folder, name, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"usage: python -m framejit {name} ")


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--json"], ["explain", "quiet.py"], ["cache", "--json"]])
def test_who_reads_may_go(folder, words):
    (folder / "quiet.py").write_text("""
import numpy as np, framejit
framejit.compile(lambda x: np.exp(x) * 2)(np.ones(3))
""")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-m", "framejit", *words], cwd=folder, env=environment, stdout=write, stderr=subprocess.PIPE,
                              text=True, timeout=300)
    finally:
        os.close(write)
    assert done.stderr == ""
    closed = subprocess.run(["sh", "-c", '"$0" -m framejit "$@" >&-', sys.executable, *words], cwd=folder, env=environment,
                            stderr=subprocess.PIPE, text=True, timeout=300)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_doctor_does_without_what_is_not_installed(folder):
    (folder / "without.py").write_text("""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "threadpoolctl"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import importlib.metadata
versions = importlib.metadata.version
def version(name):
    if name == "torch":
        raise importlib.metadata.PackageNotFoundError(name)
    return versions(name)
importlib.metadata.version = version
from framejit.__main__ import main
sys.exit(main(["doctor", "--json"]))
""")
    done = python(folder, "without.py")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == "" and found["versions"]["torch"] is None and found["blas"]["torch"] is None
    assert "torch: it is not installed; NumPy alone is compiled" in found["off"]
    assert all(set(entry) == {"library", "version", "kernels", "threads", "file"} for entry in found["blas"]["loaded"])
