"""python -m framejit: look after what framejit keeps on this machine.

    python -m framejit cache           folder, size and bound of the kernel cache
    python -m framejit cache where     the folder alone
    python -m framejit cache list      its files, most recently used first
    python -m framejit cache clear     deletes them; kernels are compiled again when they are needed

The folder is FRAMEJIT_CACHE_FOLDER, else framejit in the user's cache folder.
"""
import argparse
import datetime
import sys

import framejit
from framejit import _core


def size(count):
    """1234567 as "1.2 MB"."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def cache(action):
    disk = framejit.cache_info()["disk"]
    folder = disk["folder"]
    if not folder:
        print("framejit keeps no kernels on disk: FRAMEJIT_CACHE_BYTES is 0, or there is no home folder", file=sys.stderr)
        return 1
    if action == "where":
        print(folder)
    elif action == "clear":
        deleted = _core.clear_cache(folder)
        left = len(_core.list_cache(folder))
        print(f"{deleted} kernels deleted from {folder}" + (f", {left} could not be" if left else ""))
        return 1 if left else 0
    else:
        files = _core.list_cache(folder)
        if action == "list":
            for name, count, used, tier in files:
                moment = datetime.datetime.fromtimestamp(used).isoformat(" ", "minutes")
                print(f"{name[:16]}  {tier:9}  {size(count):>10}  used {moment}")
        total = sum(count for _, count, _, _ in files)
        print(f"{folder}: {len(files)} kernels, {size(total)} of at most {size(disk['bound'])}")
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m framejit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="cache")
    cache_parser = commands.add_parser("cache", help="the kernels kept on disk")
    cache_parser.add_argument("action", nargs="?", default="show", choices=["show", "where", "list", "clear"])
    chosen = parser.parse_args(arguments)
    return cache(chosen.action)


if __name__ == "__main__":
    sys.exit(main())
