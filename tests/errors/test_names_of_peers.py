"""Names and options of the peers that people try: the message says what to write here."""
import os
import subprocess
import sys

import numpy as np
import pytest

import framejit
from framejit import _peers


def doubled(x):
    return x * 2


@pytest.mark.parametrize("option", sorted(_peers.OPTIONS))
def test_options_of_peers_are_told_what_is_here(option):
    with pytest.raises(TypeError) as raised:
        framejit.compile(doubled, **{option: True})
    assert str(raised.value) == f"framejit has no option {option!r}; {_peers.OPTIONS[option]}"


@pytest.mark.parametrize("name", sorted(_peers.BACKENDS))
def test_back_ends_of_peers_are_told_what_is_here(name):
    with pytest.raises(ValueError, match="there are auto, llvm, cuda, eager") as raised:
        framejit.compile(doubled, backend=name)
    assert str(raised.value).endswith(_peers.BACKENDS[name])


@pytest.mark.parametrize("name", sorted(_peers.NAMES))
def test_names_of_peers_are_told_what_is_here(name):
    with pytest.raises(AttributeError) as raised:
        getattr(framejit, name)
    assert str(raised.value) == f"module 'framejit' has no attribute {name!r}; instead: {_peers.NAMES[name]}"
    for said in _peers.NAMES[name].replace(",", " ").split():
        if said.startswith("framejit."):
            thing = framejit
            for part in said.rstrip(":").split("(")[0].split(".")[1:]:
                thing = getattr(thing, part)


def test_no_name_of_a_peer_is_one_of_ours():
    assert not set(_peers.NAMES) & set(dir(framejit))
    assert not set(_peers.OPTIONS) & {*framejit._core.option_names(), "passes", "backend"}
    with pytest.raises(AttributeError) as raised:
        framejit.nothing_of_the_kind
    assert str(raised.value) == "module 'framejit' has no attribute 'nothing_of_the_kind'"


@pytest.mark.parametrize("variable, said", [("FRAMEJIT_THREDS", "FRAMEJIT_THREADS"), ("FRAMEJIT_CACHE_DIR", ""), ("FRAMEJIT_LOG", "FRAMEJIT_LOGS"), ("FRAMEJIT_THREADS", ""),
                                            ("FRAMEJIT_OF_A_PROGRAM", "")])
def test_a_misspelt_variable_is_told_of_once(variable, said):
    script = "import framejit\nimport importlib\nfrom framejit import compile\n"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FRAMEJIT_")}
    done = subprocess.run([sys.executable, "-W", "default", "-c", script], env={**environment, variable: "1"}, capture_output=True, text=True, check=True)
    told = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert len(told) == bool(said)
    if said:
        assert f"framejit has no option of the name {variable}; did you mean {said}?" in told[0] and "<string>:1" in told[0]


def test_a_tangent_of_another_form_is_told_of():
    x = np.ones(3)
    for tangents, said in [((np.ones(4),), r"float64 \(3,\), not float64 \(4,\)"), ((1.0,), r"float64 \(3,\), not a float"),
                           ((np.ones(3, np.float32),), "not float32"), ((x, x), "there are 1 and 2")]:
        with pytest.raises(ValueError, match=said):
            framejit.jvp(doubled, (x,), tangents)
    with pytest.raises(ValueError, match="keys of the primals"):
        framejit.jvp(lambda d: d["a"], ({"a": x},), ({"b": x},))
    value, tangent = framejit.jvp(lambda d: d["a"] * d["b"][0], ({"a": x, "b": [2.0]},), ({"a": x, "b": [1.0]},))
    np.testing.assert_array_equal(tangent, np.full(3, 3.0))
    assert value.tolist() == [2.0] * 3
