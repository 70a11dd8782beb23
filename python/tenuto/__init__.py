"""Pipeline and data parallel training of PyTorch modules by Tenuto.

A script makes a Pipeline and calls fit(); `tenuto launch -n N SCRIPT.py` starts it once for each
worker. docs/bring-your-model.md shows how.
"""

from ._model import initial_values
from ._pipeline import Pipeline

__all__ = ["Pipeline", "initial_values"]
