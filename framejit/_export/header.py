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


def text_of(program, name, cpus, sizes, given, results):
    """The header's text. sizes, given, results: of library.py, in the order of parameters."""
    upper = name.upper()
    parameters = [f"int64_t {size.name}" for size in sizes]
    parameters += [f"{'' if x.written else 'const '}{TYPES[x.dtype][0]} *{x.name}" for x in given]
    parameters += [f"{TYPES[x.dtype][0]} *{x.name}" for x in results]
    rows = [(size.name, f"from {size.low}" + (f" to {size.high}" if size.high is not None else "")) for size in sizes]
    rows += [(x.name, _described(x) + (", which is written" if x.written else "")) for x in given]
    rows += [(x.name, _described(x)) for x in results]
    width = max((len(row[0]) for row in rows), default=0)
    table = "\n".join(f" *   {row[0]:<{width}}  {row[1]}" for row in rows)
    told = "\n".join(textwrap.wrap(f"{program.signature}".replace("*/", "* /"), 110, initial_indent="/* ", subsequent_indent=" * "))
    codes = "\n".join(f"  {upper}_{word} = {i}," + (f"  /* {text} */" if text else "") for i, (word, text) in enumerate(STATUS))
    declared = textwrap.wrap(f"int {name}({', '.join(parameters) or 'void'});", 110, subsequent_indent=" " * (len(name) + 5),
                             break_long_words=False)
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
 *
{table}
 *
 * Returns {upper}_OK, or what is wrong: then {name}_error() says more, and the results' contents are undefined. */
{chr(10).join(declared)}

/* About the last call of this thread; "" if it was right. */
const char *{name}_error(void);

/* How many threads work on a call, the caller included; 0: as many as there are cores. */
void {name}_set_threads(int threads);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _described(array):
    kind, more = TYPES[array.dtype]
    shape = ", ".join(map(str, array.shape))
    return f"[{shape}]" + (f", {more}" if more else "") + (f", {array.what} in Python" if array.what != array.name else "")
