"""Facts about the tree that the architecture promises."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parent.parent.parent
# By folder: those below it, which its files may include. CMakeLists.txt gives each target these and no others.
FLOORS = {
    "runtime": [],
    "graph_ir": ["runtime"],
    "codegen": ["runtime", "graph_ir"],
    "cpython": [],
    "arrays": ["runtime", "cpython"],
    "guards": ["runtime", "graph_ir", "cpython", "arrays"],
    "segment": ["runtime", "graph_ir", "cpython", "arrays", "guards"],
    "tracer": ["runtime", "graph_ir", "cpython", "arrays", "guards", "segment"],
    "frame_hook": ["runtime", "graph_ir", "codegen", "cpython", "arrays", "guards", "segment", "tracer"],
}
SOURCES = [p for folder in FLOORS
           for p in (ROOT / folder).rglob("*") if p.suffix in (".cpp", ".c", ".h", ".def")]


def relative(paths):
    return sorted(str(p.relative_to(ROOT)) for p in paths)


def test_cpython_versions_are_known_in_one_folder():
    assert relative(p for p in SOURCES if re.search("PY_VERSION_HEX|Py_Version", p.read_text()) and p.relative_to(ROOT).parts[0] != "cpython") == []


def test_a_python_without_a_file_has_every_function():
    """unsupported.c stands in for all of cpython.h (and signals.h): a name without a body would fail at import."""
    def names(*files):
        return {name for file in files for name in re.findall(r"\bfj_\w+(?=\()", re.sub(r"/\*.*?\*/", "", (ROOT / "cpython" / file).read_text(), flags=re.S))}

    assert names("cpython.h", "signals.h") - names("unsupported.c", "objects.cpp") == set()
    assert names("unsupported.c") <= names("cpython.h", "signals.h", "internal.h")


def test_no_include_runs_upward():
    allowed = {folder: {folder, *below} for folder, below in FLOORS.items()}
    allowed["graph_ir"].add("made")  # by CMake: names of its own rows
    text = (ROOT / "CMakeLists.txt").read_text()
    assert {row[0]: row[1:] for row in (found.split() for found in re.findall(r"^ *floor\((.*)\)$", text, re.M))} == FLOORS
    upward = [f"{p.relative_to(ROOT)}: {name}" for p in SOURCES for name in re.findall(r'#include "([\w/.]+)"', p.read_text())
              if name.split("/")[0] not in allowed[p.relative_to(ROOT).parts[0]] and "/" in name]
    assert upward == []


def test_folders_are_rooms():
    """At most 20 sources in a folder."""
    crowded = {}
    for path in SOURCES:
        if path.suffix in (".cpp", ".c"):
            crowded.setdefault(path.parent.relative_to(ROOT), []).append(path.name)
    assert {folder: len(names) for folder, names in crowded.items() if len(names) > 20} == {}


def test_what_builds_without_python_includes_no_python():
    below = [p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("graph_ir", "codegen", "runtime")]
    assert relative(p for p in below if re.search(r'#include\s*[<"](Python\.h|pybind11)', p.read_text())) == []


def initialised_statics(text):
    """(declaration, initialiser) of each static variable of a function, without comments, texts and directives."""
    text = re.sub(r'^ *#(?:.*\\\n)*.*$|//.*$|"(?:[^"\\]|\\.)*"', '', text, flags=re.M)
    for found in re.finditer(r"^ +static (?!constexpr|constinit|inline|thread_local)([^;{}()=]*?) ?(?:=|(?=\{))", text, re.M):
        depth, end = 0, found.end()
        while text[end] != ";" or depth:
            depth += (text[end] in "({[") - (text[end] in ")}]")
            end += 1
        yield found[1], text[found.end():end]


def runs_python(initialiser):
    calls = set(re.findall(r"(\w+)\(", initialiser)) - {"PyUnicode_InternFromString", "intern", "name", "special_name", "PyTuple_New", "PyVarObject_HEAD_INIT", "uint64_t"}
    return bool(calls or re.search(r"\] *(\(.*\) *)?\{|new (?!std::)", initialiser))


def test_statics_of_functions_run_no_python():
    """The guard of a static is held while its initialiser runs. An import, a call, a collection let go of the GIL
    there, and a thread that takes it and comes to the same static waits for the guard for ever. `once`
    (cpython/ref.h) has no guard. Names may be interned."""
    assert list(initialised_statics("  static auto* a = f(\"(\");\n  static int b;\n  static int c{g()};\n")) == [("auto* a", " f()"), ("int c", "{g()}")]
    assert [runs_python(text) for text in ('imported()', '[] { return 1; }()', 'new Table', 'intern()', '{1, 2}')] == [True, True, True, False, False]
    above = [p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("frame_hook", "tracer", "segment", "arrays", "guards") and p.suffix in (".cpp", ".h")]
    assert [f"{p.relative_to(ROOT)}: {name}" for p in above for name, initialiser in initialised_statics(p.read_text()) if runs_python(initialiser)] == []


def test_the_environment_is_read_by_the_options_table_alone():
    assert relative(p for p in SOURCES if "getenv(" in p.read_text() and not p.stem.startswith("options")) == []


def test_files_that_documents_name_exist():
    missing = []
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for name in re.findall(r"`((?:frame_hook|cpython|arrays|segment|tracer|guards|graph_ir|codegen|runtime|tests|docs|examples|benchmarks|framejit)/[\w/.]*)`", document.read_text()):
            if not (ROOT / name).exists():
                missing.append(f"{document.name}: {name}")
        for name in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            if not (document.parent / name).exists():
                missing.append(f"{document.name}: {name}")
    assert missing == []


def test_sources_listed_for_cmake_are_all_there_are():
    """A file that no CMakeLists.txt names is dead; versions.def names those of one CPython."""
    listed = " ".join(p.read_text() for p in ROOT.rglob("CMakeLists.txt") if "build" not in p.relative_to(ROOT).parts and ".venv" not in str(p))
    rows = re.findall(r"FJ_VERSION\((\d+), (\d+)\)", (ROOT / "cpython/versions.def").read_text())
    listed += " ".join(f"v{major}{minor}.c" for major, minor in rows)
    assert relative(p for p in SOURCES if p.suffix in (".cpp", ".c") and p.name not in listed) == []


def test_no_generated_file_is_tracked():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        return  # an unpacked source archive
    assert [n for n in tracked.stdout.split() if n.endswith((".so", ".o", ".pyc", ".whl"))] == []


def test_every_option_is_documented_as_it_is_declared():
    table = re.sub(r"\n +", " ", (ROOT / "runtime/base/options.def").read_text()).replace('" "', "")  # a row may take several lines
    rows = re.findall(r'FJ_OPTION\(\s*(\w+),.*"([^"]*)"\s*\)', table)
    documented = re.findall(r"^\| `(\w+)` \| `(\w+)` \| [^|]* \| (.*) \|$", (ROOT / "docs/options.md").read_text(), re.M)
    assert documented == [(name, "FRAMEJIT_" + name.upper(), sentence) for name, sentence in rows]
