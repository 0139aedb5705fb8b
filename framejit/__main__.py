"""framejit: run programs and see what framejit did, look at the machine, look after what is kept on it.

    framejit run script.py [arguments]      as `python script.py`, and at its end a summary on stderr; `-m module` as `python -m module`
    framejit explain script.py[:function]   the same, and at its end the whole report of each compiled function on stdout
    framejit doctor                         processor, threads, BLAS, CUDA, versions, cache, options, and what is off for which reason
    framejit cache [where | list | clear]   the kernels on disk: how much there is, the folder, the files; clear deletes them
    framejit --version

`python -m framejit` is the same command. Each takes --json; `framejit run --help` and the like say the rest.
"""
import argparse
import json
import os
import sys

import framejit
from framejit._nearest import did_you_mean


class Parser(argparse.ArgumentParser):
    """Names the nearest word for a mistyped one."""

    def __init__(self, *args, **keywords):
        super().__init__(*args, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **keywords)

    def options(self):
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def refuse(self, words):
        """Ends with a message about words that mean nothing."""
        option = words[0].partition("=")[0]
        if option.startswith("-"):
            self.error(f"there is no option {option}" + did_you_mean(option, self.options()).replace("'", ""))
        self.error(f"{words[0]!r} is one word too many")


def _program_parser(commands, name, what):
    parser = commands.add_parser(name, help=what, usage=f"{_prog()} {name} [options] (script.py | -m module) [arguments]",
                                 description=what[0].upper() + what[1:] + ".")
    parser.add_argument("--html", metavar="FILE", help="also write the report as a page; of several functions one each, with the name in the file's")
    parser.add_argument("--json", action="store_true", help="the report as JSON in the place of the text; `--json=FILE` writes it to a file")
    parser.add_argument("-m", dest="module", metavar="module", nargs=argparse.REMAINDER, help="a module, as with `python -m`, and its arguments")
    which = "; `script.py:function` reports on this function, `script.py:Encoder.*` on those that match" if name == "explain" else ""
    parser.add_argument("program", metavar="script.py", nargs=argparse.REMAINDER,
                        help="a script, or a folder or an archive with a __main__.py" + which)
    return parser


def _prog():
    return "framejit" if os.path.basename(sys.argv[0]).startswith("framejit") else "python -m framejit"


def parsers():
    """(the parser of the command, those of its commands by name)."""
    parser = Parser(prog=_prog(), description=__doc__, usage=f"{_prog()} [--version] [--help] command ...")
    parser.add_argument("--version", action="version", version=f"framejit {framejit.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", parser_class=Parser, prog=_prog())
    _program_parser(commands, "run", "run a program and say at its end what framejit did")
    _program_parser(commands, "explain", "run a program and print the report of each function that was compiled")
    doctor = commands.add_parser("doctor", help="what framejit finds on this machine, and what is off")
    cache = commands.add_parser("cache", help="the kernels kept on disk")
    cache.add_argument("action", nargs="?", default="show",
                       help="show (how much there is), where (the folder), list (the files), clear (delete them)")
    for one in (doctor, cache):
        one.add_argument("--json", action="store_true", help="as JSON")
    return parser, commands.choices


def _json_file(arguments):
    """(the arguments with --json alone, FILE of `--json=FILE` before the program)."""
    for i, word in enumerate(arguments[1:], 1):
        if word.startswith("--json="):
            return [*arguments[:i], "--json", *arguments[i + 1:]], word.partition("=")[2]
        if word == "--html":
            continue
        if not word.startswith("--") and arguments[i - 1] != "--html":
            break
    return arguments, None


def _program(parser, chosen, json_file):
    """Runs the program of `run` and `explain`."""
    from framejit._tools import run

    pattern = None
    if chosen.module is not None:
        if not chosen.module:
            parser.error("-m is followed by the name of a module")
        script, (module, *arguments) = None, chosen.module
    else:
        if not chosen.program:
            parser.error("a script is needed, or -m and a module")
        (script, *arguments), module = chosen.program, None
        if chosen.command == "explain" and not os.path.exists(script) and ":" in script:
            script, _, pattern = script.rpartition(":")
    if chosen.html and (fault := run.page_fault(chosen.html)):
        parser.error(fault)  # now, not after the hour that the program takes
    file = None
    if json_file is not None:
        try:
            file = open(json_file, "w", encoding="utf-8")
        except OSError as error:
            parser.error(f"the report can't be written to {json_file}: {error.strerror}")
    return run.run(script, module, arguments, whole=chosen.command == "explain", pattern=pattern,
                   html=chosen.html and os.path.abspath(chosen.html), as_json=chosen.json, json_file=file)


def command(arguments):
    """Does what the arguments say; the exit status."""
    parser, each = parsers()
    if not arguments:
        parser.print_help()
        return 2
    if not arguments[0].startswith("-") and arguments[0] not in each:
        parser.error(f"there is no command {arguments[0]!r}; there are: {', '.join(each)}{did_you_mean(arguments[0], each)}")
    json_file = None
    if arguments[0] in ("run", "explain"):
        arguments, json_file = _json_file(arguments)
    chosen, unknown = parser.parse_known_args(arguments)
    if chosen.command is None:
        parser.refuse(unknown or arguments)
    if unknown:
        each[chosen.command].refuse(unknown)
    if chosen.command in ("run", "explain"):
        return _program(each[chosen.command], chosen, json_file)
    if chosen.command == "doctor":
        from framejit._tools import doctor

        found = doctor.examine()
        print(json.dumps(found, indent=2) if chosen.json else "\n".join(doctor.lines(found)))
        return 0
    from framejit._tools.cache import ACTIONS, cache

    if chosen.action not in ACTIONS:
        each["cache"].error(f"there is no action {chosen.action!r}; there are: {', '.join(ACTIONS)}{did_you_mean(chosen.action, ACTIONS)}")
    return cache(chosen.action, chosen.json)


def main(arguments=None):
    try:
        status = command(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who reads has gone, as `head -1` does. Nothing is left to be written, or Python complains when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
