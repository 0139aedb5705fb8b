"""The exceptions framejit raises; everything else a compiled function raises is the function's own."""


class Error(Exception):
    """A failure of framejit itself, raised only with the option `strict`."""


class GraphBreakError(Error):
    """With `fullgraph=True`: the function can't be captured as one graph; the text says where and why."""


class BackendError(Error):
    """A back end given by the user raised or returned something that is not what a back end returns."""


for _error in (Error, GraphBreakError, BackendError):
    _error.__module__ = "framejit"
