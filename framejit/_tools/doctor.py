"""framejit doctor: the machine, the libraries and the options as framejit finds them, and what is off for which reason.

`examine` gathers everything as a dict that JSON can hold; `lines` prints it. What can't be found out is None, never an error: each part is
looked for on its own.
"""
import ctypes
import glob
import importlib.metadata
import math
import mmap
import os
import platform
import re
import sys

import framejit
from framejit import _core
from framejit._backends import resolve
from framejit._logs import as_sink
from framejit._nearest import did_you_mean
from framejit._tools.text import counted, size

# As /proc/cpuinfo calls them, in the order in which they came.
EXTENSIONS = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
              "amx_tile", "amx_bf16", "amx_int8", "neon", "asimd", "asimdhp", "sve", "sve2", "bf16")


def examine():
    """Everything, by section."""
    found = {"versions": versions(), "processor": processor()}
    found["threads"] = threads(found["processor"]["cores"])
    found["blas"], found["gpu"], found["cache"], found["options"] = blas(), gpu(), cache(), options()
    found["off"] = off(found)
    return found


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch():
    """torch, if it is installed and can be imported."""
    try:
        import torch
    except Exception:
        return None
    return torch


def versions():
    import numpy

    torch = _torch()
    return {"framejit": framejit.__version__, "python": platform.python_version(), "implementation": platform.python_implementation(),
            "executable": sys.executable, "platform": platform.platform(), "numpy": numpy.__version__,
            "torch": getattr(torch, "__version__", None) and str(torch.__version__), "llvm": llvm_version()}


def llvm_version():
    """The extension holds LLVM, and LLVM its version as a text."""
    try:
        with open(_core.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
            found = re.search(rb"LLVM version (\d+\.\d+\.\d+)", contents) or re.search(rb"LLVM (\d+\.\d+\.\d+)", contents)
            return found[1].decode() if found else None
    except (OSError, ValueError):
        return None


# ---- the processor

def processor():
    fields = {}
    for line in (_read("/proc/cpuinfo") or "").split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return {"name": fields.get("model name") or platform.processor() or None, "architecture": platform.machine(),
            "vector_extensions": [name for name in EXTENSIONS if name in flags], "caches": caches(),
            "cores": {"machine": os.cpu_count(), "allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
                      "control_group": control_group_cores()}}


def caches():
    """{"L1d": bytes, ...} of one core."""
    found = {}
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        level, kind, text = (_read(f"{folder}/{name}") for name in ("level", "type", "size"))
        if level and text and kind != "Instruction":
            count = int(re.match(r"\d+", text)[0]) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
            found[f"L{level}" + ("d" if kind == "Data" else "")] = count
    return found


def _binary(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 and count % (1 << 20) == 0 else f"{count >> 10} KiB"


def control_group_cores():
    """What the control group and those above it allow, in cores; None without a limit."""
    group = next((line[3:] for line in (_read("/proc/self/cgroup") or "").splitlines() if line.startswith("0::")), "/").rstrip("/")
    allowed = None
    while True:
        quota = re.match(r"(\d+) (\d+)", _read(f"/sys/fs/cgroup{group}/cpu.max") or "")
        if quota and int(quota[2]):
            cores = int(quota[1]) / int(quota[2])
            allowed = cores if allowed is None else min(allowed, cores)
        if not group:
            return allowed
        group = group.rpartition("/")[0]


def threads(cores):
    given = int(_core.environment_options()["threads"])
    if given:
        return {"framejit": given, "why": "the option threads"}
    count, why = cores["allowed"] or cores["machine"] or 1, "the cores this process may run on"
    if cores["control_group"] is not None and math.ceil(cores["control_group"]) < count:
        count, why = math.ceil(cores["control_group"]), "the control group's limit"
    return {"framejit": max(count, 1), "why": why}


# ---- libraries

def blas():
    return {"numpy": _numpy_blas(), "torch": _torch_blas(), "loaded": _loaded_blas()}


def _numpy_blas():
    import numpy

    try:
        found = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except Exception:
        return None
    return {"name": found.get("name"), "version": found.get("version")}


def _torch_blas():
    torch = _torch()
    if torch is None:
        return None
    try:
        text = torch.__config__.show()
        name = re.search(r"BLAS_INFO=(\w+)", text)
        return {"name": name[1] if name else None, "mkl": torch.backends.mkl.is_available(), "onednn": torch.backends.mkldnn.is_available(),
                "kernels": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}
    except Exception:
        return None


def _loaded_blas():
    """The libraries that are in this process, and which of their kernels they use: threadpoolctl's list, else OpenBLAS is asked itself."""
    try:
        import threadpoolctl
    except ImportError:
        return _openblas_in_memory()
    return [{"library": entry.get("internal_api") or entry.get("prefix"), "version": entry.get("version"), "kernels": entry.get("architecture"),
             "threads": entry.get("num_threads"), "file": entry.get("filepath")} for entry in threadpoolctl.threadpool_info()]


def _openblas_in_memory():
    found = []
    for path in sorted(set(re.findall(r"(/\S*openblas\S*\.so\S*)", _read("/proc/self/maps") or ""))):
        entry = {"library": "openblas", "version": None, "kernels": None, "threads": None, "file": path}
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix in ("", "scipy_"):
            for suffix in ("", "64_"):
                for key, name, kind in (("kernels", "get_corename", ctypes.c_char_p), ("threads", "get_num_threads", ctypes.c_int)):
                    function = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
                    if function is not None:
                        function.restype = kind
                        value = function()
                        entry[key] = value.decode() if isinstance(value, bytes) else value
        found.append(entry)
    return found


# ---- devices

def gpu():
    """NVIDIA's devices, asked for as framejit does: the driver, then the compiler NVRTC."""
    found = {"driver": None, "devices": [], "nvrtc": nvrtc(), "why": None}
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        found["why"] = "libcuda.so.1 was not found; it comes with NVIDIA's driver"
        return found
    code = driver.cuInit(0)
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        found["why"] = f"the driver can't be initialised: {text.value.decode() if text.value else code}"
        return found
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    found["driver"] = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    for device in range(count.value):
        name, major, minor, memory = ctypes.create_string_buffer(100), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        driver.cuDeviceGetName(name, 100, device)
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        found["devices"].append({"name": name.value.decode(), "compute_capability": f"{major.value}.{minor.value}", "memory": memory.value})
    if not found["devices"]:
        found["why"] = "the driver finds no device"
    elif found["nvrtc"] is None:
        found["why"] = "libnvrtc was not found; install it with `pip install nvidia-cuda-nvrtc-cu12`"
    return found


def nvrtc():
    """The file and version of the compiler for devices, looked for where framejit looks; None: there is none."""
    folders = [f"{entry}/{below}" for entry in sys.path if entry for below in ("nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib", "torch/lib")]
    files = [file for folder in [*folders, "/usr/local/cuda/lib64"] for file in sorted(glob.glob(f"{folder}/libnvrtc.so*"))]
    for name in [*files, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            library = ctypes.CDLL(name)
            major, minor = ctypes.c_int(), ctypes.c_int()
            library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        except (OSError, AttributeError):
            continue
        return {"file": name, "version": f"{major.value}.{minor.value}"}
    return None


# ---- framejit's own

def cache():
    disk = framejit.cache_info()["disk"]
    folder = disk["folder"]
    if not folder:
        return {"folder": None, "writable": False, "kernels": 0, "bytes": 0, "bound": disk["bound"],
                "why": "the option cache_bytes is 0" if not disk["bound"] else "there is no home folder; the option cache_folder names another"}
    files, why = _core.list_cache(folder), None
    above = folder
    while not os.path.exists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        why = f"{above} is no folder"
    elif not os.access(above, os.W_OK | os.X_OK) or os.statvfs(above).f_flag & os.ST_RDONLY:
        why = f"{above} can't be written"
    return {"folder": folder, "writable": why is None, "kernels": len(files), "bytes": sum(count for _, count, _, _ in files),
            "bound": disk["bound"], "why": why}


def options():
    """set: the variables that are understood; ignored: those that are not, with the reason."""
    known, taken, ignored = {"FRAMEJIT_" + name.upper(): name for name in _core.option_names()}, {}, {}
    for variable, text in sorted(os.environ.items()):
        if not variable.startswith("FRAMEJIT_"):
            continue
        problem = "" if variable in known else f"framejit has no option of this name{did_you_mean(variable, known)}"
        if not problem:
            problem = _problem(known[variable], text)
        (ignored if problem else taken)[variable] = {"value": text, "why": problem} if problem else text
    return {"set": taken, "ignored": ignored}


def _problem(name, text):
    """Why the value of an environment variable is not taken, or ""."""
    try:
        if name == "logs":
            framejit.set_logs(text)
            framejit.set_logs()
            return ""
        if name == "logs_file":
            if text:
                as_sink(text, "FRAMEJIT_LOGS_FILE")
            return ""
        if name == "backend":
            if not _core.is_builtin_backend(text):
                resolve(text)
            return ""
    except Exception as error:  # an entry point of somebody else's is imported
        return str(error)
    given = _core.environment_options()[name]
    words = {"1": "true", "on": "true", "yes": "true", "0": "false", "off": "false", "no": "false", "auto": "none"}
    if text and given not in (text, text.lower(), words.get(text.lower()), text.lstrip("0")):
        return f"it is no value of the option {name}, which stays {given!r}"
    return ""


def off(found):
    """A sentence for each thing that does not happen, or is not there."""
    sentences, given = [], _core.environment_options()
    if (reason := _core.self_check()) is not None:
        sentences.append(f"compiling: {reason}")
    if given["disable"] == "true":
        sentences.append("compiling: FRAMEJIT_DISABLE is set; everything runs as it is written")
    if given["backend"] not in ("auto", "llvm", "cuda"):
        sentences.append(f"machine code: FRAMEJIT_BACKEND is {given['backend']}")
    if found["versions"]["torch"] is None:
        installed = _version_of("torch") is not None
        sentences.append("torch: " + ("it is installed and can't be imported" if installed else "it is not installed; NumPy alone is compiled"))
    if found["gpu"]["why"]:
        sentences.append(f"CUDA devices: {found['gpu']['why']}")
    if not found["cache"]["writable"]:
        sentences.append(f"kernels on disk: {found['cache']['why']}; every process compiles its own")
    if given["retire"] == "false":
        sentences.append("retiring functions that are slower compiled: FRAMEJIT_RETIRE is off")
    if given["tier"] != "auto":
        sentences.append(f"compiling in two steps: FRAMEJIT_TIER is {given['tier']}")
    if found["threads"]["framejit"] == 1:
        sentences.append(f"threads: one is used, by {found['threads']['why']}")
    return sentences


# ---- as text

def lines(found):
    """The report, one section after the other."""
    v, p, t, b, g, c, o = (found[name] for name in ("versions", "processor", "threads", "blas", "gpu", "cache", "options"))
    yield f"framejit {v['framejit']} on {v['implementation']} {v['python']} ({v['executable']})"
    yield f"  NumPy {v['numpy']}, torch {v['torch'] or 'not there'}, LLVM {v['llvm'] or 'of an unknown version'}"
    yield f"  {v['platform']}"
    yield ""
    yield f"processor: {p['name'] or 'unknown'} ({p['architecture']})"
    yield f"  vector extensions  {' '.join(p['vector_extensions']) or 'none that are known'}"
    yield f"  caches             {', '.join(f'{name} {_binary(count)}' for name, count in p['caches'].items()) or 'unknown'}"
    limit = "sets no limit" if p["cores"]["control_group"] is None else f"allows {p['cores']['control_group']:g}"
    cores = p["cores"]
    yield f"  cores              {cores['machine']}, this process may run on {cores['allowed']}; the control group {limit}"
    yield f"  threads            {t['framejit']}: {t['why']}"
    yield ""
    yield "BLAS:"
    if b["numpy"]:
        yield f"  NumPy   built with {b['numpy']['name']} {b['numpy']['version']}"
    if b["torch"]:
        more = [name for name in ("mkl", "onednn") if b["torch"][name]]
        yield f"  torch   built with {b['torch']['name']} ({', '.join(more) or 'no MKL'}), kernels for {b['torch']['kernels']}, " + \
            counted(b["torch"]["threads"], "thread")
    for entry in b["loaded"]:
        kernels = f", kernels for {entry['kernels']}" if entry["kernels"] else ""
        yield f"  loaded  {' '.join(filter(None, (entry['library'], entry['version'])))}{kernels}, {counted(entry['threads'] or 0, 'thread')}: " + \
            entry["file"]
    yield ""
    yield f"CUDA devices: {g['driver'] or 'no driver'}" + (f", NVRTC {g['nvrtc']['version']}" if g["nvrtc"] else ", no NVRTC")
    for device in g["devices"]:
        yield f"  {device['name']}, compute capability {device['compute_capability']}, {size(device['memory'])}"
    yield ""
    if c["folder"]:
        yield f"kernels on disk: {c['folder']}, {'can be written' if c['writable'] else c['why']}"
        yield f"  {counted(c['kernels'], 'kernel')}, {size(c['bytes'])} of at most {size(c['bound'])}"
    else:
        yield f"kernels on disk: none are kept; {c['why']}"
    yield ""
    yield "options:" + ("" if o["set"] or o["ignored"] else " none is set in the environment")
    for variable, text in o["set"].items():
        yield f"  {variable}={text}"
    for variable, entry in o["ignored"].items():
        yield f"  {variable}={entry['value']} is ignored: {entry['why']}"
    yield ""
    yield "off:" + ("" if found["off"] else " nothing")
    for sentence in found["off"]:
        yield f"  {sentence}"
