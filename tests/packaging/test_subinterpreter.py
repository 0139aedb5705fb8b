"""The extension is the main interpreter's, and one with a GIL: in another one functions stay as they are."""
import subprocess
import sys
import textwrap

import pytest

interpreters = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def test_a_subinterpreter_runs_functions_as_they_are():
    pytest.importorskip(interpreters, reason="this CPython has no module of subinterpreters")
    program = f"""
        import sys
        import {interpreters} as interpreters
        import numpy as np
        import framejit

        @framejit.compile
        def f(x):
            return x * 2 + 1

        assert f(np.ones(2)).tolist() == [3, 3]
        other = interpreters.create()
        interpreters.run_string(other, '''if True:
            import sys, warnings
            sys.path[:] = %r
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                import framejit

                def f(x):
                    return x * 2 + 1

                assert framejit.compile(f) is f and framejit.compile(fullgraph=True)(f)(3) == 7
                with framejit.options(backend="eager"):
                    framejit.reset()
            assert [w.category for w in caught] == [RuntimeWarning] and "subinterpreter" in str(caught[0].message)
            print("subinterpreter done", flush=True)
        ''' % (sys.path,))
        interpreters.destroy(other)
        assert f(np.ones(3)).tolist() == [3, 3, 3] and framejit.cache_info()["kernels_launched"] == 2
    """
    done = subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(program)], text=True, capture_output=True)
    assert done.returncode == 0 and "subinterpreter done" in done.stdout, done.stderr


def test_a_free_threaded_python_says_so_at_import_and_loads_no_extension():
    program = """
        import sys, warnings
        sys.abiflags = "t"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import framejit
        assert [w.category for w in caught] == [RuntimeWarning] and "free-threaded" in str(caught[0].message), caught
        assert caught[0].filename == "<string>", caught[0].filename
        assert not any(name.startswith("framejit._core") for name in sys.modules)

        def f(x):
            return x * 2 + 1

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert framejit.compile(f) is f and framejit.compile(fullgraph=True)(f)(3) == 7
        assert caught == []
        try:
            framejit.grad(f)
        except framejit.Error as error:
            assert "free-threaded" in str(error)
        else:
            raise AssertionError("grad() of nothing compiled")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
