"""The nearest form that Numba takes of the programs whose own source it refuses."""
import numba
import numpy as np

from . import arrays, elements
from .registry import form
