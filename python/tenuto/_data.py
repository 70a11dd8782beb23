"""The micro-batches of a run, which are the same in whatever process they are made."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

import torch
from torch.utils.data import IterableDataset, default_collate

from ._loaders import Batch, Key, Loaders, Tensors

_NAMES = ("dataset", "validation")  # what fit() calls the two
KINDS = (
    "a function of (seed, iteration, micro), a data set with len() and items (input, target), or "
    "a torch.utils.data.IterableDataset of such items"
)
Source = Callable[[int, int, int], Any]  # of (seed, iteration, micro)
_END = object()  # what a stream gives after its last row


def as_tensors(value: Any, whose: str) -> Tensors:
    """Return a tensor, or a tuple or list of tensors, as a tuple; TypeError for anything else."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (tuple, list)) and all(isinstance(one, torch.Tensor) for one in value):
        return tuple(value)
    raise TypeError(
        f"{whose} gives {type(value).__name__}: expected a tensor or a tuple of tensors"
    )


def pair_of(made: Any, source: str) -> Batch:
    """Return a micro-batch as (inputs, targets), each a tuple of tensors."""
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise TypeError(
            f"{source} gives {type(made).__name__}: expected (inputs, targets), each a tensor or a "
            "tuple of tensors"
        )
    return as_tensors(made[0], source), as_tensors(made[1], source)


class Maker:
    """Makes the micro-batches of a run: a function of (held_out, iteration, micro).

    What the data draws from torch's generator is a function of (seed, iteration, micro), or in a
    stream of (seed, row). So a micro-batch is the same in each process, and when it is made again.
    """

    def __init__(self, training: Any, held_out: Any, job: Mapping[str, Any]) -> None:
        self._seed: int = job["seed"]
        self._sources = [_source_of(training, False, job), _source_of(held_out, True, job)]

    def __call__(self, held_out: bool, iteration: int, micro: int) -> Batch:
        """Return (inputs, targets), each a tuple of tensors whose first dimension is the rows.

        Raises what the data set raises, and TypeError and ValueError for what does not fit.
        """
        source = self._sources[held_out]
        if source is None:
            raise ValueError("a held-out pass needs fit(validation=...): give it")
        with torch.random.fork_rng(devices=[]):
            _seed_generator(self._seed, held_out, iteration, micro)
            return pair_of(source(self._seed, iteration, micro), "the data set")

    def has_stream(self, held_out: bool) -> bool:
        """Return whether the rows are those of an IterableDataset."""
        return isinstance(self._sources[held_out], Stream)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; TypeError when pickle does not take the data."""
        return {"seed": self._seed, "sources": list(map(_pickled, self._sources, _NAMES))}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._seed = state["seed"]
        self._sources = list(map(pickle.loads, state["sources"]))


class Batches:
    """The micro-batches that the engine asks for, made in this process or in loaders.

    Raises TypeError and ValueError with a sentence for data or a number of loaders that does not
    fit.
    """

    def __init__(
        self, training: Any, held_out: Any, job: Mapping[str, Any], loaders: int = 0
    ) -> None:
        if isinstance(loaders, bool) or not isinstance(loaders, int) or loaders < 0:
            raise ValueError(f"loaders is {loaders!r}: expected a number of processes, 0 or more")
        if loaders > 0 and training is None:
            raise ValueError(
                f"loaders is {loaders}, and data.paths are read without loaders: give a data set, "
                "or loaders=0"
            )
        self._job = job
        self._maker = Maker(training, held_out, job)
        self._count = loaders
        self._pickled = pickle.dumps(self._maker) if loaders > 0 else b""
        self._make: Callable[[bool, int, int], Batch] = self._maker
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Batch] = OrderedDict()
        self._most_kept = 1
        self._iteration = -1
        self._asked: set[Key] = set()  # of this iteration

    def __call__(self, held_out: bool, iteration: int, micro: int) -> Batch:
        """Return what Maker returns."""
        key = (held_out, iteration, micro)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            if iteration != self._iteration:
                self._iteration = iteration
                self._asked.clear()
            if key in self._asked:
                # A worker asks again that holds the first and the last stage, or computes forwards
                # twice. It keeps as many as it has under way at once, at most those of a step.
                most = self._job["micros"] * self._job["pipelines"]
                self._most_kept = min(2 * self._most_kept, most)
            self._asked.add(key)
            batch = self._make(held_out, iteration, micro)
            self._kept[key] = batch
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
            return batch

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Have the loaders, if there are any, while the body runs."""
        if self._count == 0:
            yield
            return
        streams = (self._maker.has_stream(False), self._maker.has_stream(True))
        with Loaders(self._count, self._pickled, self._job, streams) as loaders:
            self._make = loaders
            self._kept.clear()  # so that the loaders see from the first one on what is asked for
            self._asked.clear()
            try:
                yield
            finally:
                self._make = self._maker


def has_rows(data: Any) -> bool:
    """Return whether this is a data set with len() and items."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _source_of(data: Any, held_out: bool, job: Mapping[str, Any]) -> Optional[Source]:
    if data is None:
        return None
    rows, micros, what = job["micro_rows"], job["micros"] * job["pipelines"], _NAMES[held_out]
    if isinstance(data, IterableDataset):  # first: its base class has __getitem__
        if held_out:
            return Stream(data, what, rows, 0, max(1, job["validate_micros"]))
        return Stream(data, what, rows, micros, micros)
    if has_rows(data):
        return RowsInTurn(data, what, rows, micros)
    if callable(data):
        return data
    raise TypeError(f"{what} is {type(data).__name__}: expected {KINDS}")


def _pickled(source: Optional[Source], what: str) -> bytes:
    try:
        return pickle.dumps(source)
    except Exception as error:  # whatever the user's classes raise
        data = getattr(source, "data", source)
        raise TypeError(
            f"{what} ({type(data).__name__}) cannot be given to loader processes "
            f"({' '.join(str(error).split())}): take functions and classes of the top level of a "
            "module, without open files and locks, or give loaders=0"
        ) from error


def _seed_generator(*numbers: int) -> None:
    """Make what torch's generator draws next a function of these numbers."""
    bits = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    torch.default_generator.manual_seed(int.from_bytes(bits, "little") >> 1)


class RowsInTurn:
    """Draws the rows of a map-style data set: each once an epoch, in an order made by the seed.

    The row is a function of (seed, step, micro-batch, row), so whatever worker asks, and whatever
    has died meanwhile, no row is left out or seen twice.
    """

    def __init__(self, data: Any, what: str, rows: int, micros: int) -> None:
        self.data = data
        self._what, self._rows, self._micros = what, rows, micros
        self._count = len(data)
        self._order: tuple[int, Any] = (-1, None)
        if self._count == 0:
            raise ValueError(f"{what} is empty: expected at least one row")

    def index(self, seed: int, step: int, micro: int, row: int) -> int:
        """Return which row of the data set this one is."""
        number = (step * self._micros + micro) * self._rows + row
        epoch, place = divmod(number, self._count)
        known, order = self._order
        if known != epoch:
            generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
            order = torch.randperm(self._count, generator=generator)
            self._order = (epoch, order)
        return int(order[place])

    def __call__(self, seed: int, step: int, micro: int) -> Any:
        places = [self.index(seed, step, micro, row) for row in range(self._rows)]
        return default_collate([self.row(place) for place in places])

    def row(self, place: int) -> Any:
        """Return that row of the data set; ValueError if it is not there."""
        try:
            return self.data[place]
        except IndexError as error:
            raise ValueError(
                f"{self._what} has len() {self._count}, and its row {place} raises IndexError "
                f"({error}): expected a row for each index from 0 to {self._count - 1}"
            ) from error


class Stream:
    """The rows of an IterableDataset by their numbers in the stream, which begins again at its end.

    Micro-batch m of step s has the rows from (s * micros + m) * rows on, where `micros` are those
    of all pipelines in a step. Each process reads the stream for itself and drops the rows of
    others. For the held-out pass `micros` is 0: each pass has the same rows.

    The last rows are kept, those of `kept` micro-batches: after a death a worker also computes
    micro-batches of others, and finds them there. What lies further back is read again from the
    first row on.
    """

    def __init__(self, data: Any, what: str, rows: int, micros: int, kept: int) -> None:
        self.data = data
        self._what, self._rows, self._micros = what, rows, micros
        self._kept: deque[Any] = deque(maxlen=rows * kept)
        self._next = 0  # number of the row that comes after them
        self._iterator: Iterator[Any] = iter(())
        self.has_rows = False

    def __call__(self, seed: int, step: int, micro: int) -> Any:
        first = (step * self._micros + micro) * self._rows
        return default_collate(self.take(seed, first, self._rows))

    def take(self, seed: int, first: int, count: int) -> list[Any]:
        """Return so many rows of the stream, from that number on."""
        if first < self._next - len(self._kept):
            self._kept.clear()
            self._next, self._iterator = 0, iter(())
        while self._next < first + count:
            _seed_generator(seed, self._next)
            self._kept.append(self._take_next())
            self._next += 1
        skipped = first - (self._next - len(self._kept))
        return list(itertools.islice(self._kept, skipped, skipped + count))

    def _take_next(self) -> Any:
        row = next(self._iterator, _END)
        if row is _END:
            self._iterator = iter(self.data)
            row = next(self._iterator, _END)
        if row is _END and self.has_rows:
            raise ValueError(
                f"{self._what} has no rows when it begins again: expected that each iter() of it "
                "begins with the first row"
            )
        if row is _END:
            raise ValueError(f"{self._what} is empty: expected at least one row")
        self.has_rows = True
        return row
