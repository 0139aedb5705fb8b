"""Whether sources that are compiled together call what they call when each is compiled alone.

A name of an unnamed namespace is seen by the sources behind it in a unit: a call could choose another function than it
did. `python unit_calls.py build/py` compiles every unit of a build folder, and each of its sources, without
optimisation or inlining, and compares for each function the names it refers to. What only tells whether a call may raise
is left out. Some ten minutes of processor time.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

#: Depends on what the compiler knows of a callee's exceptions.
UNWINDING = re.compile(r"_Unwind_Resume|__cxa_|_ZdlPv|_ZSt8_Destroy|_ZNSt16allocator_traits|.*D[12]Ev$|.*deallocate")


def calls(command, folder, source, made):
    """{function: names it refers to} of one source, compiled by the command of its unit."""
    command = re.sub(r" -o \S+| -MD -MT \S+ -MF \S+", "", command).replace("-O3", "-O0 -ffunction-sections -fno-inline")
    command = re.sub(r" -c \S+", f" -c {source} -o {made}", command)
    subprocess.run(command, shell=True, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    found, function = collections.defaultdict(set), None
    for line in subprocess.run(["objdump", "-r", made], capture_output=True, text=True, check=True).stdout.splitlines():
        if section := re.match(r"RELOCATION RECORDS FOR \[(.+)\]", line):
            function = section[1].removeprefix(".text.") if section[1].startswith(".text") else None
        elif function and " R_" in line:
            name = re.sub(r"[-+]0x[0-9a-f]+$", "", line.split()[-1]).removeprefix(".text.")
            # Lambdas and statics are numbered in a source.
            name = re.sub(r"\.\d+$", "", re.sub(r"UlvE\d*_|EUl[^E]*E\d*_", "L", name))
            if not name.startswith(".") and not UNWINDING.fullmatch(name):
                found[function].add(name)
    return found


def main(folder):
    functions = differing = 0
    for row in json.loads((pathlib.Path(folder) / "compile_commands.json").read_text()):
        if "/Unity/" not in row["file"]:
            continue
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made) / "made.o"
            together, alone = calls(row["command"], row["directory"], row["file"], made), collections.defaultdict(set)
            for source in re.findall(r'#include "(/[^"]+\.cpp)"', pathlib.Path(row["file"]).read_text()):
                for function, names in calls(row["command"], row["directory"], source, made).items():
                    alone[function] |= names
        functions += len(alone)
        for function, names in alone.items():
            if function in together and names != together[function]:
                differing += 1
                print(f"{row['file']}: {function}: {sorted(names ^ together[function])}")
    print(f"{functions} functions, {differing} that refer to other names together than alone")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
