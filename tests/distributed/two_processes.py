"""Runs functions in two processes that are one group of torch.distributed over gloo, on this machine."""
import importlib
import os
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing


def _work(rank, folder, module, names):
    torch.set_num_threads(1)
    os.environ["FRAMEJIT_CACHE_FOLDER"] = os.path.join(folder, "kernels")
    import framejit

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    functions = vars(importlib.import_module(module))
    results = {}
    for name in names:
        framejit.reset()
        try:
            results[name] = functions[name](rank)
        except Exception:
            results[name] = traceback.format_exc()
            # The other process may be waiting for this one: it is told by the connection that ends.
            break
    torch.save(results, os.path.join(folder, f"results{rank}"))
    if len(results) == len(names):
        dist.barrier()
        dist.destroy_process_group()


def run(module, names):
    """{name: [result of process 0, of process 1]} of module.name(rank), one after the other; a traceback where it raised."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (folder, module, names), nprocs=2)
        found = [torch.load(os.path.join(folder, f"results{rank}"), weights_only=False) for rank in range(2)]
    return {name: [results.get(name, "not run: another raised before") for results in found] for name in names}


def checked(results):
    """The two results of one function; fails with the traceback of one that raised."""
    for result in results:
        assert not isinstance(result, str), result
    return results
