"""What package_data_test.py looks at, without a run: prints JSON, or a sentence for each refusal.

tokens FOLDER, streams, loaders, refusals   checks of one part each
ends FOLDER             a process with loaders, one of them busy for ever, that is killed
unguarded               a script that does not say what a loader must not run
train JOB FILE LOADERS  a worker's script, which learns the bytes of a file
"""
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import IterableDataset

import tenuto
from tenuto._data import Batches
from tenuto._evaluation import WholeSet, mean_of
from tenuto._model import cards_of, move_buffers
from tenuto._loaders import Forecast, is_loader

JOB = {"seed": 7, "steps": 4, "micro_rows": 2, "micros": 2, "pipelines": 2, "validate_micros": 3}


class Rows:
    """Draws from torch's generator in each row."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return torch.tensor([index, 0.5]) + torch.rand(2), torch.tensor(index)


class TooFew(Rows):
    """Has fewer rows than it says."""

    def __getitem__(self, index):
        return torch.zeros(3), [[1], [2]][index]


class Numbers(IterableDataset):
    def __init__(self, count):
        self.count = count
        self.taken = 0

    def __iter__(self):
        for number in range(self.count):
            self.taken += 1
            yield torch.tensor([number]), torch.rand(1)


class Once(IterableDataset):
    def __init__(self):
        self.rows = iter([(torch.zeros(1), torch.zeros(1))] * 3)

    def __iter__(self):
        return self.rows


class Windows(IterableDataset):
    """The rows of a data set as a stream."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return (self.rows[index] for index in range(len(self.rows)))


class Busy:
    """Computes for ever in the second iteration, and says so in a pipe with a name."""

    def __init__(self, path):
        self.path = path

    def __call__(self, seed, iteration, micro):
        if iteration > 0:
            with open(self.path, "w"):
                threading.Event().wait()
        return torch.zeros(2), torch.zeros(2)


def mixed(seed, iteration, micro):
    """Tensors of several types and shapes: views, without elements, without dimension."""
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6) + 100 * iteration + micro
    inputs = (whole.t()[1:4], whole.to(torch.bfloat16), torch.empty((0, 3)), torch.rand(2))
    return inputs, (torch.tensor(seed + micro), whole > 10, torch.tensor([1 + 2j]))


def fails(seed, iteration, micro):
    if (iteration, micro) == (2, 1):
        raise KeyError("no such picture")
    return torch.zeros(2), torch.full((2,), float(iteration))


def dies(seed, iteration, micro):
    if iteration == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return fails(seed, 0, micro)


def sparse(seed, iteration, micro):
    return torch.eye(2).to_sparse(), torch.zeros(2)


def refusal(call):
    try:
        call()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def same(one, other):
    for mine, yours in zip(one, other):
        assert len(mine) == len(yours)
        for a, b in zip(mine, yours):
            assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
            assert torch.equal(a, b), (a, b)


def tokens(folder):
    found = {}
    for name, kind in (("uint8", torch.uint8), ("uint16", torch.uint16), ("int32", torch.int32)):
        values = torch.tensor([0, 1, 200, 255, 7, 8, 9, 10, 11])
        if name != "uint8":
            values[2] = 60000
        path = pathlib.Path(folder, name)
        path.write_bytes(bytes(values.to(kind).view(torch.uint8).tolist()))
        one = tenuto.TokenFile(path, 4, name)
        other = tenuto.TokenFile(os.fspath(path), 3, dtype=kind)
        assert len(one) == 2 and len(other) == 2
        found[name] = [[part.tolist() for part in one[row]] for row in range(2)]
        assert [part.dtype for part in other[0]] == [torch.int64] * 2
    path = pathlib.Path(folder, "uint16")
    found["refused"] = [
        refusal(lambda: one[2]),
        refusal(lambda: one[-1]),
        refusal(lambda: tenuto.TokenFile(path, 9)),
        refusal(lambda: tenuto.TokenFile(path, 2, "int32")),
        refusal(lambda: tenuto.TokenFile(path, 2, torch.float32)),
        refusal(lambda: tenuto.TokenFile(path, 0)),
    ]
    # Loaders map the file themselves.
    here, there = (Batches(tenuto.TokenFile(path, 3), None, JOB, count) for count in (0, 1))
    with there.loading():
        for micro in range(4):
            same(here(False, 0, micro), there(False, 0, micro))
    return found


def streams():
    """The inputs of micro-batches of a stream, in whatever order they are asked for."""
    orders = {
        "forwards": [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 3)],
        "a replica": [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1)],
        "resumed": [(2, 0), (2, 1)],
        "back": [(0, 3), (0, 1), (2, 2), (2, 0), (0, 1)],
    }
    found, targets = {}, {}
    for name, keys in orders.items():
        data = Numbers(10)
        batches = Batches(data, Numbers(10), JOB)
        taken = {key: batches(False, *key) for key in keys}
        found[name] = [taken[key][0][0].flatten().tolist() for key in keys]
        for key in keys:
            same(targets.setdefault(key, taken[key]), taken[key])
        assert data.taken == {"forwards": 24, "a replica": 20, "resumed": 20, "back": 26}[name]
    held_out = [batches(True, step, micro)[0][0].flatten().tolist()
                for step in (0, 3) for micro in range(3)]
    whole = WholeSet(Numbers(5), JOB, None)
    once_each = Batches(None, whole, JOB)
    # Two workers of a pipeline ask for them in the one order, another one in the other order.
    evaluated = [once_each(True, 3, micro)[0][0].flatten().tolist()
                 for micro in (*range(whole.micros), 1)]
    weigh = whole.weigher(2)
    parts = [weigh(torch.tensor(loss), rows).item() for loss, rows in ((1.5, 2), (2.5, 2), (4., 1))]
    assert sum(parts) / 3 == mean_of([(1.5, 2), (2.5, 2), (4.0, 1)]) == 2.4, parts
    empty, once = Batches(Numbers(0), None, JOB), Batches(Once(), None, JOB)
    return {"found": found, "held_out": held_out, "evaluated": evaluated,
            "refused": [refusal(lambda: empty(False, 0, 0)), refusal(lambda: once(False, 0, 1))]}


def buffers():
    """Where the buffers of modules are once a stage computes on another device. Nothing computes on
    torch's "meta", but tensors move there as they move to an accelerator."""
    first, second = torch.nn.Module(), torch.nn.Module()
    shared = torch.ones(2, dtype=torch.int64)
    for module in (first, second):
        module.register_buffer("shared", shared)
    first.register_buffer("none", None)
    first.register_buffer("card", torch.ones(2))
    second.register_buffer("own", torch.ones(3), persistent=False)
    layers = [first, second]
    cards = cards_of(layers, 0, 2)
    move_buffers(layers, cards, "meta")
    return {"cards": [card.name for card in cards],
            "there": [(name, buffer.device.type) for layer in layers
                      for name, buffer in layer.named_buffers()],
            "one": first.shared is second.shared, "same": first.card is cards[0].tensor,
            "values": first.card.tolist()}


def forecast():
    says = Forecast(JOB)
    found = []
    # The second iteration is computed without the other replica; then a held-out pass begins.
    for key in ((False, 0, 1), (False, 0, 3), (False, 1, 1), (False, 1, 0), (False, 1, 2),
                (False, 1, 3), (False, 2, 1), (True, 2, 1), (False, 3, 1)):
        says.note(key)
        found.append(says.next(3))
    return found


def loaders():
    """Micro-batches made by 1 and by 3 loaders, against those made here; a held-out pass between.
    """
    keys = [(False, step, micro) for step in range(2) for micro in (0, 2)]
    keys += [(True, 1, micro) for micro in range(3)]
    keys += [(False, 3, 1), (False, 0, 0), (False, 2, 2), (False, 2, 2), (False, 2, 0)]
    for training, held_out in ((mixed, Rows()), (Rows(), Numbers(5)), (Numbers(9), mixed)):
        here = Batches(training, held_out, JOB)
        expected = [here(*key) for key in keys]
        for count in (1, 3):
            batches = Batches(training, held_out, JOB, count)
            with batches.loading():
                made = [batches(*key) for key in keys]
                children = multiprocessing.active_children()
                assert len(children) == count, children
            assert not multiprocessing.active_children()
            for one, other in zip(expected, made):
                same(one, other)
    return {"forecast": forecast()}


def refusals():
    found = []
    for data, count, keys in ((fails, 1, [(2, 0), (2, 1)]), (fails, 0, [(2, 1)]),
                              (dies, 1, [(0, 0), (1, 0)]), (sparse, 1, [(0, 0)]),
                              (TooFew(), 1, [(0, 0), (0, 1)]), (TooFew(), 0, [(0, 0), (0, 1)])):
        batches = Batches(data, None, JOB, count)
        with batches.loading():
            try:
                for key in keys:
                    batches(False, *key)
                found.append("nothing was refused")
            except (KeyError, RuntimeError, ValueError) as error:
                found.append(f"{type(error).__name__}: {error}")
    found += [
        refusal(lambda: Batches(lambda seed, iteration, micro: None, None, JOB, 1)),
        refusal(lambda: Batches(Rows(), open(__file__), JOB)),
        refusal(lambda: Batches(mixed, Busy(threading.Lock()), JOB, 2)),
        refusal(lambda: Batches(mixed, None, JOB, -1)),
        refusal(lambda: Batches(mixed, None, JOB, True)),
        refusal(lambda: Batches(None, None, JOB, 2)),
    ]
    return found


def ends(folder):
    path = os.path.join(folder, "busy")
    os.mkfifo(path)
    batches = Batches(Busy(path), None, JOB, 2)
    with batches.loading():
        batches(False, 0, 0)  # and the next iterations are made ahead
        with open(path) as busy:  # until a loader is busy
            assert busy.fileno() >= 0
            os.kill(os.getpid(), signal.SIGKILL)


def layers():
    return [nn.Embedding(256, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 256)]


def next_byte_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(job, file, count):
    rows = tenuto.TokenFile(file, 16, "uint8")
    pipeline = tenuto.Pipeline(layers, loss=next_byte_loss, config=job)
    pipeline.fit(rows, validation=Windows(rows), loaders=int(count))


CHECKS = {"tokens": tokens, "streams": streams, "loaders": loaders, "refusals": refusals,
          "ends": ends, "train": train, "buffers": buffers}
if sys.argv[1] == "unguarded":
    if is_loader():
        tenuto.Pipeline(torch.nn.Sequential(torch.nn.Linear(2, 2)), loss=mixed).fit(mixed)
    LOADING = Batches(mixed, None, JOB, 1)
    with LOADING.loading():
        print(refusal(lambda: LOADING(False, 0, 0)))
elif __name__ == "__main__":
    print(json.dumps(CHECKS[sys.argv[1]](*sys.argv[2:])))
