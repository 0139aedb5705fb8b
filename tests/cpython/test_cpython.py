"""CPython's own tests give the same outcomes when every function in them is compiled.

Each module runs twice, in processes of its own: as it is, and with each of its functions wrapped where it is written.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

MODULES = ["test_grammar", "test_generators", "test_with", "test_exceptions", "test_unpack", "test_unpack_ex", "test_dict", "test_list"]

# Cases that look at what wrapping a function changes by its nature; everything else must agree.
DIFFERENT = {
    "test.test_generators.__test__.email": "prints type(g) of a module function: the compiled function is an object of its own class",
}

# Errors of framejit that are known, named in the summary. An entry that agrees fails: it goes when its error is mended.
KNOWN = {
    "test.test_dict.DictTest.test_container_iterator": "an iterator kept in a cycle is held by something",
}
if sys.version_info[:2] == (3, 12):
    KNOWN |= {f"test.test_exceptions.PEP626Tests.test_lineno_{case}": "f_lineno of a frame that an exception has left is its first line's"
              for case in ("after_other_except", "after_raise_in_except", "after_raise_in_with_exit", "after_with", "in_finally_except",
                           "in_named_except", "in_try")}


def run(module, *options):
    """{case: (outcome, reason)} and framejit's counts."""
    command = [sys.executable, "-P", "-X", "faulthandler", str(pathlib.Path(__file__).parent / "run_module.py"), f"test.{module}", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, FRAMEJIT_STRICT="1"))
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"outcomes"')]
    assert done.returncode == 0 and lines, f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    answer = json.loads(lines[-1])
    return answer["outcomes"], answer["counts"]


@pytest.mark.skipif(importlib.util.find_spec("test.test_grammar") is None, reason="this Python comes without its own tests (the package test)")
@pytest.mark.parametrize("module", MODULES)
def test_outcomes_are_the_same_compiled(module):
    plain, _ = run(module)
    ours, counts = run(module, "--compiled")
    assert counts["calls"] > 0 and counts["segments"] > 0
    assert counts["internal_errors"] == 0 or any(case.startswith(f"test.{module}.") for case in KNOWN)
    assert list(ours) == list(plain)
    different = {case: (plain[case], ours[case]) for case in plain if plain[case][0] != ours[case][0]}
    of_module = {case: why for table in (DIFFERENT, KNOWN) for case, why in table.items() if case.startswith(f"test.{module}.")}
    for case, why in of_module.items():
        warnings.warn(f"{case} differs compiled, which is known: {why}")
    unexpected = {case: what for case, what in different.items() if case not in DIFFERENT and case not in KNOWN}
    assert not of_module.keys() - different.keys(), f"these agree now, so they leave the tables: {sorted(of_module.keys() - different.keys())}"
    assert not unexpected, "\n".join(f"{case}: {was[0]}, compiled {now[0]}: {now[1]}" for case, (was, now) in unexpected.items())
