"""The wheel holds everything: it runs the examples where there is no compiler, and exports nothing but its entry."""
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

import framejit

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


def test_wheel_is_small_and_carries_llvm_s_notice(wheel):
    assert wheel.stat().st_size < 30e6, f"{wheel.stat().st_size / 1e6:.1f} MB"
    with zipfile.ZipFile(wheel) as archive:
        notices = [n for n in archive.namelist() if n.endswith("LLVM.txt")]
        assert notices and b"LLVM Exceptions" in archive.read(notices[0])


def test_extension_needs_only_system_libraries():
    core = framejit._core.__file__
    needed = subprocess.run(["readelf", "-d", core], capture_output=True, text=True, check=True).stdout
    libraries = {line.split("[")[1].split("]")[0] for line in needed.splitlines() if "NEEDED" in line}
    allowed = ("libc.", "libm.", "libstdc++.", "libgcc_s.", "libz.", "libzstd.", "libdl.", "libpthread.", "librt.", "ld-linux", "libpython", "libasan", "libubsan")
    assert [n for n in libraries if not n.startswith(allowed)] == []


def test_extension_exports_its_entry_alone():
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", framejit._core.__file__], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in symbols.splitlines() if " UND " not in line and (" GLOBAL " in line or " WEAK " in line)]
    assert [n for n in defined if n != "PyInit__core"] == []


def test_import_of_framejit_does_not_import_torch():
    program = "import sys, framejit; print('torch' in sys.modules, 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
