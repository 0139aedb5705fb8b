"""CPython's own tests give the same outcomes when every function in them is compiled.

Each module runs twice, in processes of its own: as it is, and with each of its functions wrapped where it is written.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

MODULES = """
    test_grammar test_generators test_with test_exceptions test_unpack test_unpack_ex test_dict test_list
    test_contextlib test_super test_bool test_slice test_userdict test_userlist test_copy test_defaultdict test_index test_dictviews
    test_richcmp test_isinstance test_class test_opcodes test_call test_keywordonlyarg test_positional_only_arg test_property
    test_listcomps test_genexps test_setcomps test_dictcomps test_named_expressions test_raise test_except_star test_exception_hierarchy
    test_baseexception test_yield_from test_enumerate test_binop test_compare test_dynamic test_string
""".split()

# Cases that look at what wrapping a function changes by its nature; everything else must agree, and these must differ.
DIFFERENT = {
    **{f"test.test_enumerate.{name}.test_tuple_reuse": "counts ids of tuples that are gone: whether their memory is used again"
       for name in ("EnumerateStartTestCase", "EnumerateTestCase", "SubclassTestCase", "TestLongStart", "TestStart")},
    "test.test_generators.__test__.email": "prints type(g) of a module function: the compiled function is an object of its own class",
    **{f"test.test_call.TestPEP590.test_setvectorcall{case}": "gives the function to a C helper that takes functions only"
       for case in ("", "_load_attr_specialization_skip", "_load_attr_specialization_deopt")},
}

# Errors of framejit that are known, by version. An entry that agrees fails: it goes when its error is mended.
if sys.version_info[:2] == (3, 12):
    DIFFERENT |= {f"test.test_exceptions.PEP626Tests.test_lineno_{case}": "f_lineno of a frame that an exception has left is its first line's"
                  for case in ("after_other_except", "after_raise_in_except", "after_raise_in_with_exit", "after_with", "in_finally_except",
                               "in_named_except", "in_try")}
if sys.version_info[:2] in ((3, 12), (3, 13)):
    DIFFERENT["test.test_call.TestRecursion.test_super_deep"] = "calls 90,000 deep: those of compiled functions are C calls, whose depth is bounded"
if sys.version_info[:2] == (3, 13):
    DIFFERENT["test.test_raise.TestCause.test_class_cause_nonexception_result"] = "raise ... from a class whose __new__ gives no exception"


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
    assert counts["internal_errors"] == 0
    assert list(ours) == list(plain)
    different = {case: (plain[case], ours[case]) for case in plain if plain[case][0] != ours[case][0]}
    unexpected = {case: what for case, what in different.items() if case not in DIFFERENT}
    assert not unexpected, "\n".join(f"{case}: {was[0]}, compiled {now[0]}: {now[1]}" for case, (was, now) in unexpected.items())
    mended = [case for case in DIFFERENT if case.startswith(f"test.{module}.") and case in plain and case not in different]
    assert not mended, f"the same compiled: remove it from DIFFERENT: {mended}"
