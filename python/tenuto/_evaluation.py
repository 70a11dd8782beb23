"""What evaluate() needs: each row of a data set once, and the mean of the losses of its rows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional, Union

import torch
from torch.utils.data import IterableDataset, default_collate

from ._data import KINDS, RowsInTurn, Stream, has_rows

# Seconds until the coordinator's last line can be read, where hosts share a folder over a network.
_LIMIT = 30.0
_PAUSE = 0.05


class WholeSet:
    """The micro-batches of an evaluation: a function of (seed, iteration, micro).

    Micro-batch m has `micro_rows` rows of the data set, from m * micro_rows on. The last one has
    those that are left, so each row is in one micro-batch. Of a function they are its micro-batches
    (seed, 0, 0) to (seed, 0, micros - 1), which have as many rows as the first one.

    Raises TypeError for data that is nothing of that, and ValueError if it is empty.
    """

    def __init__(self, data: Any, job: Mapping[str, Any], micros: Optional[int]) -> None:
        self._data = data
        self._size: int = job["micro_rows"]
        self._reader: Union[Stream, RowsInTurn, None] = None  # None: a function
        self._rows: Optional[int] = None  # of the whole set; None: those of a function
        if isinstance(data, IterableDataset):  # first: its base class has __getitem__
            self._rows = sum(1 for _ in data)
            self._reader = Stream(data, "the data set", self._size, 0, 2)
        elif has_rows(data):
            self._rows = len(data)
            self._reader = RowsInTurn(data, "the data set", self._size, 1)
        elif not callable(data) or micros is None:
            raise TypeError(
                f"evaluate() needs {KINDS}; of a function it takes the first micros= micro-batches"
            )
        count = -(-self._rows // self._size) if self._rows is not None else micros
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(
                "the data set is empty: expected at least one row"
                if self._rows is not None
                else f"micros is {micros!r}: expected a number of micro-batches, 1 or more"
            )
        self.micros: int = count

    def __call__(self, seed: int, iteration: int, micro: int) -> Any:
        """Return the rows of a micro-batch, whatever the iteration is."""
        if self._rows is None or self._reader is None:
            return self._data(seed, 0, micro)
        first = micro * self._size
        count = min(self._size, self._rows - first)
        if isinstance(self._reader, Stream):
            return default_collate(self._reader.take(seed, first, count))
        return default_collate([self._reader.row(row) for row in range(first, first + count)])

    def weigher(self, rows: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
        """Return a function of (the loss of a micro-batch, its rows) that gives its part of a mean.

        The mean of these parts over all micro-batches is the mean loss of the rows. `rows` are
        those of the first micro-batch.
        """
        total = self._rows if self._rows is not None else rows * self.micros

        def weigh(loss: torch.Tensor, own: int) -> torch.Tensor:
            if self._rows is None and own != rows:
                raise ValueError(
                    f"a micro-batch of the function has {own} rows, and the first one {rows}: "
                    "expected as many in each where the workers of a run evaluate"
                )
            return loss.double() * share_of(own, self.micros, total)

        return weigh


def share_of(rows: int, micros: int, total: int) -> float:
    """Return what the loss of a micro-batch counts, if 1 is the average of all micro-batches."""
    return rows * micros / total


def mean_of(losses: Iterable[tuple[float, int]]) -> float:
    """Return the mean loss of the rows: of (loss of a micro-batch, its rows).

    The numbers are added as the coordinator of a run adds them, one after the other.
    """
    known = list(losses)
    total = sum(rows for _, rows in known)
    mean = 0.0
    for loss, rows in known:
        mean += loss * share_of(rows, len(known), total)
    return mean / len(known)


def found_loss(folder: str) -> float:
    """Return the loss that a run in this folder has found: its coordinator has written it.

    Raises RuntimeError if it is not there, as on a host that does not share the folder.
    """
    path = os.path.join(folder, "metrics.jsonl")
    end = time.monotonic() + _LIMIT
    while True:
        loss = _loss_in(path)
        if loss is not None:
            return loss
        if time.monotonic() > end:
            raise RuntimeError(
                f"{path} has no validation_loss after {_LIMIT:.0f} s: expected that all hosts of "
                "the run share this folder (job.directory), as they do for checkpoints"
            )
        time.sleep(_PAUSE)


def _loss_in(path: str) -> Optional[float]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    except OSError:
        return None
    for line in lines:
        if "validation_loss" in line:
            value = line["validation_loss"]
            return float("nan") if value is None else float(value)
    return None
