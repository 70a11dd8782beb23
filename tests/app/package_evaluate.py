"""A script of evaluate_test.py: JOB, numbers of rows as 11,2, and a run to evaluate.

Without a run it trains first. For each number it prints the loss over so many rows, in hexadecimal
digits, so that the text has all bits.
"""
import sys

import package_model
import torch
from torch.utils.data import IterableDataset

import tenuto


class Counted:
    """The first rows of a data set, which has 24."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return package_model.Rows()[index]


class Streamed(IterableDataset):
    """The same rows as a stream."""

    def __init__(self, count):
        super().__init__()
        self._count = count

    def __iter__(self):
        return iter([package_model.Rows()[index] for index in range(self._count)])


def main():
    job, counts, *run = sys.argv[1:]
    model, loss, data = package_model.MODELS["rows"]
    pipeline = tenuto.Pipeline(model, loss=loss, config=job)
    if not run:
        pipeline.fit(data)
    for text in counts.split(","):
        count = int(text.removeprefix("stream-"))
        rows = Streamed(count) if text.startswith("stream-") else Counted(count)
        print(f"evaluated {text} {pipeline.evaluate(rows, *run).hex()}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
