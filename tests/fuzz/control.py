"""torch.cond and torch.while_loop in random programs: lines that eager torch takes, which compiles both functions of each call itself.

Torch asks for branches and passes that give new tensors of one type and write nowhere. So each text is first tried by itself, and only texts of
one type are put together. Whoever asks for lines tries them by `run`: what torch refuses nevertheless is dropped there. Start at `lines_of`.
"""
import collections
import logging
import re
import sys
import warnings

import numpy as np

from harness import is_array, torch

Written = collections.namedtuple("Written", "lines names")  # without indentation; the names of the tensors that they make

# Of the parameters a and b of both functions and of a tensor c around them.
ARMS = ["a + b", "a * 2", "-a", "a - b", "a * b + {c}", "lib.where(b > 0, a, b)", "b * 0.5", "{c} - a * 2", "lib.zeros_like(a)", "a * {c}",
        "a - {c}.sum()", "lib.ones(a.shape) * 3", "lib.clip(a, -1, 2)", "(a > b) * a", "{c} + 1", "a + 3"]
# Those that not all shapes allow; and those whose result may have been written once, by its `_version`, inside of torch's branches and loops alone.
ARMS_OF_SOME = ["a.flip(0)", "abs(a)", "a.clone()", "a.cumsum(0)", "a @ a", "a[:1] + a", "a + a.max()", "a.T + 0", "a.sum(0)"]
PASSES = ["a * 0.5", "a - {c}", "a * 2 + {c}", "-a", "a + n", "a * (n + 1)", "a * {c}", "a + a.sum()", "lib.where({c} > 0, a, -a)",
          "abs(a) - 1", "a // 2"]
PASSES_OF_SOME = ["a.clone()", "a.flip(0) + 1", "{c} + a.max()", "a * {c}[:1]"]
PREDICATES = ["{a}.sum() > 0", "({a} > 1).any()", "({a} * {a}).sum() > 9", "({a} > -4).all().reshape(1)", "({a} == {b}).any()",
              "{a}.sum() > {b}.sum()", "lib.logical_not(({b} < 0).any())"]
FLAGS = ["{a}.ndim > 1", "len({a}.shape) == 2", "{a}.numel() > 6", "True", "False"]  # Python's, which torch reads at once
ENDS = ["a.sum() < 20", "(a < 3).all()", "abs(a).sum() > 1", "(a > -2).any()", "a.sum() < {c}.sum()"]
KEEP = ["a - 1", "a * 2", "-a", "a + 1", "a * a"]  # whose type is a's, whatever that is


def _value(text, space):
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return eval(text, space)
    except Exception:
        return None


def type_of(array):
    strides = tuple(array.stride()) if hasattr(array, "stride") else array.strides
    return str(array.dtype), tuple(array.shape), strides


def _of_one_type(r, texts, count, called, space, like=None):
    """`count` of the texts whose values have one type, that of `like` where given; None where chance finds none."""
    found = {} if like is None else {type_of(like): []}
    for _ in range(16):
        text = r.choice(texts)
        value = _value(called.replace("{text}", text), space)
        if is_array(value) and (like is None or type_of(value) == type_of(like)):
            same = found.setdefault(type_of(value), [])
            same.append(text)
            if len(same) == count:
                return same
    return None


def _functions(r, name, parameters, one, other):
    """(lines before, text, text) of two functions: written in place, or with names."""
    if r.random() < 0.65:
        return [], f"lambda {parameters}: {one}", f"lambda {parameters}: {other}"
    names = f"one_{name}", f"other_{name}"
    return [line for own, text in zip(names, (one, other)) for line in (f"def {own}({parameters}):", f"    return {text}")], *names


def _with(text, **names):
    """The text with other names in the places of whole words."""
    return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), text)


def _cond(r, space, names, fresh, data, any_shape):
    p, q = r.choice(names), r.choice(names)
    alone = p == q or r.random() < 0.3
    second = {"b": "a"} if alone else {}
    parameters, given, outer = ("a", f"({p},)", r.choice(names)) if alone else ("a, b", f"({p}, {q})", r.choice(names))
    texts = [_with(text.replace("{c}", outer), **second) for text in ARMS + ARMS_OF_SOME * (not any_shape)]

    def arms(count):
        return _of_one_type(r, texts, count, f"(lambda a, b: {{text}})({p}, {q})", space)

    def predicate(a, b):
        return r.choice(PREDICATES if data and r.random() < 0.85 else FLAGS).replace("{a}", a).replace("{b}", a if alone else b)

    found = arms(3)
    if found is None:
        return None
    yes, no, third = found
    if r.random() < 0.2:
        inner = f"lib.cond({predicate('a', 'b')}, lambda {parameters}: {no}, lambda {parameters}: {third}, ({parameters},))"
        yes, no = (yes, inner) if r.random() < 0.5 else (inner, yes)
    shape, made, part = r.random(), [fresh()], ""
    more = arms(2) if shape < 0.35 else None
    target = made[0]
    if more and shape < 0.25:
        made.append(fresh())
        yes, no, target = f"({yes}, {more[0]})", f"({no}, {more[1]})", ", ".join(made)
    elif more:
        yes, no, part = f'{{"p": {yes}, "q": {more[0]}}}', f'{{"p": {no}, "q": {more[1]}}}', '["q"]'
    before, true, false = _functions(r, made[0], parameters, yes, no)
    return Written([*before, f"{target} = lib.cond({predicate(p, q)}, {true}, {false}, {given}){part}"], made)


def _while_loop(r, space, names, fresh, data, any_shape):
    carried, most = [r.choice(names) for _ in range(r.choice([1, 1, 2]))], r.choice([2, 3, 6])
    outer, passes = r.choice(names), []
    texts = [text.replace("{c}", outer) for text in PASSES + PASSES_OF_SOME * (not any_shape)]
    for name, parameter in zip(carried, "ab"):
        found = _of_one_type(r, texts, 1, f"(lambda n, a: {{text}})(lib.tensor(1), {name})", space, space[name])
        if found is None:
            return None
        passes.append(_with(found[0], a=parameter))
    if r.random() < 0.15:
        passes[0] = f"lib.cond({r.choice(['a.sum() > 0', '(a > 1).any()', 'n > 1'])}, lambda a: {r.choice(KEEP)}, lambda a: {passes[0]}, (a,))"
    if len(carried) == 2 and type_of(space[carried[0]]) == type_of(space[carried[1]]) and r.random() < 0.5:
        passes.reverse()
    condition = f"n < {most}"
    if data and r.random() < 0.6:
        ends = [text.replace("{c}", outer) for text in r.sample(ENDS, len(ENDS))]
        end = next(text for text in ends if _value(f"(lambda a: {text})({carried[0]})", space) is not None)
        condition = r.choice([f"({condition}) & ({end})", f"({end}) & ({condition})", f"lib.logical_and({condition}, {end})"])
    made, counter = [fresh() for _ in carried], fresh()
    before, goes, body = _functions(r, made[0], "n, a, b" if len(carried) == 2 else "n, a", condition, f"(n + 1, {', '.join(passes)})")
    call = f"lib.while_loop({goes}, {body}, ({r.choice(['lib.tensor(0)', 'lib.zeros((), dtype=lib.int64)'])}, {', '.join(carried)}))"
    if r.random() < 0.3:
        return Written([*before, f"{made[0]} = {call}[1]"], made[:1])
    return Written([*before, f"{counter}, {', '.join(made)} = {call}"], made + [counter])


def forget():
    """What torch has compiled decides how it compiles the next, and what it tells then; but a program depends on its seed alone."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def run(written, space, names):
    """True if the lines work; the space has what they make then. In a function: torch takes the globals of the first program for those of all."""
    source = f"def trial({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in written.lines) + f"    return {', '.join(written.names)},\n"
    forget()
    logging.disable(logging.CRITICAL)  # torch tells of what it refuses
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            exec(compile(source, "<trial>", "exec"), space, found := {})
            made = found["trial"](*(space[name] for name in names))
    except Exception:
        return False
    finally:
        logging.disable(logging.NOTSET)
    space.update(zip(written.names, made))
    return all(is_array(value) for value in made)


def lines_of(r, space, names, fresh, data=True, any_shape=False):
    """Written: a branch or a loop of torch's over tensors that names of the space have; None where there is none.

    fresh: gives a new name; data: False where only sizes and numbers may decide;
    any_shape: torch takes the lines for tensors of other shapes too, and `_version` is compared."""
    names = [name for name in names if isinstance(space.get(name), torch.Tensor)]
    return r.choice([_cond, _cond, _while_loop])(r, space, names, fresh, data, any_shape) if names else None


def pass_of(r, name):
    """The text of a branch of torch's that keeps the type of a tensor: for the passes of a loop."""
    predicate = r.choice(PREDICATES).replace("{a}", name).replace("{b}", name)
    return f"lib.cond({predicate}, lambda a: {r.choice(KEEP)}, lambda a: {r.choice(KEEP)}, ({name},))"
