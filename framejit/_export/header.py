"""The header of a library that a program was built into."""
import textwrap

import framejit

# By dtype: the type in C, and what is to be said of it.
TYPES = {"bool": ("bool", ""), "u8": ("uint8_t", ""), "u16": ("uint16_t", ""), "u32": ("uint32_t", ""), "u64": ("uint64_t", ""),
         "i8": ("int8_t", ""), "i16": ("int16_t", ""), "i32": ("int32_t", ""), "i64": ("int64_t", ""),
         "f16": ("uint16_t", "bits of IEEE binary16"), "bf16": ("uint16_t", "bits of bfloat16"), "f32": ("float", ""), "f64": ("double", ""),
         "c64": ("float", "a real and an imaginary part each"), "c128": ("double", "a real and an imaginary part each")}
STATUS = (("OK", ""), ("ARGUMENT", "a null pointer, or a size out of its range"), ("VALUE", "an index out of range, an integer divided by zero"),
          ("MEMORY", "there is not enough"), ("PROCESSOR", "it is older than the library asks for"), ("INTERNAL", "an error of framejit"))


def text_of(title, name, cpus, functions):
    """The header's text. functions: of library.py; the first one's name is what the others are named after."""
    upper, first = name.upper(), functions[0].name
    told = "/* " + "\n * ".join(_lines(title))
    codes = "\n".join(f"  {upper}_{word} = {i}," + (f"  /* {text} */" if text else "") for i, (word, text) in enumerate(STATUS))
    return f"""{told}
 *
 * Built by framejit {framejit.__version__} for {" and ".join(cpus)}. Link with -l{name}; libframejit_program.so lies beside it. */
#ifndef {upper}_H
#define {upper}_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

enum {name}_status {{
{codes}
}};

/* Arrays are contiguous, in row-major order, and no result overlaps another array. Several threads may call at once.
 * Functions return {upper}_OK, or what is wrong: then {first}_error() says more, and the results' contents are undefined. */

{chr(10).join(map(_declared, functions))}
/* About the last call of this thread; "" if it was right. */
const char *{first}_error(void);

/* How many threads work on a call, the caller included; 0: as many as there are cores. */
void {first}_set_threads(int threads);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _declared(function):
    parameters = [f"int64_t {size.name}" for size in function.sizes]
    parameters += [f"{'' if x.written else 'const '}{TYPES[x.dtype][0]} *{x.name}" for x in function.given]
    parameters += [f"{TYPES[x.dtype][0]} *{x.name}" for x in function.results]
    rows = [(size.name, f"from {size.low}" + (f" to {size.high}" if size.high is not None else "")) for size in function.sizes]
    rows += [(x.name, _described(x) + (", which is written" if x.written else "")) for x in function.given]
    rows += [(x.name, _described(x)) for x in function.results]
    width = max((len(row[0]) for row in rows), default=0)
    rows = [_of_comment(f"  {row[0]:<{width}}  {row[1]}") for row in rows]
    comment = "/* " + "\n * ".join([*_lines(function.text or "The program."), *rows]) + " */\n"
    whole = ", ".join(x.replace(" ", "~") for x in parameters) or "void"  # no line ends inside of a parameter
    declared = textwrap.wrap(f"int {function.name}({whole});", 110, subsequent_indent=" " * (len(function.name) + 5), break_long_words=False)
    return comment + "\n".join(declared).replace("~", " ") + "\n"


def _lines(text):
    return list(map(_of_comment, textwrap.wrap(_of_comment(text), 110)))


def _of_comment(line):
    """The line as a comment of C may have it, whatever a program's names and keys are: nothing in it ends the comment or joins lines."""
    line = "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in line)
    line = line.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")  # the last: trigraphs
    return line + "." if line.endswith("\\") else line


def _described(array):
    kind, more = TYPES[array.dtype]
    shape = ", ".join(map(str, array.shape))
    return f"[{shape}]" + (f", {more}" if more else "") + (f", {array.what} in Python" if array.what not in ("", array.name) else "")
