"""The decoder over every function of the standard library: what it makes must agree with the interpreter's own `dis`."""
import dis
import importlib
import pkgutil
import sys
import types

from framejit import _core

# Constructs that are CPython's: class bodies, coroutines, and what the executor leaves alone.
UNSUPPORTED = {"SETUP_ANNOTATIONS", "LOAD_LOCALS", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF", "GET_AITER", "GET_ANEXT",
               "GET_AWAITABLE", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "CLEANUP_THROW", "ASYNC_GEN_WRAP",
               "PRINT_EXPR", "INTERPRETER_EXIT", "LOAD_LOCALS"}


def functions():
    """Code objects of modules that are cheap and safe to import."""
    modules = [sys.modules[name] for name in list(sys.modules) if not name.startswith(("_pytest", "pytest", "framejit"))]
    for name in ("argparse", "ast", "asyncio.base_events", "collections", "contextlib", "dataclasses", "decimal", "difflib", "email.message",
                 "fractions", "functools", "http.client", "inspect", "json.decoder", "logging.handlers", "pathlib", "pickle", "random",
                 "statistics", "subprocess", "tarfile", "textwrap", "tokenize", "typing", "unittest.mock", "urllib.parse", "zipfile"):
        modules.append(importlib.import_module(name))
    todo, done = [], set()
    for module in modules:
        file = getattr(module, "__file__", None) or ""
        if not file.endswith(".py"):
            continue
        try:
            with open(file, encoding="utf-8") as source:
                todo.append(compile(source.read(), file, "exec"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
    while todo:
        code = todo.pop()
        if code in done:
            continue
        done.add(code)
        yield code
        todo.extend(c for c in code.co_consts if isinstance(c, types.CodeType))


def test_every_function_of_the_standard_library_decodes():
    assert pkgutil  # the corpus is what is importable here
    count = 0
    for code in functions():
        rows = _core.decoded_instructions(code)
        raw = {i.offset // 2: i for i in dis.get_instructions(code)}
        previous = -1
        for index, (name, arg, arg2, offset, executing, resumable) in enumerate(rows):
            assert executing in raw, (code, index)
            assert offset <= executing and (offset > previous if resumable else offset == previous), (code, index, name)
            previous = offset
            if name == "UNSUPPORTED":
                assert raw[executing].opname in UNSUPPORTED or raw[executing].argrepr.endswith("+ lazy"), raw[executing]
            if "JUMP" in name or name in ("FOR_ITER", "SEND"):
                assert 0 <= arg < len(rows), (code, index, name)
                assert rows[arg][5], "a jump into the middle of a superinstruction"
                target = raw[executing].argval // 2
                skipped = {i.opname for u, i in raw.items() if target <= u < rows[arg][3]}
                assert skipped <= {"NOP", "RESUME", "CACHE", "END_FOR", "POP_TOP", "POP_ITER", "EXTENDED_ARG"}, (code, name, skipped)
        count += 1
    assert count > 2000


def test_stack_depths_agree_wherever_paths_meet():
    """Depths computed over our instructions are consistent, never negative, and within co_stacksize."""
    effects = {"POP_TOP": -1, "PUSH_NULL": 1, "COPY": 1, "SWAP": 0, "LOAD_CONST": 1, "LOAD_FAST": 1, "LOAD_FAST_AND_CLEAR": 1,
               "STORE_FAST": -1, "LOAD_CLOSURE": 1, "LOAD_DEREF": 1, "STORE_DEREF": -1, "LOAD_ATTR": 0, "LOAD_METHOD": 1,
               "STORE_ATTR": -2, "DELETE_ATTR": -1, "BINARY_OP": -1, "BINARY_SUBSCR": -1, "BINARY_SLICE": -2, "STORE_SUBSCR": -3,
               "STORE_SLICE": -4, "DELETE_SUBSCR": -2, "COMPARE_OP": -1, "IS_OP": -1, "CONTAINS_OP": -1, "STORE_GLOBAL": -1,
               "GET_LEN": 1, "LIST_APPEND": -1, "SET_ADD": -1, "MAP_ADD": -2, "LIST_EXTEND": -1, "SET_UPDATE": -1, "DICT_UPDATE": -1,
               "DICT_MERGE": -1, "IMPORT_NAME": -1, "IMPORT_FROM": 1, "BEFORE_WITH": 1, "LOAD_BUILD_CLASS": 1,
               "LOAD_COMMON_CONSTANT": 1, "LOAD_SMALL_INT": 1, "LOAD_SPECIAL": 1, "SET_FUNCTION_ATTRIBUTE": -1, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "MATCH_KEYS": 1,
               "MATCH_CLASS": -2, "BUILD_TEMPLATE": -1, "RETURN_VALUE": -1}

    def effect(name, arg, arg2):
        if name in effects:
            return effects[name]
        if name == "LOAD_GLOBAL":
            return 1 + arg2
        if name == "LOAD_SUPER_ATTR":
            return -2 + (arg2 & 1)
        if name == "CALL":
            return -arg - 1
        if name == "CALL_KW":
            return -arg - 2
        if name == "CALL_FUNCTION_EX":
            return -2 - arg
        if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
            return 1 - arg
        if name == "BUILD_MAP":
            return 1 - 2 * arg
        if name == "BUILD_CONST_KEY_MAP":
            return -arg
        if name == "UNPACK_SEQUENCE":
            return arg - 1
        if name == "UNPACK_EX":
            return arg + arg2
        if name == "FORMAT_VALUE":
            return -arg2
        if name == "BUILD_INTERPOLATION":
            return -1 - arg2
        if name == "MAKE_FUNCTION":
            return -bin(arg).count("1")
        if name == "RAISE_VARARGS":
            return -arg
        return 0

    checked = 0
    for code in functions():
        if code.co_flags & 0x2A0 or not code.co_flags & 1:  # generators have their own entry; functions only
            continue
        rows = _core.decoded_instructions(code)
        if any(row[0] in ("UNSUPPORTED", "CALL_INTRINSIC_2", "CHECK_EG_MATCH", "IMPORT_STAR") for row in rows):
            continue
        depths, todo = {}, [(0, 0)]
        while todo:
            index, depth = todo.pop()
            if index in depths:
                assert depths[index] == depth, (code, index, rows[index])
                continue
            depths[index] = depth
            name, arg, arg2 = rows[index][:3]
            assert 0 <= depth <= code.co_stacksize, (code, index, rows[index])
            if name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"):
                continue
            if name == "JUMP":
                todo.append((arg, depth))
            elif name.startswith("POP_JUMP"):
                todo += [(arg, depth - 1), (index + 1, depth - 1)]
            elif name.startswith("JUMP_IF"):
                todo += [(arg, depth), (index + 1, depth - 1)]
            elif name == "FOR_ITER":
                todo += [(arg, depth - (1 if sys.version_info < (3, 15) else 2)), (index + 1, depth + 1)]
            else:
                todo.append((index + 1, depth + effect(name, arg, arg2)))
        checked += 1
    assert checked > 1000
