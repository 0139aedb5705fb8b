"""What to write here for names and options of the peers that people try, for messages about what does not exist."""

_ONE_THREAD = "a loop's passes run on several threads with framejit.prange, kernels of array operations as they are"

OPTIONS = {  # of decorators
    # torch.compile
    "options": "options are arguments of their own: framejit.compile(f, threads=4)",
    # Numba
    "nopython": "what can't be compiled runs in CPython; fullgraph=True makes it an error",
    "forceobj": "what can't be compiled runs in CPython by itself",
    "parallel": _ONE_THREAD,
    "nogil": "compiled code lets go of the GIL by itself, but for loops over lists",
    "cache": "machine code is kept on disk by itself: the options cache_folder and cache_bytes",
    "fastmath": "results are eager ones, to the bounds of docs/numerics.md",
    "boundscheck": "indices are always checked",
    "signature": "types are found in the first call, and guarded",
    "target": "arrays run where they are; backend='cuda' compiles for devices alone",
    # JAX
    "static_argnums": "arguments that are no arrays are part of the code by themselves; ints and floats that change become arguments of it",
    "static_argnames": "arguments that are no arrays are part of the code by themselves; ints and floats that change become arguments of it",
    "donate_argnums": "memory is used again as Python's references allow; functions may write into their arguments",
    "donate_argnames": "memory is used again as Python's references allow; functions may write into their arguments",
    "device": "arrays run where they are",
    "inline": "Python functions that are called are part of the graph by themselves",
}

BACKENDS = {
    "inductor": "'auto', framejit's own code generator, is its like",
    "aot_eager": "'eager' runs graphs by the library's functions",
    "cudagraphs": "mode='reduce-overhead' makes CUDA graphs",
    "openxla": "'auto' is framejit's own code generator",
    "cpu": "arrays run where they are: 'auto'",
    "gpu": "arrays run where they are: 'auto', or 'cuda'",
    "onnxrt": "framejit.capture(f, ...).to_onnx() makes a model for it",
}

NAMES = {  # of modules
    "jit": "framejit.compile",
    "njit": "framejit.compile",
    "jit_module": "framejit.compile, of each function: for name, f in vars(module).items()",
    "vectorize": "framejit.compile of a function of whole arrays, or of a loop; framejit.vmap for one of examples",
    "guvectorize": "framejit.compile of a loop over the outer axis, framejit.prange for several threads",
    "stencil": "framejit.compile of an expression of slices: a[1:-1] + a[2:]",
    "cfunc": "framejit.export(f, ...).build(...), a C library",
    "typed": "lists and dicts as they are",
    "jitclass": "classes as they are",
    "objmode": "nothing: what is not known runs in CPython",
    "set_num_threads": "framejit.options(threads=...)",
    "get_num_threads": "framejit.options(threads=...)",
    "script": "framejit.capture, or framejit.export for a range of sizes",
    "trace": "framejit.capture, or framejit.export for a range of sizes",
    "symbolic_trace": "framejit.capture",
    "GraphModule": "framejit.Graph",
    "make_fx": "framejit.capture",
    "make_jaxpr": "framejit.capture",
    "load": "framejit.Graph.load or framejit.ExportedProgram.load",
    "save": "framejit.Graph.save or framejit.ExportedProgram.save",
    "pmap": "framejit.vmap, or framejit.prange for several threads",
    "scan": "a loop",
    "fori_loop": "a loop",
    "while_loop": "a loop",
    "cond": "an if",
    "jacfwd": "framejit.jacobian",
    "jacrev": "framejit.jacobian",
    "custom_vjp": "framejit.custom_derivative",
    "custom_jvp": "framejit.custom_derivative",
    "checkpoint_sequential": "framejit.checkpoint",
    "remat": "framejit.checkpoint",
    "allow_in_graph": "framejit.library_function",
    "is_dynamo_compiling": "framejit.is_compiling",
    "list_backends": "framejit.register_backend names them in its messages",
    "dynamo": "framejit.explain and framejit.set_logs",
    "compiler": "framejit's own names: compile, disable, is_compiling",
    "cuda": "arrays on devices as they are",
    "block_until_ready": "nothing: calls return when their results are there, on CPUs",
    "device_put": "nothing: arrays run where they are",
}


def hint(names, word):
    """"; here ..." for a name of a peer's, or ""."""
    return f"; {names[word]}" if word in names else ""


def misspelt_variables(environment, known):
    """(variable, the one that was meant) of those that begin as framejit's do, and nearly are one."""
    names = [name.upper() for name in known]
    unknown = [name.removeprefix("FRAMEJIT_") for name in sorted(environment) if name.startswith("FRAMEJIT_")]
    unknown = [name for name in unknown if name not in names]
    if unknown:
        import difflib  # only a mistake needs it

        for name in unknown:
            if close := difflib.get_close_matches(name, names, 1, 0.8):
                yield f"FRAMEJIT_{name}", f"FRAMEJIT_{close[0]}"
