"""Every instruction of this interpreter, and what becomes of it: a row each, with a smallest program that contains it.

whole    the symbolic interpreter runs it: one graph, no break
break    a graph may end at it; the executor runs it and compiling goes on
python   CPython runs it: it stands in a class body, a coroutine or the like, which is a frame of its own
none     no compiled function contains it

PYTEST_DONT_REWRITE: the `assert` in a program is Python's own.
"""
import asyncio
import dis
import math
import sys
import types

import numpy as np
import pytest

import framejit
from harness import same_as_eager

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
GLOBAL = 2


class Pair:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Base:
    def method(self, x):
        return x + 1


class Derived(Base):
    def method(self, x):
        return super().method(x) * 2


class Manager:
    def __enter__(self):
        return 3

    def __exit__(self, *exc):
        return True


class Noisy(Manager):
    def __exit__(self, *exc):
        print("exit")
        return True


def straight(x, k=2, *, j=3):
    y = -x + +x * k - j
    z = y[0] if k == 2 and j is not None else x
    same = k is j
    return y + z[1:3].sum() + (~k) + (not k) + same


def slices(x):
    y = x.copy()
    y[1:2] = x[0:1] * 2
    y[0] = 3
    d = {"a": x, "b": 1}
    del d["b"]
    d["c"] = x + 1
    a, b = d.values()
    c, *rest = [a, b, 1]
    return y, c + rest[0], x[::2] * 2


def slices_of_variables(x, i=1, j=2, k=-1):
    y = x.copy()
    y[i:j] = x[:i] * 2
    return y[i:], x[::k] * 2, y[i:j:k]


def displays(x, n=2):
    t = (x + n, n)
    a = [n, *t]
    s = {n, 3, *(1, 2)}
    m = {"k": n, **{"j": x}}
    c = {"p": x, "q": x}
    f = (*t, 1)
    return t, a, len(s), m, c, f, [i * n for i in range(3)], {i for i in range(n)}, {i: i for i in range(n)}


def big_display(x):
    return x * 2, [1, 2, 3, 4], {1, 2, 3, 4}, {"a": x, "b": x, "c": 1}


def strings(x, n=2):
    return x * n, f"{n}-{n!r:>4}{n:02d}{n!s}"


def loops(x):
    i = 0
    while True:
        i += 1
        if i > 3:
            break
        if i == 2:
            continue
        x = x * i
    for k in range(3):
        x = x + k
    while i:
        i -= 1
    n = None
    while n is None:
        n = 1
    while n is not None:
        n = None
    while not i:
        i = 5
    return x


def conditions(x, a=1, b=None):
    k = a and 3
    y = x * (k or b)
    if b is None:
        y = y + 1
    if a is not None:
        y = y * 2
    if a in (1, 2) and a not in (3,):
        y = y - 1
    return y if 0 < a < 3 else x


def closures(x):
    n = 2

    def f(y, k=n, *, j: int = 4):
        nonlocal n
        n = n + 1
        return y * n + k + j

    y = f(x)
    z = n
    del n
    return y * z


def globals_and_attributes(x):
    p = Pair(x, 1)
    p.c = p.a * GLOBAL
    del p.b
    return p.c + math.pi


def store_global(x):
    global GLOBAL
    GLOBAL = 2
    return x * GLOBAL


def delete_global(x):
    global TEMPORARY
    y = x * 2
    TEMPORARY = 1
    del TEMPORARY
    return y + 1


def calls(x):
    def f(*args, **kwargs):
        return args[0] * kwargs["k"]

    return f(x, k=2) + f(*(x,), **{"k": 3}) + x.sum(axis=0) + np.sum(x)


def keyword_calls(x):
    return np.sum(x, axis=0, keepdims=True) + 1


def exceptions(x):
    try:
        raise ValueError("v")
    except KeyError:
        x = x * 5
    except ValueError as error:
        x = x * len(str(error))
    finally:
        x = x + 1
    return x


def asserts(x):
    assert x.shape[0] == 3, "rows"
    return x + 1


def with_statement(x):
    with Manager() as k:
        x = x * k
        raise ValueError
    return x + 1


def with_statement_that_prints(x):
    y = x * 2
    with Noisy() as k:
        y = y * k
        raise ValueError
    return y + 1


def except_star(x):
    y = x * 2
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        y = y + 1
    except* KeyError:
        y = y * 3
    return y + 1


def generator(x):
    def inner(x):
        yield x
        return 2

    def outer(x):
        k = yield from inner(x)
        yield x * k

    return sum(outer(x))


def patterns(x, value):
    match value:
        case Pair(a, b=2):
            x = x + a
        case [1, *rest]:
            x = x + len(rest)
        case {"k": k}:
            x = x + k
        case int():
            x = x * 2
    return x


def of_a_pair(x):
    return patterns(x, Pair(3, 2))


def of_a_sequence(x):
    return patterns(x, [1, 2])


def of_a_mapping(x):
    return patterns(x, {"k": 4})


def imports(x):
    import math
    from math import pi
    return x * math.sqrt(4) + pi


def super_call(x):
    return Derived().method(x)


def class_statement(x):
    y = x * 2

    class Local:
        k: int = 3

        def get(self):
            return self.k + len([__class__])

        del get
        j = k + GLOBAL
        i = y is None

    return y + Local.j


def coroutine(x):
    async def items(n):
        for i in range(n):
            yield i
            await asyncio.sleep(0)

    class Context:
        async def __aenter__(self):
            return 1

        async def __aexit__(self, *exc):
            return False

    async def main(x):
        async with Context() as k:
            async for i in items(3):
                x = x + i * k
        return [x async for i in items(1)][0]

    y = x * 2
    return asyncio.run(main(y)) + 1


def thrown_into_a_delegating_generator(x):
    def inner(x):
        try:
            yield x
        except ValueError:
            yield x * 2

    def outer(x):
        yield from inner(x)

    g = outer(x + 1)
    return next(g), g.throw(ValueError())


def long_jumps(x):
    return LONG(x)


exec("def LONG(x):\n    for i in range(2):\n" + "".join(f"        x{n} = {n}\n" for n in range(300)) + "        x = x * x299\n    return x\n")


def unbound_comprehension_variable(x):
    y = [i for i in range(2)]
    return x * len(y)


def unbound_local(x, flag=True):
    if flag:
        y = x * 2
    z = [y for k in range(2)]
    return z[0] + y


def generic_function(x):
    y = x * 2
    return GENERIC(y) + 1


try:
    exec("def GENERIC(x):\n    type Alias = int\n    def f[T](a: T) -> T:\n        return a\n    return f(x)\n")
except SyntaxError:
    GENERIC = None

try:
    exec("def TEMPLATE(x, n=3):\n    y = x * n\n    text = t'{n} of {y.ndim!r:>3} parts'\n"
         "    return y + 1, text.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in text.interpolations]\n")
except SyntaxError:
    TEMPLATE = None

WHOLE = [
    ("BEFORE_WITH LOAD_SPECIAL WITH_EXCEPT_START", with_statement), ("BINARY_OP BINARY_SUBSCR BUILD_SLICE UNARY_NEGATIVE UNARY_INVERT UNARY_NOT", slices),
    ("UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT UNARY_NOT BINARY_SUBSCR COMPARE_OP IS_OP LOAD_FAST LOAD_CONST STORE_FAST RETURN_VALUE RESUME "
     "LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_SMALL_INT", straight),
    ("BINARY_SLICE STORE_SLICE BUILD_SLICE", slices_of_variables),
    ("BINARY_SLICE STORE_SLICE STORE_SUBSCR DELETE_SUBSCR UNPACK_SEQUENCE UNPACK_EX BUILD_SLICE BUILD_CONST_KEY_MAP BUILD_LIST "
     "STORE_FAST_STORE_FAST", slices),
    ("BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP LIST_EXTEND LIST_APPEND LIST_TO_TUPLE SET_ADD MAP_ADD SET_UPDATE DICT_UPDATE "
     "CALL_INTRINSIC_1 LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST MAKE_FUNCTION", displays),
    ("LIST_EXTEND SET_UPDATE BUILD_CONST_KEY_MAP", big_display),
    ("FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE BUILD_STRING", strings),
    ("FOR_ITER GET_ITER END_FOR POP_ITER NOT_TAKEN JUMP_BACKWARD JUMP_FORWARD POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE "
     "POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_IF_FALSE TO_BOOL "
     "STORE_FAST_LOAD_FAST", loops),
    ("JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE "
     "CONTAINS_OP COPY SWAP POP_TOP", conditions),
    ("POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_TRUE LOAD_ASSERTION_ERROR LOAD_COMMON_CONSTANT RAISE_VARARGS", asserts),
    ("MAKE_CELL COPY_FREE_VARS LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE", closures),
    ("LOAD_GLOBAL LOAD_ATTR STORE_ATTR DELETE_ATTR", globals_and_attributes), ("STORE_GLOBAL", store_global), ("DELETE_GLOBAL", delete_global),
    ("PUSH_NULL PRECALL CALL KW_NAMES CALL_KW CALL_FUNCTION_EX LOAD_METHOD DICT_MERGE", calls), ("KW_NAMES CALL_KW", keyword_calls),
    ("PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH RERAISE RAISE_VARARGS DELETE_FAST", exceptions),
    ("RETURN_GENERATOR YIELD_VALUE SEND GET_YIELD_FROM_ITER END_SEND JUMP_BACKWARD_NO_INTERRUPT CALL_INTRINSIC_1 RETURN_CONST", generator),
    ("MATCH_CLASS", of_a_pair), ("MATCH_SEQUENCE GET_LEN", of_a_sequence), ("MATCH_MAPPING MATCH_KEYS", of_a_mapping),
    ("IMPORT_NAME IMPORT_FROM", imports), ("LOAD_SUPER_ATTR", super_call), ("EXTENDED_ARG", long_jumps),
    ("LOAD_FAST_AND_CLEAR", unbound_comprehension_variable), ("LOAD_FAST_CHECK", unbound_local), ("NOP CACHE", straight),
]
BREAK = [
    ("WITH_EXCEPT_START BEFORE_WITH LOAD_SPECIAL", with_statement_that_prints),
    ("CHECK_EG_MATCH PREP_RERAISE_STAR CALL_INTRINSIC_2", except_star),
]
PYTHON = [
    ("LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_LOCALS LOAD_FROM_DICT_OR_GLOBALS RETURN_CONST", class_statement),
    ("GET_AWAITABLE GET_AITER GET_ANEXT END_ASYNC_FOR BEFORE_ASYNC_WITH ASYNC_GEN_WRAP CLEANUP_THROW", coroutine),
    ("CLEANUP_THROW", thrown_into_a_delegating_generator),
]
# Later bodies look into their namespace before a cell, which is not traced.
(WHOLE if sys.version_info < (3, 12) else BREAK).append(
    ("LOAD_BUILD_CLASS LOAD_NAME STORE_NAME DELETE_NAME SETUP_ANNOTATIONS", class_statement))
if TEMPLATE is not None:
    BREAK.append(("BUILD_INTERPOLATION BUILD_TEMPLATE", TEMPLATE))
if GENERIC is not None:
    PYTHON.append(("CALL_INTRINSIC_2", generic_function))
#: In module bodies only, made by the interpreter itself, or not in what the compiler writes.
NONE = {"CACHE", "NOP", "RESERVED", "IMPORT_STAR", "PRINT_EXPR", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "TRACE_RECORD", "EXIT_INIT_CHECK", "LOAD_FROM_DICT_OR_GLOBALS",
        "LOAD_LOCALS", "LOAD_CLASSDEREF"}
if sys.version_info >= (3, 14):
    NONE.add("SETUP_ANNOTATIONS")  # annotations are a function's

REAL = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED")}


def instructions(code, seen=None):
    """Names of the instructions of a code object, of those in it and of those of the functions it calls here."""
    seen = set() if seen is None else seen
    names = set()
    if code in seen:
        return names
    seen.add(code)
    for instruction in dis.get_instructions(code, show_caches=True):
        names.add(instruction.opname)
        found = globals().get(instruction.argval) if instruction.opname == "LOAD_GLOBAL" else None
        if isinstance(found, types.FunctionType):
            names |= instructions(found.__code__, seen)
        elif isinstance(found, type):
            for member in vars(found).values():
                if isinstance(member, types.FunctionType):
                    names |= instructions(member.__code__, seen)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= instructions(constant, seen)
    return names


def rows(table):
    return [pytest.param(name, program, id=name) for names, program in table for name in names.split()
            if name in REAL and name in instructions(program.__code__)]


def test_every_instruction_has_a_row():
    shown = {row.values[0] for table in (WHOLE, BREAK, PYTHON) for row in rows(table)}
    missing = REAL - shown - NONE
    assert not missing, sorted(missing)


@pytest.mark.parametrize("name, program", rows(WHOLE))
def test_whole(name, program):
    same_as_eager(program, X, breaks=())


@pytest.mark.parametrize("name, program", rows(BREAK))
def test_break(name, program):
    run = same_as_eager(program, X, calls=3)
    assert run.breaks and len(run.graphs) >= 2, run.report


@pytest.mark.parametrize("name, program", rows(PYTHON))
def test_left_to_cpython(name, program):
    same_as_eager(program, X, calls=3)


def test_a_generic_function_is_only_written_where_it_can_be():
    assert GENERIC is None or framejit.compile(GENERIC)(X) is X
