"""Tensors of a CUDA device, without one: on_device.py in a process of its own, whose torch, libcuda and NVRTC are told that there is a device."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import fake_device  # noqa: E402

HERE = pathlib.Path(__file__).parent
BENCHMARKS = HERE.parent.parent / "benchmarks"


def run(arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=dict(os.environ, FRAMEJIT_FAKE_DEVICE="1", **environment))


@pytest.fixture(scope="module", autouse=True)
def libraries():
    if torch.cuda.is_available():
        pytest.skip("torch has a CUDA device: `pytest tests/cuda/on_device.py`")
    if torch.version.cuda:
        pytest.skip("this torch has the true libraries of CUDA, which the fake ones can't stand in for")
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


def test_the_benchmark_measures_checked_results_and_first_calls(tmp_path):
    """All of it but the numbers: what it says of times on hardware nobody has asserted."""
    (tmp_path / "sitecustomize.py").write_text("import fake_device\nfake_device.FakeDevice()\n")
    paths = os.pathsep.join([str(tmp_path), str(HERE), os.environ.get("PYTHONPATH", "")])
    result = run([BENCHMARKS / "gpu.py", "chain_ops", "adam_step", "gelu_mlp", "--sizes", "tiny", "--dtypes", "float32,bfloat16", "--rounds", "2",
                  "--first-calls", "1", "--systems", "torch,framejit torch,framejit torch reduce-overhead", "--json",
                  tmp_path / "results.json"], PYTHONPATH=paths)
    assert result.returncode == 0, result.stdout + result.stderr
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["machine"]["device"] == "a fake device" and written["machine"]["versions"]["torch"] == torch.__version__
    assert list(written["results"]) == [f"{name} {dtype} tiny" for name in ("chain_ops", "gelu_mlp", "adam_step_50") for dtype in ("float32", "bfloat16")]
    assert written["results"]["chain_ops bfloat16 tiny"]["framejit torch"]["note"] == "1 kernels"
    for title, records in written["results"].items():
        ours = records["framejit torch"]
        assert "eagerly" not in ours["note"], title
        assert 0 < ours["issue"] and 0 < ours["least"] <= ours["median"] and ours["of_limit"] > 0
        assert "eagerly" not in records["framejit torch reduce-overhead"]["note"] and records["framejit torch reduce-overhead"]["median"] > 0
        assert ours["over"] == {"torch": records["torch"]["median"] / ours["median"]} == {ours["best_peer"]: ours["over_eager"]}
    (wall, processor), = written["first_calls"]["framejit torch"]
    assert wall > 0 and processor > 0
    tables = run([BENCHMARKS / "tables.py", tmp_path / "results.json"])
    assert tables.returncode == 0, tables.stderr
    for line in ("| chain_ops bfloat16 | torch | ", "| chain_ops bfloat16 | torch reduce-overhead | ", "| torch reduce-overhead arrays | ",
                 "| first call, empty caches |"):
        assert line in tables.stdout


def test_without_a_device_the_benchmark_says_so():
    result = run([BENCHMARKS / "gpu.py"])
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith(f"no benchmark of a GPU can run here: torch {torch.__version__} sees no CUDA device"), result.stderr
    assert result.stderr.count("\n") == 1


def test_a_result_that_is_not_eagers_is_no_time():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import bench
    finally:
        sys.path.remove(str(BENCHMARKS))
    one = np.array([1.0, np.inf, np.nan])
    bench.compare([one + 0.05], [one], 0.1)
    for other in ([1.2, np.inf, np.nan], [1.0, -np.inf, np.nan], [1.0, np.inf, 3.0], [1.0, 2.0, np.nan], [1.0, np.inf]):
        with pytest.raises(bench.Wrong):
            bench.compare([np.array(other)], [one], 0.1)
