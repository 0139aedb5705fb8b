"""The training examples: compiled they learn along eager's loss curve, and what they show is complete."""
import importlib
import sys

import pytest

import framejit
import training


def example(name):
    for package in training.EXAMPLES[name]:
        pytest.importorskip(package, reason=f"the example {name} needs {package}, which is not installed")
    return importlib.import_module(name)


@pytest.mark.parametrize("name", training.EXAMPLES)
def test_compiled_training_follows_eager_s_loss_curve(name):
    subject = example(name)
    results = training.run(subject, 8, ["eager", "framejit"])
    eager, compiled = results["eager"][0], results["framejit"][0]
    assert training.apart(compiled, eager) <= subject.TOLERANCE, (compiled, eager)
    assert eager[-1] < eager[0] and all(len(times) == 8 for _, times in results.values())
    info = framejit.cache_info()
    assert info["graphs"] > 0 and info["hits"] >= 6, info
    assert info["breaks"] == info["eager_replays"] == info["internal_errors"] == 0, info


@pytest.mark.parametrize("name", training.EXAMPLES)
def test_jax_starts_at_the_same_loss(name):
    """That the comparison is of the same thing: the first loss is computed from the same parameters and data."""
    pytest.importorskip("jax", reason="JAX is not installed")
    results = training.run(example(name), 2, ["eager", "jax"])
    for ours, theirs in zip(results["eager"][0], results["jax"][0]):
        assert theirs == pytest.approx(ours, rel=1e-4)  # float32, a step of Adam with gradients of either


def test_the_table_and_the_plot(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "curves.png"
    monkeypatch.setattr(sys, "argv", ["training.py", "spring_mass", "--steps", "4", "--systems", "eager,framejit", "--plot", str(path)])
    training.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines] == ["system", "---", "eager", "framejit"]
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]
