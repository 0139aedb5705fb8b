"""Programs with loops as NumPy users write them: plain functions, compiled by framejit as they stand. run.py measures them."""
from . import arrays, elements, lists, objects, scalars  # noqa: F401  (they register their programs)
from .registry import PROGRAMS, Program  # noqa: F401
