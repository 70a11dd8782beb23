"""Pipeline: a model, its loss and the settings of its training."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import nn

from . import _calls, _tenuto
from ._checkpoint import read_trained
from ._data import Batches, as_tensors, pair_of
from ._evaluation import WholeSet, found_loss, mean_of
from ._join import joined
from ._loaders import is_loader
from ._model import (
    ModelSource,
    Trace,
    build,
    cards_of,
    computing,
    state_of,
    ties_weights,
    title_of,
)
from ._optimizer import OptimizerSource, Rule, ScheduleSource, check_source
from ._place import Place, place_of
from ._stage import Stage, checked_loss

# How long a busy thread of the script may keep the engine's threads from Python. Python's own 5 ms
# would be several ops of a small stage; it costs nothing while nobody else is busy.
_SWITCH_SECONDS = 0.0005

Config = Union[str, "os.PathLike[str]", Mapping[str, Any], None]
Callback = Callable[[int, float], object]


class Step(NamedTuple):
    """A training step that has been done."""

    number: int  # from 0
    loss: float  # mean of the micro-batches whose last stage this worker has computed
    gradient_norm: Optional[float]  # global, before clipping; None: not known yet (staggered)
    learning_rate: float


class _Part(NamedTuple):
    """What a call of fit() or evaluate() takes part in a run with."""

    place: Optional[Place]  # None: `tenuto launch` gives it
    job: Mapping[str, Any]  # what read_job() says; "evaluates": it makes one held-out pass
    settings: list[str]  # "section.key=value"
    layers: list[nn.Module]
    example: Any  # the first micro-batch, or the largest one
    batches: Optional[Batches]  # None: the files of the job
    varies: bool  # micro-batches may be smaller than the example
    resume: Optional[bool] = None
    weigh: Optional[Callable[[torch.Tensor, int], torch.Tensor]] = None  # see Stage


class Pipeline:
    """A model that workers train together, each some of its layers on some of the data.

    model     an nn.Sequential, or a function without arguments that returns one or a list of
              modules. It is cut between modules; each gets what the one before it returns, a tensor
              or a tuple of them. The function is called in every worker under the job's seed.
    loss      a function of the model's outputs, then the targets; gives one number, the mean over
              the rows of a micro-batch.
    optimizer a function of parameters that makes an optimizer of them, such as torch.optim.RAdam or
              functools.partial(torch.optim.RAdam, lr=0.001). Each worker makes one of its stage.
              None: AdamW or SGD of the engine, as [optimizer] of the job says.
    schedule  a function of this optimizer that makes a torch.optim.lr_scheduler; or a function of
              the number of steps done that returns the learning rate. None: it stays as it is.
    config    a job file (TOML, docs/formats.md), or a mapping such as {"parallel": {"stages": 2}}.
    callbacks functions of (step, loss), called after each step in the workers that hold the last
              stage, with the mean loss of the micro-batches that this worker has computed.

    Errors: TypeError and ValueError with a sentence for a model, loss or setting that does not fit.
    """

    def __init__(
        self,
        model: ModelSource,
        *,
        loss: Callable[..., torch.Tensor],
        optimizer: Optional[OptimizerSource] = None,
        schedule: Optional[ScheduleSource] = None,
        config: Config = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._model = model
        self._loss = loss
        self._optimizer = optimizer
        self._schedule = schedule
        self._callbacks = tuple(callbacks)
        self._wishes: Optional[Callable[[str], str]] = None  # asks the coordinator of the run
        self._tell: Optional[Callable[[Step], object]] = None  # of a loop over steps
        self._job_file = ""
        self._overrides: list[str] = []
        if isinstance(config, Mapping):
            self._overrides = _overrides_of(config)
        elif config is not None:
            self._job_file = os.path.abspath(os.fspath(config))
        self._overrides += json.loads(os.environ.get("TENUTO_OVERRIDES", "[]"))
        self._overrides.append("model.kind=module")
        if not callable(loss):
            raise TypeError(f"loss is {type(loss).__name__}: expected a function")
        check_source(optimizer, schedule)
        if optimizer is not None:
            _expect_no_rule(self._overrides)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        return None

    def fit(
        self,
        dataset: Any = None,
        *,
        validation: Any = None,
        largest: Any = None,
        loaders: int = 0,
        resume: Optional[bool] = None,
    ) -> None:
        """Train, from the first step or a checkpoint to the job's last one.

        dataset     a function of (seed, iteration, micro) that returns the rows of one micro-batch
                    as (inputs, targets), each a tensor or a tuple of tensors; or a data set with
                    len() and items (input, target), of which every row is seen once before any is
                    seen again, in an order that the seed gives; or an IterableDataset of such
                    items, whose rows are taken in their order; or None: the job's data.paths.
        validation  the same, for the held-out pass, which the workers of the run compute every
                    job.validate_every steps with job.validate_micros micro-batches; None: there is
                    none, unless data.paths are given.
        largest     (inputs, targets) in the largest shapes that any micro-batch has, with any
                    values; micro-batches then need not all have the same shape, but as many
                    dimensions. None: all have the shapes of the first one.
        loaders     processes that make micro-batches before they are needed; 0: this process makes
                    each when it is needed. The micro-batches are the same.
        resume      True: go on from the newest checkpoint of the run, or begin if there is none;
                    `--overwrite` is refused. False: begin; `--resume` is refused. None: the flags
                    say it. A run of this name that is there already is never replaced without
                    `--overwrite`, unless it has left no checkpoint and this is True. Processes
                    that torchrun or Slurm starts again go on in any case.

        Returns when this worker's part is done. Otherwise the process ends with the exit code of
        `tenuto worker`. Raises RuntimeError when neither `tenuto launch` nor torchrun, Slurm or
        Kubernetes has started the script (docs/bring-your-model.md), and ValueError when their
        environment is set in part.
        """
        if resume is not None and not isinstance(resume, bool):
            raise TypeError(f"resume is {resume!r}: expected True, False or None")
        if _calls.is_done():
            _calls.again()
            return
        place = self._place()
        job = self._read_job()
        batches = Batches(dataset, validation, job, loaders)
        layers = build(self._model, job["seed"])
        settings = self._settings(layers)
        if dataset is not None and validation is None:
            settings.append("job.validate_micros=0")
        example = (
            batches(False, 0, 0)
            if dataset is not None
            else tuple(map(tuple, _tenuto.file_batch(self._job_file, settings)))
        )
        if largest is not None:
            example = pair_of(largest, "fit(largest=...)")
        self._take_part(
            _Part(
                place,
                job,
                settings,
                layers,
                example,
                None if dataset is None else batches,
                largest is not None,
                resume,
            )
        )
        _calls.note(None)

    def steps(
        self,
        dataset: Any = None,
        *,
        validation: Any = None,
        largest: Any = None,
        loaders: int = 0,
        resume: Optional[bool] = None,
    ) -> Iterator[Step]:
        """Train as fit() does, and yield each step once it is done.

        Workers that do not hold the last stage know no losses: they yield nothing, and the loop
        ends with the run. A loop that is left early calls stop() and waits for the end of the run,
        whose last state is then saved. Steps do not wait for the body of the loop, so the run may
        be some steps ahead of it.

        Raises what fit() raises.
        """
        news: queue.SimpleQueue[Union[Step, BaseException, None]] = queue.SimpleQueue()

        def train() -> None:
            try:
                self.fit(
                    dataset,
                    validation=validation,
                    largest=largest,
                    loaders=loaders,
                    resume=resume,
                )
            except BaseException as error:  # the loop raises it
                news.put(error)
            else:
                news.put(None)

        self._tell = news.put
        thread = threading.Thread(target=train, name="tenuto")
        thread.start()
        told: Union[Step, BaseException, None] = None
        try:
            while isinstance(told := news.get(), Step):
                yield told
            if told is not None:
                raise told
        finally:
            if isinstance(told, Step):  # the loop is left early
                try:
                    self.stop()
                except (RuntimeError, ValueError) as error:
                    # The run has just ended, or the coordinator is being replaced.
                    print(f"tenuto: {error}", file=sys.stderr, flush=True)
            thread.join()
            self._tell = None

    def stop(self) -> None:
        """End the run after the step under way, with a checkpoint; `--resume` goes on from it.

        For a callback or another thread of a worker, while fit() runs. The workers of all scripts
        stop. Raises RuntimeError when there is no run, and ValueError with a sentence when its
        coordinator cannot be asked.
        """
        self._wish("end")

    def checkpoint(self) -> None:
        """Have a checkpoint saved soon, while the run goes on. For whom, and errors: as stop()."""
        self._wish("checkpoint")

    def _wish(self, wish: str) -> None:
        if self._wishes is None:
            raise RuntimeError(
                "there is no run under way: call stop() and checkpoint() while fit() trains"
            )
        self._wishes(wish)

    def load(self, checkpoint: Union[str, os.PathLike[str]]) -> nn.Sequential:
        """Return the whole model with the parameters of a checkpoint, in this process.

        checkpoint  a folder checkpoint-STEP, or a run, of which the newest one is read.

        A model whose layers pass several tensors is called layer by layer. Raises ValueError when
        the checkpoint is of another model, and what load_checkpoint() raises.
        """
        return nn.Sequential(*self._trained(checkpoint, self._read_job())[0])

    def save(
        self, folder: Union[str, os.PathLike[str]], checkpoint: Union[str, os.PathLike[str]]
    ) -> int:
        """Write the trained model of a checkpoint into a folder, for programs without Tenuto.

        checkpoint  a folder checkpoint-STEP, or a run, of which the newest one is read.

        Writes model.pt, a state dict of the uncut model for torch.load(). The names are those of an
        nn.Sequential of the layers, or what their name_in_model() says. A first layer that has a
        method save_model(parameters, folder) writes the files itself: those of tenuto.huggingface
        write what from_pretrained() of transformers reads. Files of the same names are replaced.

        Returns the number of steps after which the checkpoint was taken. Raises what load() raises,
        and OSError when a file cannot be written.
        """
        layers, step = self._trained(checkpoint, self._read_job())
        os.makedirs(folder, exist_ok=True)
        save_model = getattr(layers[0], "save_model", None)
        if callable(save_model):
            cards = cards_of(layers, 0, len(layers))
            save_model({card.name: card.tensor.detach() for card in cards}, os.fspath(folder))
            return step
        path = os.path.join(folder, "model.pt")
        torch.save(state_of(layers), path + ".tmp")
        os.replace(path + ".tmp", path)
        return step

    def evaluate(
        self,
        dataset: Any,
        checkpoint: Union[str, os.PathLike[str], None] = None,
        *,
        micros: Optional[int] = None,
        largest: Any = None,
        in_process: bool = False,
    ) -> float:
        """Return the mean loss over a data set, with the parameters of a checkpoint.

        dataset     a data set with len(), or an IterableDataset that ends: each row counts once,
                    and one weighs as much as any other; or a function, as for fit(), of which the
                    micro-batches (seed, 0, 0) to (seed, 0, micros - 1) are taken.
        checkpoint  a folder checkpoint-STEP, or a run, of which the newest one is taken; None: the
                    run of this pipeline's job.
        largest     as for fit(); None: no micro-batch is larger than the first one.
        in_process  True: compute here, in a script that others have started, too.

        In a script that `tenuto launch`, torchrun, Slurm or Kubernetes has started, the stages and
        workers of the job compute the forwards together, so no worker needs the whole model. All
        workers call it, as they call fit(), and all get the loss, which has the same bits on any
        layout. A worker that dies is left out, and the pass begins again. After fit(), `tenuto
        launch` starts the script anew for it (docs/bring-your-model.md). Elsewhere this process
        computes the forwards alone.

        An IterableDataset is read once more to count its rows. Raises what load() and fit() raise,
        and TypeError and ValueError for data that does not fit.
        """
        shared = not in_process and self._has_workers()
        if shared and _calls.is_done():
            return _expect_loss(_calls.again())
        if shared and _calls.runs() > 0 and _calls.is_launched():
            _calls.end_and_start_anew()
        job = self._read_job()
        if checkpoint is None:
            checkpoint = os.path.join(job["directory"], job["name"])
        whole = WholeSet(dataset, job, micros)
        if not shared:
            return self._evaluate_here(whole, checkpoint, job)
        batches = Batches(None, whole, job)
        example = batches(True, 0, 0)
        weigh = whole.weigher(example[1][0].shape[0])
        if largest is not None:
            example = pair_of(largest, "evaluate(largest=...)")
        layers = build(self._model, job["seed"])
        job = {**job, "name": f"{job['name']}-evaluation", "evaluates": True}
        settings = self._settings(layers)
        settings += [
            f"job.name={job['name']}",
            f"job.evaluate={os.path.abspath(os.fspath(checkpoint))}",
            f"job.validate_micros={whole.micros}",
        ]
        place = None if _is_told_its_place() else place_of(os.environ)
        self._take_part(_Part(place, job, settings, layers, example, batches, True, weigh=weigh))
        loss = found_loss(os.path.join(job["directory"], job["name"]))
        _calls.note(loss)
        return loss

    @staticmethod
    def _has_workers() -> bool:
        """Return whether this script is one of several processes that evaluate together."""
        if is_loader():
            return False
        launched = _calls.is_launched() or _is_told_its_place()
        return launched or place_of(os.environ) is not None

    def _evaluate_here(
        self, whole: WholeSet, checkpoint: Union[str, os.PathLike[str]], job: Mapping[str, Any]
    ) -> float:
        layers, step = self._trained(checkpoint, job)
        for layer in layers:
            layer.eval()
        batches, precision = Batches(None, whole, job), job["precision"]
        losses = []
        with torch.no_grad():
            for micro in range(whole.micros):
                inputs, targets = batches(True, step, micro)
                for index, layer in enumerate(layers):
                    with computing(precision):
                        inputs = as_tensors(layer(*inputs), title_of(layers, index))
                with computing(precision):
                    loss = checked_loss(self._loss(*inputs, *targets))
                losses.append((loss.item(), targets[0].shape[0]))
        return mean_of(losses)

    def _settings(self, layers: Sequence[nn.Module]) -> list[str]:
        """Return the settings of the script and of its model."""
        tied = json.dumps(ties_weights(layers))
        return [*self._overrides, f"model.layers={len(layers)}", f"model.tied={tied}"]

    def _rule(self, layers: Sequence[nn.Module], steps: int) -> Optional[Rule]:
        """Try out the optimizer. Errors as Rule."""
        if self._optimizer is None:
            return None
        cards = cards_of(layers, 0, len(layers))
        shapes = {tuple(card.tensor.shape) for card in cards if card.trained}
        return Rule(self._optimizer, self._schedule, shapes, steps)

    def _take_part(self, part: _Part) -> None:
        """Take part in a run to its end; or say what it is, if the launcher asks, and end."""
        job, settings, precision = part.job, part.settings, part.job["precision"]
        describes = os.environ.get("TENUTO_DESCRIBE")
        inputs, targets = part.example
        trace = Trace(part.layers, inputs, precision)
        with torch.no_grad(), computing(precision):
            checked_loss(self._loss(*trace.outputs, *targets))
        digest = trace.finish(f"{job['seed']} {job['micro_rows']} {precision} {part.varies}")
        digest += f".{_script_digest()}"
        settings += [f"model.digest={digest}", f"device.message_bytes={trace.message_bytes()}"]
        rule = None if job["evaluates"] else self._rule(part.layers, job["steps"])
        if rule is not None:
            settings += ["optimizer.kind=torch", f"optimizer.rule={rule.title}"]
        if describes is not None:
            self._describe(describes, settings, part.resume)
            raise SystemExit(0)
        told: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if part.place is not None:
            told = joined(part.place, job, self._job_file, settings, part.resume, _calls.runs())
        _calls.note_run()
        with told:
            self._run(part, trace, digest, rule)

    def _place(self) -> Optional[Place]:
        """Return this process's place; None: `tenuto launch` gives it. RuntimeError without one."""
        if is_loader():
            raise RuntimeError(
                "fit() is called while a loader imports the script: put what starts the run under "
                '`if __name__ == "__main__":`'
            )
        if _is_told_its_place():
            return None
        # `tenuto launch` sets RANK and others too, and they stay when its run is done.
        place = None if _calls.runs() > 0 else place_of(os.environ)
        if place is None:
            raise RuntimeError(
                "fit() trains once in a script that `tenuto launch` has started: type "
                f"tenuto launch {sys.argv[0]}"
            )
        return place

    def _describe(self, path: str, settings: Sequence[str], resume: Optional[bool]) -> None:
        """Write what `tenuto launch` has asked for."""
        _tenuto.read_job(self._job_file, settings)
        with open(path, "w", encoding="utf-8") as file:
            said = {"job": self._job_file, "overrides": settings, "resume": resume}
            json.dump(said, file)

    def _read_job(self) -> dict[str, Any]:
        # More than any model has: the number of layers is not known before the seed is.
        job = _tenuto.read_job(self._job_file, [*self._overrides, "model.layers=100000"])
        return {**job, "evaluates": False}

    def _trained(
        self, checkpoint: Union[str, os.PathLike[str]], job: Mapping[str, Any]
    ) -> tuple[list[nn.Module], int]:
        """Return the layers with the parameters of a checkpoint, and the steps before it."""
        layers = build(self._model, job["seed"])
        state, step = read_trained(checkpoint, layers)
        cards = cards_of(layers, 0, len(layers))
        for card in cards:
            found = state.get(card.name)
            if found is None or found.shape != card.tensor.shape:
                was = "is missing" if found is None else f"has shape {list(found.shape)}"
                raise ValueError(
                    f"{os.fspath(checkpoint)} is of another model: {card.name} {was}, expected "
                    f"shape {list(card.tensor.shape)}"
                )
            with torch.no_grad():
                card.tensor.copy_(found)
        more = sorted(set(state) - {card.name for card in cards})
        if more:
            raise ValueError(
                f"{os.fspath(checkpoint)} is of another model: it has {more[0]}, which this model "
                "has not"
            )
        return layers, step

    def _run(self, part: _Part, trace: Trace, digest: str, rule: Optional[Rule]) -> None:
        job, batches = part.job, part.batches

        def stage(first: int, end: int, _last: bool) -> Stage:
            return Stage(
                build(self._model, job["seed"]),
                first,
                end,
                trace.cuts,
                self._loss,
                job["precision"],
                part.varies,
                part.weigh,
                job["device"],
                None if rule is None else rule.of_stage(),
            )

        def stepped(step: int, loss: float, norm: Optional[float], rate: float) -> None:
            if self._tell is not None:
                self._tell(Step(step, loss, norm, rate))
            for callback in self._callbacks:
                callback(step, loss)

        take = os.environ.pop
        settings = {
            "coordinator": take("TENUTO_COORDINATOR"),
            "job": take("TENUTO_JOB"),
            "token": take("TENUTO_TOKEN", ""),
            "tls": take("TENUTO_TLS", ""),
            "worker": int(take("TENUTO_WORKER")),
            "incarnation": int(take("TENUTO_INCARNATION", "0")),
            "parent": int(take("TENUTO_PARENT", "0")),
        }
        address = [settings[key] for key in ("coordinator", "job", "token", "tls")]
        self._wishes = lambda wish: _tenuto.ask(*address, wish)
        switch = sys.getswitchinterval()
        sys.setswitchinterval(min(switch, _SWITCH_SECONDS))
        try:
            with batches.loading() if batches is not None else contextlib.nullcontext():
                code, sentence = _tenuto.run(
                    settings,
                    stage=stage,
                    batch=batches,
                    stepped=stepped if self._callbacks or self._tell is not None else None,
                    digest=digest,
                )
        finally:
            self._wishes = None
            sys.setswitchinterval(switch)
        if code != 0:
            if sentence:
                print(f"tenuto: {sentence}", file=sys.stderr, flush=True)
            raise SystemExit(code)


def _expect_no_rule(overrides: Sequence[str]) -> None:
    """Raise ValueError if a setting would be without effect beside an optimizer of the script."""
    for one in overrides:
        key = one.partition("=")[0]
        if key.startswith("optimizer.") and key != "optimizer.clip":
            raise ValueError(
                f"{key} has no effect beside the optimizer that the script gives: leave it out, "
                "and give the value to the optimizer or to the schedule"
            )


def _is_told_its_place() -> bool:
    """Return whether `tenuto launch` has started this process for the next call."""
    return "TENUTO_DESCRIBE" in os.environ or "TENUTO_COORDINATOR" in os.environ


def _expect_loss(value: Optional[float]) -> float:
    if value is None:
        raise RuntimeError(
            "this call of evaluate() was a call of fit() in an earlier start of the script: "
            "expected the same calls in the same order each time"
        )
    return value


def _script_digest() -> str:
    """Return a digest of the script's code, whatever its comments; empty: it cannot be read."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            tree = ast.dump(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError):  # it has gone, or somebody is writing it
        return ""
    return hashlib.sha256(tree.encode()).hexdigest()


def _overrides_of(config: Mapping[str, Any]) -> list[str]:
    """Return the settings of a mapping of mappings as "section.key=value"."""
    found = []
    for section, keys in config.items():
        if not isinstance(keys, Mapping):
            raise TypeError(
                f"config[{section!r}] is {type(keys).__name__}: expected a mapping of keys, as a "
                "section of a job file; write tables in a list, such as [[fault]], in a job file"
            )
        for key, value in keys.items():
            text = value if isinstance(value, str) else json.dumps(value)
            found.append(f"{section}.{key}={text}")
    return found
