"""Libraries that programs are built into, called from C: under the address sanitizer, and under valgrind."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import program_cases
import pytest

import framejit
from framejit import Dim, GraphError, _core
from framejit._export import arguments, header

CC, VALGRIND = shutil.which("cc"), shutil.which("valgrind")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")
LEVELS = _core.processor_levels()
MODULES = ("mlp", "convolutions", "encoder", "lstm", "words", "grouped", "recurrent", "bert")

# Reads calls from a file, each with its sizes, its arrays and the bytes of its results, and writes what they give.
DRIVER = """
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>

static int64_t number(FILE *in) {{
  int64_t value;
  if (fread(&value, 8, 1, in) != 1) exit(0);
  return value;
}}

static void *array(FILE *in, int64_t *bytes) {{
  *bytes = number(in);
  if (*bytes < 0) return NULL;
  char *place = malloc(*bytes);
  if (fread(place, 1, *bytes, in) != (size_t)*bytes) exit(1);
  return place;
}}

int main(int argc, char **argv) {{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (argc > 3) {name}_set_threads(atoi(argv[3]));
  for (;;) {{
    int64_t bytes;
    {read}
    int status = {name}({parameters});
    printf("%d %s\\n", status, {name}_error());
    {write}
  }}
}}
"""


def compiled(built, name, sizes, given, results, folder, *flags):
    read = [f"int64_t {size} = number(in);" for size in sizes] + [f"void *{x} = array(in, &bytes);" for x in given]
    read += [f"int64_t {x}_bytes = number(in); void *{x} = {x}_bytes < 0 ? NULL : malloc({x}_bytes);" for x in results]
    write = [f"if (!status) fwrite({x}, 1, {x}_bytes, out);" for x in results] + [f"free({x});" for x in [*given, *results]]
    source = folder / "driver.c"
    source.write_text(DRIVER.format(name=name, read="\n    ".join(read), write="\n    ".join(write),
                                    parameters=", ".join([*sizes, *given, *results])))
    subprocess.run([CC, "-g", "-Wall", "-Werror", *flags, f"-I{built.header.parent}", str(source), "-o", str(folder / "driver"),
                    f"-L{built.library.parent}", f"-l{name}", f"-Wl,-rpath,{built.library.parent}"], check=True)
    return folder / "driver"


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if isinstance(value, int) else [as_numpy(value)]


def as_numpy(array):
    return array.detach().numpy() if hasattr(array, "detach") else np.asarray(array)


def call_of(program, args, kwargs, results):
    """The bytes of one call in the driver's file."""
    bound = program.signature.python_signature.bind(*args, **kwargs).arguments
    arrays = [as_numpy(array) for name, value in bound.items() for _, array in arguments.arrays_in([name], value)]
    sizes = {}
    for array, type in zip(arrays, program.signature.parameters.values()):
        sizes.update({name: size for name, size in zip(type.shape, array.shape) if isinstance(name, str)})
    numbers = [np.int64(sizes[name]).tobytes() for name in program.ranges]
    return b"".join([*numbers, *(np.int64(array.nbytes).tobytes() + np.ascontiguousarray(array).tobytes() for array in arrays),
                     *(np.int64(result.nbytes).tobytes() for result in results)])


def run(command, folder, calls):
    (folder / "calls").write_bytes(b"".join(calls))
    made = subprocess.run([*command, str(folder / "calls"), str(folder / "results")], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return [line.split(" ", 1) for line in made.stdout.splitlines()], (folder / "results").read_bytes()


def case(name):
    if name in program_cases.FUNCTIONS:
        return program_cases.FUNCTIONS[name]
    pytest.importorskip("torch", reason="torch is not installed")
    if name == "bert":
        pytest.importorskip("transformers", reason="transformers is not installed")
        return program_cases.bert()
    return program_cases.modules()[name]


@pytest.mark.parametrize("name", [*program_cases.FUNCTIONS, *MODULES])
def test_values_from_c(name, tmp_path):
    function, given, sizes = case(name)
    args, kwargs = given(5)
    program = framejit.export(function, args, kwargs, dynamic_shapes=sizes)
    built = program.build(tmp_path / "built", name=name, cpu=LEVELS)
    names = [argument.replace("['", "_").replace("']", "") for argument in program.signature.parameters]
    calls, expected = [], []
    for n in (2, 7, 40):
        args, kwargs = given(n)
        results = leaves(function(*args, **kwargs))
        calls.append(call_of(program, args, kwargs, results))
        expected += results
    places = [f"result{i}" for i in range(len(results))]
    driver = compiled(built, name, list(program.ranges), names, places, tmp_path, "-fsanitize=address,undefined")
    commands = {"sanitized": [driver]}
    if VALGRIND:  # which knows no AVX-512: the next version is run
        driver = compiled(built, name, list(program.ranges), names, places, tmp_path)
        commands["valgrind"] = [VALGRIND, "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", driver]
    for kind, command in commands.items():
        said, data = run(command, tmp_path, calls)
        assert said == [["0", ""]] * len(calls), kind
        for result in expected:
            found, data = np.frombuffer(data[:result.nbytes], result.dtype).reshape(result.shape), data[result.nbytes:]
            np.testing.assert_allclose(found, result, rtol=2e-5, atol=2e-6, err_msg=kind)
        assert not data


def scaled(x, index):
    return np.take(x, index) * 2.0


BATCH = Dim("batch", min=1, max=8)


@pytest.fixture
def small(tmp_path):
    program = framejit.export(scaled, (np.arange(4.0), np.arange(4)), dynamic_shapes=[{0: BATCH}, None])
    built = program.build(tmp_path / "built", cpu=LEVELS[0])
    return built, compiled(built, "scaled", ["batch"], ["x", "i"], ["result"], tmp_path)


def call(batch, x, index, bytes):
    given = np.int64(-1).tobytes() if x is None else np.int64(len(x) * 8).tobytes() + np.asarray(x, float).tobytes()
    return b"".join([np.int64(batch).tobytes(), given,
                     np.int64(32).tobytes(), np.asarray(index).tobytes(), np.int64(bytes).tobytes()])


def test_bad_calls_from_c(small, tmp_path):
    indices = [0, 1, 0, 1]
    said, data = run([small[1]], tmp_path, [
        call(9, np.ones(9), indices, 32), call(0, np.ones(0), indices, 32), call(2, None, indices, 32), call(2, np.ones(2), indices, -1),
        call(2, np.ones(2), [0, 1, 2, 0], 32), call(2, [1.0, 5.0], indices, 32)])
    assert said == [["1", "scaled: batch is 9, and the library is for batch from 1 to 8"],
                    ["1", "scaled: batch is 0, and the library is for batch from 1 to 8"],
                    ["1", "scaled: x is a null pointer"], ["1", "scaled: result is a null pointer"],
                    ["2", "scaled: an index is out of range"], ["0", ""]]
    assert np.frombuffer(data).tolist() == [2.0, 10.0, 2.0, 10.0]


def test_sizes_that_overflow(tmp_path):
    sizes = {0: Dim("rows", min=2), 1: Dim("columns", min=2)}
    program = framejit.export(program_cases.softmax, (np.ones((4, 3)),), dynamic_shapes=[sizes])
    library = ctypes.CDLL(program.build(tmp_path / "built").library)
    library.softmax_error.restype = ctypes.c_char_p
    x, result = np.ones((4, 3)), np.zeros((4, 3))
    places = [ctypes.c_void_p(array.ctypes.data) for array in (x, result)]
    for rows, columns in ((2**62, 2), (2**40, 2**40), (2**32, 2**32), (2**48, 3)):
        assert library.softmax(ctypes.c_int64(rows), ctypes.c_int64(columns), *places) == 1
        assert library.softmax_error() == b"softmax: an array would have more elements than memory holds"
    assert library.softmax(ctypes.c_int64(4), ctypes.c_int64(3), *places) == 0 and np.allclose(result, 1 / 3)


@pytest.mark.skipif(VALGRIND is None or "x86-64-v4" not in LEVELS, reason="no valgrind, which is a processor without AVX-512")
def test_a_processor_that_is_too_old(tmp_path):
    program = framejit.export(scaled, (np.arange(4.0), np.arange(4)), dynamic_shapes=[{0: BATCH}, None])
    built = program.build(tmp_path / "built", cpu="x86-64-v4")
    driver = compiled(built, "scaled", ["batch"], ["x", "i"], ["result"], tmp_path)
    said, _ = run([VALGRIND, "-q", driver], tmp_path, [call(2, np.ones(2), [0, 1, 0, 1], 32)])
    assert said == [["4", "scaled: the library was built for x86-64-v4, and this processor is older"]]


def test_the_header_and_what_lies_beside_it(small):
    text = small[0].header.read_text()
    assert "int scaled(int64_t batch, const double *x, const int64_t *index, double *result);" in text
    assert "/* The program.\n *   batch   from 1 to 8\n *   x       [batch]\n *   index   [4]\n *   result  [4] */\n" in text
    assert sorted(os.listdir(small[0].header.parent)) == ["libframejit_program.so", "libscaled.so", "scaled.h"]
    needed = subprocess.run(["readelf", "-d", small[0].library, small[0].runtime], capture_output=True, text=True).stdout
    assert "python" not in needed and "LLVM" not in needed


KEYS = ["*/ int evil(void); /*", "a\nb", "ends in \\", "*??/", "\\\n*/", "\u2028", "??/", "linux", "int64_t", "// x \\"]


@pytest.mark.parametrize("flags", [("-std=gnu99",), ("-std=c99",), ("-x", "c++")])
def test_keys_stay_in_the_comments_of_the_header(flags, tmp_path):
    def keyed(d):
        return {key: value * 2 for key, value in d.items()}

    built = framejit.export(keyed, ({key: np.ones(3) for key in KEYS},)).build(tmp_path)
    source = tmp_path / "includes.c"
    source.write_text('#include "keyed.h"\n')
    command = [CC, *flags, "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    subprocess.run([*command, "-fsyntax-only", str(source)], check=True)
    seen = subprocess.run([*command, "-E", "-P", str(source)], check=True, capture_output=True, text=True).stdout
    assert "evil(" not in seen and re.findall(r"\bkeyed\w*\(", seen) == ["keyed(", "keyed_error(", "keyed_set_threads("]
    assert built.header.read_text().count("evil") >= 1


@pytest.mark.parametrize("text", ["*/", "??/", "a \\", "\\", "/* */", "*\n/", "*\\", "x\0\x1b", "\ud800"])
def test_lines_of_comments_of_c(text):
    for line in header._lines(text + " " + text):
        assert "*/" not in line and "??" not in line and not line.endswith("\\") and line.isprintable()


def test_the_example_of_the_page(tmp_path):
    page = (pathlib.Path(__file__).parents[2] / "docs/export.md").read_text()
    [source], [console] = re.findall(r"^```c\n(.*?)^```$", page, re.M | re.S), re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S)
    command, _, expected = console.partition("\n")
    program = framejit.export(program_cases.softmax, (np.ones((4, 3)),), dynamic_shapes={"x": {0: Dim("batch", min=1, max=256)}})
    program.build(tmp_path / "softmax", cpu=LEVELS)
    (tmp_path / "main.c").write_text(source)
    made = subprocess.run(command.removeprefix("$ "), shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (made.returncode, made.stdout, made.stderr) == (0, expected, "")


def changed(x, y):
    x += y
    return y.T, x.shape[0], x


def test_arrays_that_are_written_and_views(tmp_path):
    program = framejit.export(changed, (np.ones((2, 3)), np.ones((2, 3))), dynamic_shapes=[{0: BATCH}, {0: BATCH}])
    built = program.build(tmp_path / "built")
    text = built.header.read_text()
    assert "int changed(int64_t batch, double *x, const double *y, double *result_0, double *result_2);" in text
    driver = compiled(built, "changed", ["batch"], ["x", "y"], ["r", "q"], tmp_path)
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) + 10
    said, data = run([driver], tmp_path, [call_of(program, (x, y), {}, [y, x])])
    assert said == [["0", ""]]
    np.testing.assert_array_equal(np.frombuffer(data).reshape(2, 2, 3), [y.T.reshape(2, 3), x + y])


PARTS = {
    "first": lambda x: (x * 2)[:, 0],
    "every second": lambda x: (x * 2)[::2, 1:],
    "backwards": lambda x: (x * 2)[:, ::-1],
    "turned": lambda x: (x * 2).T[1:].reshape(2, -1).T[2:],
    "diagonal": lambda x: np.diagonal(x.T @ x),
    "of an argument": lambda x: (x[1:, 1], x * 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_arrays(name, tmp_path):
    function = PARTS[name]
    program = framejit.export(function, (np.ones((6, 3)),), dynamic_shapes=[{0: Dim("batch", min=4, max=64)}])
    built = program.build(tmp_path / "built", name="part")
    for rows in (4, 9):
        x = program_cases.random(rows, 3)
        expected = leaves(function(x))
        places = [f"r{i}" for i in range(len(expected))]
        driver = compiled(built, "part", ["batch"], ["x"], places, tmp_path)
        said, data = run([driver], tmp_path, [call_of(program, (x,), {}, expected)])
        assert said == [["0", ""]]
        assert data == b"".join(np.ascontiguousarray(array).tobytes() for array in expected)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_many_rows_on_several_threads(threads, tmp_path):
    program = framejit.export(program_cases.softmax, (np.ones((4, 64)),), dynamic_shapes=[{0: Dim("rows", min=1)}])
    built = program.build(tmp_path / "built")
    driver = compiled(built, "softmax", ["rows"], ["x"], ["result"], tmp_path)
    x = program_cases.random(3000, 64)
    (tmp_path / "calls").write_bytes(call_of(program, (x,), {}, [x]) * 2)
    subprocess.run([driver, tmp_path / "calls", tmp_path / "results", threads], check=True)
    found = np.frombuffer((tmp_path / "results").read_bytes()).reshape(2, 3000, 64)
    np.testing.assert_allclose(found, np.stack([program_cases.softmax(x)] * 2), rtol=1e-12)


def library_call(x):
    return np.linalg.inv(x) * 2


@pytest.mark.parametrize("function, arguments, text", [
    (library_call, {}, r"inv.* \(test_built_libraries.py:\d+\) is a function of the array library, which C has not"),
    (scaled, {"name": "2d"}, "`2d` can't be a function of C: give it a name"),
    (scaled, {"name": "double"}, "`double` can't be a function of C"),
    (scaled, {"name": "../x"}, "can't be a function of C"),
    (scaled, {"folder": "/proc/nothing"}, "/proc/nothing can't be written"),
])
def test_what_can_not_be_built(function, arguments, text, tmp_path):
    given = (np.eye(3),) if function is library_call else (np.arange(4.0), np.arange(4))
    folder = arguments.pop("folder", tmp_path / "built")
    with pytest.raises(GraphError, match=text):
        framejit.export(function, given).build(folder, **arguments)
    assert not (tmp_path / "built").exists() or os.listdir(tmp_path / "built") == []


def test_parameters_of_another_dtype(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net = torch.nn.Linear(3, 2)
    program = framejit.export(net, (torch.ones(4, 3),))
    net.double()
    with pytest.raises(GraphError, match=r"build: weight is f64\[2, 3\] now, and the program takes f32\[2, 3\]"):
        program.build(tmp_path / "built")


def test_a_disk_that_is_full(tmp_path):
    text = """
import resource, signal, sys
import numpy as np
import framejit
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
program = framejit.export(np.exp, (np.ones(3),))
for limit in (10, 20000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        program.build(sys.argv[1], name="f")
    except framejit.GraphError as error:
        assert "can't be written" in str(error), error
    else:
        raise AssertionError(limit)
"""
    subprocess.run([sys.executable, "-c", text, tmp_path / "built"], check=True)
    assert os.listdir(tmp_path / "built") == []


def test_no_linker_and_no_processor(tmp_path, monkeypatch):
    program = framejit.export(scaled, (np.arange(4.0), np.arange(4)))
    with pytest.raises(ValueError, match="no processor is called 'pentium': cpu is \"native\" or of "):
        program.build(tmp_path, cpu=("native", "pentium"))
    with pytest.raises(ValueError, match="no processor is named"):
        program.build(tmp_path, cpu=())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GraphError, match="there is no linker .*: install binutils or lld"):
        program.build(tmp_path / "built")


def test_sizes_that_no_range_holds_for(tmp_path):
    def halves(x):
        return x[::2] * 0.5 if x.shape[0] > 8 else x * 2

    program = framejit.export(halves, (np.ones(16),), dynamic_shapes=True)
    with pytest.raises(GraphError, match=r"for sizes of which s0 > 8, and a library is for ranges: give dynamic_shapes with a Dim"):
        program.build(tmp_path)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    program = framejit.export(torch.nn.Conv1d(2, 2, 5), (torch.ones(1, 2, 9),), dynamic_shapes=[{2: Dim("length", min=4)}])
    with pytest.raises(GraphError, match=r"for sizes of which s0 >= 5, and a library is for ranges"):  # eager raises for 4
        program.build(tmp_path)
