"""framejit cache: the kernels kept on disk."""
import datetime
import json
import sys

import framejit
from framejit import _core
from framejit._tools.text import size

ACTIONS = ("show", "where", "list", "clear")


def cache(action, as_json=False):
    disk = framejit.cache_info()["disk"]
    folder = disk["folder"]
    if not folder:
        print("framejit keeps no kernels on disk: FRAMEJIT_CACHE_BYTES is 0, or there is no home folder", file=sys.stderr)
        return 1
    if action == "clear":
        deleted = _core.clear_cache(folder)
        left = len(_core.list_cache(folder))
        if as_json:
            print(json.dumps({"folder": folder, "deleted": deleted, "left": left}, indent=2))
        else:
            print(f"{deleted} kernels deleted from {folder}" + (f", {left} could not be" if left else ""))
        return 1 if left else 0
    if action == "where" and not as_json:
        print(folder)
        return 0
    files = _core.list_cache(folder) if action != "where" else []
    total = sum(count for _, count, _, _ in files)
    if as_json:
        found = {"folder": folder}
        if action != "where":
            found |= {"kernels": len(files), "bytes": total, "bound": disk["bound"]}
        if action == "list":
            found["files"] = [{"name": name, "bytes": count, "used": used, "tier": tier} for name, count, used, tier in files]
        print(json.dumps(found, indent=2))
        return 0
    if action == "list":
        for name, count, used, tier in files:
            moment = datetime.datetime.fromtimestamp(used).isoformat(" ", "minutes")
            print(f"{name[:16]}  {tier:9}  {size(count):>10}  used {moment}")
    print(f"{folder}: {len(files)} kernels, {size(total)} of at most {size(disk['bound'])}")
    return 0
