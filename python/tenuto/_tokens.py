"""A file of tokens as a data set."""

from __future__ import annotations

import os
from typing import Any, Union

import torch
from torch.utils.data import Dataset

# The type with which a file is mapped. torch computes little with uint16, so these tokens are read
# as signed numbers of the same size, and the mask makes them positive again.
_MAPPED = {"uint8": torch.uint8, "uint16": torch.int16, "int32": torch.int32}
_MASKS = {"uint16": 0xFFFF}


class TokenFile(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A file of tokens, one after the other and nothing else, as rows of `length` tokens.

    path    the file, in the byte order of the machine. It is mapped into memory, so it may be
            larger than the memory, and the processes of a machine share what they have read of it.
            It must not change while it is used.
    length  how many tokens a row has.
    dtype   "uint8", "uint16" or "int32", or torch's type of that name: the type in the file.

    Row i is (inputs, targets), both int64 [length]: the tokens from i * length on, and those from
    i * length + 1 on. Rows do not overlap. What is left at the end of the file is not used.

    Raises OSError when the file cannot be read, and ValueError with a sentence for a file, length
    or dtype that does not fit.
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        length: int,
        dtype: Union[str, torch.dtype] = "uint16",
    ) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._type = str(dtype).split(".")[-1]
        if self._type not in _MAPPED:
            raise ValueError(f"dtype is {dtype}: expected one of {', '.join(_MAPPED)}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length is {length!r}: expected a number of tokens, 1 or more")
        self._length = length
        mapped = _MAPPED[self._type]
        size = os.stat(self._path).st_size
        if size % mapped.itemsize != 0:
            raise ValueError(
                f"{self._path} has {size} bytes, which is no multiple of {mapped.itemsize}, the "
                f"size of a token of type {self._type}: give the dtype with which it was written"
            )
        count = size // mapped.itemsize
        if count <= length:
            raise ValueError(
                f"{self._path} has {count} tokens: expected at least {length + 1}, which is one "
                "row and the token after it; give a smaller length or a longer file"
            )
        self._rows = (count - 1) // length
        self._tokens = torch.from_file(self._path, shared=False, size=count, dtype=mapped)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < self._rows:
            raise IndexError(f"row {index} of {self._path}, which has rows 0 to {self._rows - 1}")
        first = index * self._length
        tokens = self._tokens[first : first + self._length + 1].to(torch.int64)
        mask = _MASKS.get(self._type)
        if mask is not None:
            tokens &= mask
        return tokens[:-1], tokens[1:]

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the file itself.
        return type(self), (self._path, self._length, self._type)
