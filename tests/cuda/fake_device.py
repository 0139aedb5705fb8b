"""A CUDA device for the tests where there is none: torch's side (fake_device.cpp), libcuda and NVRTC (fake_libcuda.cpp, fake_libnvrtc.cpp).

For processes of their own: it is opened before torch is imported, which asks once what devices there are, and stays.
"""
import ctypes
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = ["fake_device.cpp", "fake_libcuda.cpp", "fake_libnvrtc.cpp", "fake_graphs.h", "entrances.h", "emulation.h",
           "../../runtime/cuda/driver.h", "../../runtime/cuda/driver.def"]


class CannotBuild(Exception):
    pass


def torch_home():
    return pathlib.Path(importlib.util.find_spec("torch").origin).parent


def built():
    """The folder with the three libraries, made at the first call of any process."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        raise CannotBuild("there is no C++ compiler")
    home = torch_home()
    text = b"".join((HERE / name).read_bytes() for name in SOURCES) + f"{compiler} {ROOT} {home}".encode() + (home / "version.py").read_bytes()
    folder = pathlib.Path(tempfile.gettempdir()) / f"framejit-fake-device-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:16]}"
    if folder.exists():
        return folder
    made = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
    common = [compiler, "-std=c++20", "-O0", "-w", "-fPIC", "-shared", f"-I{ROOT}"]
    commands = [
        [*common, "-Wl,-soname,libcuda.so.1", "-o", made / "libcuda.so.1", HERE / "fake_libcuda.cpp", "-ldl"],
        [*common, "-Wl,-soname,libnvrtc.so.12", f'-DFAKE_COMPILER="{compiler}"', f'-DFAKE_SOURCE="{ROOT}"', "-o", made / "libnvrtc.so.12",
         HERE / "fake_libnvrtc.cpp"],
        [*common, f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include",
         "-o", made / "libfake_device.so", HERE / "fake_device.cpp", f"-L{home}/lib", "-lc10", "-ltorch_cpu"],
    ]
    for command in commands:
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise CannotBuild(result.stderr[:2000])
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)  # another process was faster
    return folder


class Event:
    """Everything here happens at once: the device's time is the processor's."""

    def __init__(self, enable_timing=False):
        self.time = None

    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.time - self.time) * 1e3


class FakeDevice:
    def __init__(self, with_driver=True):
        assert "torch" not in sys.modules, "torch has been imported"
        folder = built()
        for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
            ctypes.CDLL(torch_home() / "lib" / name, ctypes.RTLD_GLOBAL)
        self._torch = ctypes.CDLL(folder / "libfake_device.so")
        self._torch.fake_device_open()
        for name in ("allocations", "bytes", "waits", "stream"):
            getattr(self._torch, f"fake_device_{name}").restype = ctypes.c_long
        import torch

        torch.cuda._initialized = True
        torch.cuda.is_available = lambda: True
        torch.cuda.device_count = lambda: self.count
        torch.cuda.current_device = lambda: self._torch.fake_device_current()
        torch.cuda.default_generators = (torch.default_generator,) * 2
        torch._C._cuda_getCurrentRawStream = lambda device: self._torch.fake_device_stream(device)
        self.count = 2
        torch.cuda.synchronize = lambda device=None: None
        torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(name="a fake device", total_memory=1 << 30, multi_processor_count=4)
        torch.cuda.Event = Event

        def clone(storage):  # as copy.deepcopy makes another storage, which only torch with CUDA can on a device
            return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).clone().untyped_storage()

        torch.UntypedStorage.clone = clone
        if with_driver:
            # A name that is loaded already is what the loader gives for it.
            self._cuda = ctypes.CDLL(folder / "libcuda.so.1", ctypes.RTLD_GLOBAL)
            self._nvrtc = ctypes.CDLL(folder / "libnvrtc.so.12", ctypes.RTLD_GLOBAL)
            self._cuda.fake_cuda_calls.restype = ctypes.c_char_p

    def calls(self):
        """What the driver was told since the last question, one line each."""
        return self._cuda.fake_cuda_calls().decode().split("\n")[:-1]

    def compiled(self):
        return self._nvrtc.fake_nvrtc_compiled()

    def fail(self, function="", code=0):
        self._cuda.fake_cuda_fail(function.encode(), code)

    def capture(self, on):
        """Streams are being recorded."""
        self._cuda.fake_cuda_capture(int(on))

    def out_of_memory(self, on):
        self._torch.fake_device_out_of_memory(int(on))

    def use_stream(self, number, device=0):
        self._torch.fake_device_set_stream(device, ctypes.c_long(number))

    def allocations(self, device=0):
        return self._torch.fake_device_allocations(device)

    def bytes_in_use(self, device=0):
        return self._torch.fake_device_bytes(device)

    def waits(self):
        """How often torch has waited for the device."""
        return self._torch.fake_device_waits()

