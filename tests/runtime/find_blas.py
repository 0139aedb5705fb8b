"""Prints the path of the BLAS that a package brings: numpy's OpenBLAS or torch's own library. Nothing if there is none."""
import importlib.util
import pathlib
import sys

package = sys.argv[1]
spec = importlib.util.find_spec(package)
if spec is not None:
    folder = pathlib.Path(spec.origin).parent
    pattern = {"numpy": "../numpy.libs/*openblas64*.so", "torch": "lib/libtorch_cpu.so"}[package]
    found = sorted(folder.glob(pattern))
    if found:
        print(found[0].resolve())
