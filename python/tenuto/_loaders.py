"""Processes that make micro-batches ahead of the engine."""

from __future__ import annotations

import itertools
import math
import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, reduction
from multiprocessing.context import SpawnContext
from types import TracebackType
from typing import Any, Optional, Union

import torch

Tensors = tuple[torch.Tensor, ...]
Batch = tuple[Tensors, Tensors]  # inputs, targets
Key = tuple[bool, int, int]  # held_out, iteration, micro
# Of a batch in shared memory: type, shape and first byte of each tensor, and how many are inputs.
_Layout = tuple[list[tuple[torch.dtype, tuple[int, ...], int]], int]

_NAME = "tenuto-loader-"
_AHEAD = 2  # micro-batches that each loader makes before they are asked for
_ALIGNMENT = 64  # of a tensor in shared memory, bytes
# Seconds that the loaders have to end by themselves, and how long a dead one may take to be gone.
_END_LIMIT = 1.0
_GONE_LIMIT = 10.0


def is_loader() -> bool:
    """Return whether this process is a loader, which may be about to import the user's script."""
    return multiprocessing.current_process().name.startswith(_NAME)


class Forecast:
    """Says which micro-batches this worker will ask for next, from those that it has asked for.

    In an iteration a worker asks for the same ones as in the iteration before. In the first one it
    asks for every `pipelines`-th, from the first one on. Where the forecast is wrong, as after a
    death, a micro-batch comes later, but it is the same one.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._steps: int = job["steps"]
        self._pipelines: int = job["pipelines"]
        self._counts = (job["micros"] * job["pipelines"], job["validate_micros"])
        self._iterations = [-1, -1]  # of training, and of the held-out pass
        self._asked: list[list[int]] = [[], []]  # micro-batches of this iteration
        self._before: list[list[int]] = [[], []]  # and of the one before
        self._held_out = False

    def note(self, key: Key) -> None:
        """Take notice of what the worker asks for."""
        self._held_out, iteration, micro = key
        if iteration != self._iterations[self._held_out]:
            self._iterations[self._held_out] = iteration
            self._before[self._held_out] = self._asked[self._held_out]
            self._asked[self._held_out] = []
        if micro not in self._asked[self._held_out]:
            self._asked[self._held_out].append(micro)

    def next(self, count: int) -> list[Key]:
        """Return the next ones, at most `count` of the held-out pass and as many of training."""
        held_out = itertools.islice(self._rest(True), count) if self._held_out else ()
        training = itertools.islice(self._training(), count)
        return [*held_out, *training]

    def _usual(self, held_out: bool) -> list[int]:
        asked, before = self._asked[held_out], self._before[held_out]
        if not before and asked:
            before = list(range(asked[0] % self._pipelines, self._counts[held_out],
                                self._pipelines))
        return before + [micro for micro in asked if micro not in before]

    def _rest(self, held_out: bool) -> Iterator[Key]:
        for micro in self._usual(held_out):
            if micro not in self._asked[held_out]:
                yield (held_out, self._iterations[held_out], micro)

    def _training(self) -> Iterator[Key]:
        yield from self._rest(False)
        usual = self._usual(False)
        for iteration in range(self._iterations[False] + 1, self._steps):
            for micro in usual:
                yield (False, iteration, micro)


class Loaders:
    """`count` processes, each with a copy of what `pickled` holds, a function of Key that makes a
    Batch. Calling it gives what that function returns, whether or not it was made ahead.

    streams  whether training and the held-out pass read a stream: the first loader alone makes
             these micro-batches, because each reader reads the whole stream.

    A context: the processes end with it, and when this process ends in whatever way. They are
    started anew and not forked, because this process has threads. One thread calls at a time.
    """

    def __init__(
        self, count: int, pickled: bytes, job: Mapping[str, Any], streams: tuple[bool, bool]
    ) -> None:
        self._forecast = Forecast(job)
        self._streams = streams
        self._ready: dict[Key, Union[Batch, str]] = {}
        self._makers: dict[Key, _Loader] = {}  # of what has been asked for and is not ready
        self._loaders: list[_Loader] = []
        context = multiprocessing.get_context("spawn")
        memory = os.memfd_create("tenuto-data")
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(pickled)
            for number in range(count):
                self._loaders.append(_Loader(context, number, memory))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(memory)

    def __enter__(self) -> Loaders:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __call__(self, held_out: bool, iteration: int, micro: int) -> Batch:
        """Return a micro-batch, and have loaders make those that will be asked for next.

        Raises RuntimeError with a sentence: what the function has raised, or that a loader died.
        """
        key = (held_out, iteration, micro)
        self._forecast.note(key)
        wanted = [key, *self._forecast.next(_AHEAD * len(self._loaders))]
        for loader in self._loaders:
            while loader.has_news():
                self._take_from(loader)
        for known in [known for known in self._ready if known not in wanted]:
            del self._ready[known]
        for each in wanted:
            if each not in self._ready and each not in self._makers:
                self._makers[each] = self._choose(each)
                self._makers[each].ask(each)
        while key not in self._ready:
            self._take_from(self._makers[key])
        batch = self._ready.pop(key)
        if isinstance(batch, str):
            raise RuntimeError(batch)
        return batch

    def close(self) -> None:
        """End the processes."""
        for loader in self._loaders:
            loader.hang_up()
        end = time.monotonic() + _END_LIMIT
        for loader in self._loaders:
            loader.end(end)
        self._loaders.clear()

    def _choose(self, key: Key) -> _Loader:
        if self._streams[key[0]]:
            return self._loaders[0]
        return min(self._loaders, key=lambda loader: len(loader.asked))

    def _take_from(self, loader: _Loader) -> None:
        taken = loader.take()
        if taken is not None:
            key, batch = taken
            del self._makers[key]
            self._ready[key] = batch


class _Loader:
    """One process, as its parent sees it."""

    def __init__(self, context: SpawnContext, number: int, memory: int) -> None:
        self.asked: list[Key] = []  # and not answered yet; the answers come in this order
        self._number = number
        self._started = False
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs,), name=f"{_NAME}{number}", daemon=True
        )
        try:
            self._process.start()
        finally:
            theirs.close()
        try:
            reduction.send_handle(self._ours, memory, self._process.pid)
        except OSError:
            raise RuntimeError(self._how_it_ended()) from None

    def ask(self, key: Key) -> None:
        self.asked.append(key)
        try:
            self._ours.send(key)
        except OSError:
            raise RuntimeError(self._how_it_ended()) from None

    def has_news(self) -> bool:
        return bool(self.asked) and self._ours.poll()

    def take(self) -> Optional[tuple[Key, Union[Batch, str]]]:
        """Wait for what it says next: an answer, or None: that it has started."""
        try:
            said = self._ours.recv()
            if not self._started:
                if said is not None:
                    raise RuntimeError(said)
                self._started = True
                return None
            if isinstance(said, str):
                return self.asked.pop(0), said
            memory = reduction.recv_handle(self._ours)
        except (EOFError, OSError):
            raise RuntimeError(self._how_it_ended()) from None
        try:
            return self.asked.pop(0), _batch_in(memory, said)
        finally:
            os.close(memory)

    def hang_up(self) -> None:
        self._ours.close()

    def end(self, limit: float) -> None:
        """Wait until `limit`, a time of time.monotonic(), and then kill it."""
        self._process.join(max(0.0, limit - time.monotonic()))
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(_GONE_LIMIT)

    def _how_it_ended(self) -> str:
        self._process.join(_GONE_LIMIT)
        code = self._process.exitcode
        if code is None:
            how = "does not answer any more"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"has ended with exit code {code}"
        advice = "its last words are in the log of this worker"
        if code == -signal.SIGKILL:
            advice = "perhaps the memory was too small; try fewer loaders"
        elif not self._started:
            advice += (
                "; loaders import the script, so what starts the run must stand in it under "
                '`if __name__ == "__main__":`'
            )
        return f"loader {self._number} of the data (process {self._process.pid}) {how}: {advice}"


def _view(
    memory: torch.Tensor, kind: torch.dtype, shape: Sequence[int], first: int
) -> torch.Tensor:
    size = math.prod(shape) * kind.itemsize
    return memory[first : first + size].view(kind).view(shape)


def _map(memory: int) -> torch.Tensor:
    """Map a whole file of memory as bytes; it lives as long as the tensor."""
    size = os.fstat(memory).st_size
    return torch.from_file(f"/proc/self/fd/{memory}", shared=True, size=size, dtype=torch.uint8)


def _batch_in(memory: int, layout: _Layout) -> Batch:
    parts, inputs = layout
    whole = _map(memory)
    tensors = [_view(whole, *part) for part in parts]
    return tuple(tensors[:inputs]), tuple(tensors[inputs:])


def _share(batch: Batch) -> tuple[_Layout, int]:
    """Copy a batch into memory that another process can map; returns its descriptor."""
    tensors = [tensor.detach() for part in batch for tensor in part]
    parts = []
    size = 0
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise TypeError(
                f"the data set gives a tensor of layout {tensor.layout} on {tensor.device}: "
                "expected a dense one on the CPU"
            )
        parts.append((tensor.dtype, tuple(tensor.shape), size))
        size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    memory = os.memfd_create("tenuto-batch")
    try:
        os.ftruncate(memory, max(size, 1))
        whole = _map(memory)
        for tensor, part in zip(tensors, parts):
            _view(whole, *part).copy_(tensor)
    except BaseException:
        os.close(memory)
        raise
    return (parts, len(batch[0])), memory


def _serve(parent: connection.Connection) -> None:
    """Be a loader: make what the parent asks for, until it hangs up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the run ends after a step, and then we do
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    torch.set_num_threads(1)
    with parent:
        try:
            make = _received_function(parent)
            while True:
                _answer(parent, make, parent.recv())
        except (EOFError, ConnectionError):
            return  # the parent has hung up


def _end_with_parent() -> None:
    process = multiprocessing.parent_process()
    if process is not None:
        connection.wait([process.sentinel])
        os._exit(1)


def _received_function(parent: connection.Connection) -> Any:
    memory = reduction.recv_handle(parent)
    said = None
    make = None
    try:
        # Mapped, because all loaders share one position in the file.
        with mmap.mmap(memory, 0, access=mmap.ACCESS_READ) as pickled:
            make = pickle.loads(pickled)
    except Exception as error:  # whatever the user's classes raise
        said = f"a loader cannot make the data set again: {_sentence_of(error)}"
    finally:
        os.close(memory)
    parent.send(said)
    return make


def _answer(parent: connection.Connection, make: Any, key: Key) -> None:
    try:
        layout, memory = _share(make(*key))
    except Exception as error:  # whatever the user's functions raise
        parent.send(_sentence_of(error))
        return
    try:
        parent.send(layout)
        reduction.send_handle(parent, memory, None)
    finally:
        os.close(memory)


def _sentence_of(error: BaseException) -> str:
    # Not above: loaders that have nothing to tell do without the extension, which it imports.
    from ._stage import tell_exception

    return tell_exception(error, error.__traceback__)
