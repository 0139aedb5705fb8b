"""The exceptions framejit raises; everything else a compiled function raises is the function's own."""


class Error(Exception):
    """A failure of framejit itself, raised only with the option `strict`; its subclasses are raised without it too.

    Without `strict` the call runs eagerly, and FRAMEJIT_LOGS=fallbacks says why.

        with framejit.options(strict=True):
            f(x)                    # raises framejit.Error in the place of running eagerly
    """


class GraphBreakError(Error):
    """With `fullgraph=True`: the function can't be captured as one graph; the text says where and why.

    Raised by the call that compiles, and by framejit.capture, grad and its like. A function that computes no array needs no graph and
    raises nothing.

        @framejit.compile(fullgraph=True)
        def f(x):
            print(x)                # GraphBreakError: ... FJ102 output is written here
            return x + 1
    """


class RecompileError(Error):
    """With `on_recompile="error"`: no compiled piece fits a call, whose arguments or state are others than before; the text says which.

    Nothing of the piece has been executed. What is compiled for the first time raises nothing: a function that was never called, what
    follows a break that no call has come to.

        f = framejit.compile(lambda x: x * 2)
        framejit.warm_up(f, (((64, 64), "float32"),), (((128, 64), "float32"),))
        with framejit.options(on_recompile="error"):
            f(np.ones(64))          # RecompileError: ... was f32[s0, 64], now f64[64]
    """


class CheckError(Error):
    """With `backend="verify"` or `backend="check_nan"`: a call gives other results than Python, a program than its operations, or it makes a NaN.

    The text has the first operation that does, the user's line, an element and the operands there.

        framejit.compile(lambda x: np.log(x - 1), backend="check_nan")(np.zeros(3))     # CheckError: ... log(%0) ... at demo.py:1
    """


class GraphError(Error):
    """A graph was edited, read, called or saved in a way that is not allowed; the text names the node, the rule or the file.

        framejit.Graph.parse("no graph")        # GraphError, with the line that can't be read
    """


class BackendError(Error):
    """A back end given by the user raised, or returned what a back end doesn't; also without the option `strict`.

    It is raised where a call compiles or runs a piece. The text says which back end, what was found and what was expected;
    an exception of the back end's own is the `__cause__`.

        framejit.compile(f, backend=lambda graph, inputs: None)(x)      # BackendError: ... returned None
    """


for _error in (Error, GraphBreakError, RecompileError, CheckError, GraphError, BackendError):
    _error.__module__ = "framejit"
