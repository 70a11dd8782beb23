"""The extension module. Only the package itself calls it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

def read_job(path: str, overrides: Sequence[str]) -> dict[str, Any]: ...
def initial(name: str, shape: Sequence[int], deviation: float, seed: int) -> torch.Tensor: ...
def ask(coordinator: str, job: str, token: str, tls: str, wish: str) -> str: ...
def describe_file(folder: str, name: str) -> tuple[int, str]: ...
def served_parameters(
    paths: Sequence[str], stage: int, cards: Sequence[tuple[str, list[int], bool]]
) -> list[torch.Tensor]: ...
def file_batch(
    path: str, overrides: Sequence[str]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]: ...
def run(
    settings: dict[str, Any],
    stage: Callable[[int, int, bool], Any],
    batch: Callable[[bool, int, int], tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]]
    | None,
    stepped: Callable[[int, float, float | None, float], object] | None,
    digest: str,
) -> tuple[int, str]: ...
