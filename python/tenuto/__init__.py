"""Pipeline and data parallel training of PyTorch modules by Tenuto.

A script makes a Pipeline and calls fit(); `tenuto launch -n N SCRIPT.py` starts it once for each
worker. docs/bring-your-model.md shows how.
"""

from ._checkpoint import from_dcp, load_checkpoint, load_optimizer, to_dcp
from ._model import initial_values
from ._pipeline import Pipeline, Step

__all__ = [
    "Pipeline",
    "Step",
    "from_dcp",
    "initial_values",
    "load_checkpoint",
    "load_optimizer",
    "to_dcp",
]
