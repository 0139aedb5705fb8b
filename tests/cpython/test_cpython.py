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
    test_descr test_functools test_itertools test_dataclasses test_enum test_types test_typing test_operator test_tuple test_deque
    test_ordered_dict test_collections test_fstring test_patma test_scope test_abc test_weakref test_range test_float test_iter
    test_coroutines test_asyncgen test_builtin test_funcattrs test_decorators test_extcall test_augassign test_global
    test_pow test_complex test_statistics test_heapq test_bisect test_random
""".split()

# Cases that look at what wrapping a function changes by its nature; everything else must agree, and these must differ.
DIFFERENT = {
    **{f"test.test_enumerate.{name}.test_tuple_reuse": "counts ids of tuples that are gone: whether their memory is used again"
       for name in ("EnumerateStartTestCase", "EnumerateTestCase", "SubclassTestCase", "TestLongStart", "TestStart")},
    "test.test_generators.__test__.email": "prints type(g) of a module function: the compiled function is an object of its own class",
    **{f"test.test_call.TestPEP590.test_setvectorcall{case}": "gives the function to a C helper that takes functions only"
       for case in ("", "_load_attr_specialization_skip", "_load_attr_specialization_deopt")},
    **{f"test.test_itertools.TestBasicOps.test_{name}_tuple_reuse": "counts ids of tuples that are gone: whether their memory is used again"
       for name in ("combinations", "combinations_with_replacement", "permutations", "product")},
    **{f"test.test_functools.{name}": "looks at f.__wrapped__, which of a compiled function is the function as written"
       for name in ("TestUpdateWrapper.test_default_update", "TestUpdateWrapper.test_no_update", "TestUpdateWrapper.test_selective_update",
                    "TestWraps.test_default_update", "TestWraps.test_no_update", "TestWraps.test_selective_update")},
    "test.test_functools.TestSingleDispatch.test_invalid_registrations": "looks at the text of a function: <compiled function ...>",
    **{f"test.test_descr.ClassPropertiesAndMethods.test_{name}": "looks at the text of a bound method: <compiled method ...>"
       for name in ("bound_method_repr", "classic", "methods")},
    "test.test_descr.ClassPropertiesAndMethods.test_slots": "counts the objects of the process, which compiled pieces are too",
    "test.test_descr.SharedKeyTests.test_subclasses": "compares sizes in memory: the dict of an object that compiled code made shares no keys",
    "test.test_funcattrs.FunctionPropertiesTest.test___builtins__": "calls type(f): the compiled function is an object of its own class",
    "test.test_extcall": "an error names the class of a compiled function: not CompiledFunction",
}

# A piece keeps the classes and functions that its code names alive, until framejit.reset().
DIFFERENT |= {case: "waits for the end of a class or function that a compiled piece keeps" for case in (
    *(f"test.test_functools.TestLRU{kind}.test_lru_cache_weakrefable" for kind in ("C", "Py")),
    "test.test_descr.ClassPropertiesAndMethods.test_remove_subclass",
    *(f"test.test_ordered_dict.{kind}Tests.test_reference_loop" for kind in (
        "CPythonOrderedDict", "CPythonOrderedDictSubclass", "PurePythonOrderedDict", "PurePythonOrderedDictSubclass")),
    "test.test_weakref.ReferencesTestCase.test_callback_in_cycle_resurrection",
    "test.test_weakref.WeakMethodTestCase.test_callback_when_method_dead", "test.test_weakref.WeakMethodTestCase.test_method_dead")}

# Errors of framejit that are known, by version. An entry that agrees fails: it goes when its error is mended.
if sys.version_info[:2] in ((3, 12), (3, 13)):
    DIFFERENT["test.test_descr.ClassPropertiesAndMethods.test_module_subclasses"] = "classes that a trace made and dropped are in __subclasses__"
    DIFFERENT["test.test_call.TestRecursion.test_super_deep"] = "calls 90,000 deep: those of compiled functions are C calls, whose depth is bounded"
if sys.version_info[:2] == (3, 13):
    DIFFERENT["test.test_descr.MiscTests.test_type_lookup_mro_reference"] = "a key of a class's dict whose __eq__ changes the bases: the new ones are asked"


# With the option `retire` as users have it: their loops over Python objects alone take minutes where none is left to CPython.
RETIRED = {"test_descr", "test_heapq"}


def run(module, *options):
    """{case: (outcome, reason)} and framejit's counts."""
    command = [sys.executable, "-P", "-X", "faulthandler", str(pathlib.Path(__file__).parent / "run_module.py"), f"test.{module}", *options]
    environment = dict(os.environ, FRAMEJIT_STRICT="1", **{"FRAMEJIT_RETIRE": "1"} if module in RETIRED else {})
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
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
