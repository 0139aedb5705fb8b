"""Tests import `harness` from this folder and the examples from theirs; every internal failure raises."""
import atexit
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import numpy as np
import pytest

# Kernels on disk belong to one run of the tests: read from the environment when framejit is first imported.
_cache = tempfile.mkdtemp(prefix="framejit-tests-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
os.environ["FRAMEJIT_CACHE_FOLDER"] = _cache
# What runs compiled must not depend on how busy the machine is; test_retire.py gives the times.
os.environ.setdefault("FRAMEJIT_RETIRE", "0")

# Tests of Ctrl-C wait for it, in processes of their own too: a shell has what it runs in the background ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
for folder in ("../examples", "fuzz"):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / folder))


@pytest.fixture(autouse=True)
def fresh_caches():
    import framejit

    framejit.reset()
    conditions = np.geterr()
    yield
    framejit.reset()
    assert np.geterr() == conditions, "a test that leaves them changed decides what later ones see"


@pytest.fixture(autouse=True, scope="module")
def unwatched_modules():
    """Once torch.compile has been used, torch watches every torch.nn.Module that is made (torch._dynamo.mutation_guard), and what a compiled
    function may do with a watched object depends on that: not for longer than the file of the tests that use it."""
    kept = getattr(sys.modules.get("torch"), "nn", None)
    before = kept and (kept.Module.__init__, kept.Module.__setstate__)
    yield
    if kept and (kept.Module.__init__, kept.Module.__setstate__) != before:
        kept.Module.__init__, kept.Module.__setstate__ = before
        kept.Module.___needs_generation_tag_patch = True  # torch does it again when it is asked to compile


# By file; of some, the tests whose names begin so. The pages that print listings of machine code show those of x86-64.
NOT_EMULATED = {
    "test_process.py": ("test_a_thread_with_a_small_stack", "test_a_first_call_without_memory"), "test_result_memory.py": ("test_out_of_memory",),
    "test_array_regions.py": ("test_memory_stays_bounded",), "test_progress.py": ("test_in_a_real_terminal",),
    "test_snippets.py": tuple(f"test_snippets_run_and_print_what_the_page_shows[{page}]" for page in ("README", "export", "how-to")),
}


def pytest_collection_modifyitems(items):
    if "QEMU_CPU" not in os.environ:
        return
    for item in items:
        if item.name.startswith(NOT_EMULATED.get(item.path.name, "\0")):
            item.add_marker(pytest.mark.skip(reason="emulated: memory, stacks and seconds are the emulator's, and pages show x86-64"))


# Only where a test has imported `constructs`: the tests of single modules run without framejit.
def pytest_terminal_summary(terminalreporter):
    constructs = sys.modules.get("constructs")
    lines = constructs.summary() if constructs else []
    if lines:
        terminalreporter.section("constructs")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_sessionfinish(session):
    if "constructs" in sys.modules:
        sys.modules["constructs"].write_results()
