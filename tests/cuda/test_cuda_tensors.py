"""Tensors of a CUDA device, without one: on_device.py in a process of its own, whose torch, libcuda and NVRTC are told that there is a device."""
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import fake_device  # noqa: E402

HERE = pathlib.Path(__file__).parent


def run(arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=dict(os.environ, FRAMEJIT_FAKE_DEVICE="1", **environment))


@pytest.fixture(scope="module", autouse=True)
def libraries():
    if torch.cuda.is_available():
        pytest.skip("torch has a CUDA device: `pytest tests/cuda/on_device.py`")
    try:
        fake_device.built()
    except fake_device.CannotBuild as why:
        pytest.skip(f"the fake device can't be built: {why}")


def test_programs_on_a_device():
    result = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "on_device.py"])
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]


def test_the_first_tensor_of_a_device_may_come_in_inference_mode():
    result = run(["-c", """
import fake_device
fake_device.FakeDevice()
import torch, framejit
torch.empty(3)
g = framejit.compile(lambda x: x * 2 + 1)
g(torch.ones(3))
with torch.inference_mode():
    f = framejit.compile(lambda x: x * 2 + 1)
    result = f(torch.ones(3, device="cuda:0"))
    print(result.tolist(), result.is_inference(), framejit.cache_info()["kernels_launched"])
"""], PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    assert result.stdout == "[3.0, 3.0, 3.0] True 2\n", result.stdout + result.stderr


def test_without_a_driver_tensors_of_a_device_are_torchs():
    result = run(["-c", """
import fake_device
fake_device.FakeDevice(with_driver=False)
import torch, framejit
f = framejit.compile(lambda x: x * 2 + 1)
print(f(torch.ones(3, device="cuda:0")).tolist(), framejit.cache_info()["kernels_launched"])
g = framejit.compile(lambda x: x * 2 + 1)
print(g(torch.ones(3)).tolist(), framejit.cache_info()["kernels_launched"])
"""], FRAMEJIT_LOGS="graph_breaks", PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    assert result.stdout.split("\n")[:2] == ["[3.0, 3.0, 3.0] 0", "[3.0, 3.0, 3.0] 1"], result.stdout + result.stderr
    assert "a tensor of device cuda:0: no CUDA kernels can run: libcuda.so.1 was not found; it comes with NVIDIA's driver" in result.stderr
