"""Optimizers and learning-rate schedules of PyTorch, by which the engine updates parameters.

The engine keeps the tensors of an optimizer's state, because it undoes updates, sends the state to
other workers and saves it. So an optimizer is tried out before a run: it must treat each element of
a parameter alone, and all that it knows must be in these tensors or follow from the number of
updates.
"""

from __future__ import annotations

import copy
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional, Union

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

# Makes the optimizer of the parameters that it is given.
OptimizerSource = Callable[[Iterable[nn.Parameter]], Optimizer]
# A scheduler of that optimizer; or the learning rate as a function of the number of steps.
ScheduleSource = Union[Callable[[Optimizer], LRScheduler], Callable[[float], float]]
# What each parameter group says beside its parameters.
_Options = list[dict[str, Any]]
_Tensors = list[torch.Tensor]

_TRIAL_STEPS = 4
_KEPT_STEPS = 4  # a step may be undone and taken again
_EXAMPLE = "functools.partial(torch.optim.Adam, lr=0.001)"


class Rule:
    """The optimizer and the schedule of a script, for a model with parameters of these shapes.

    `steps` is the number of steps of the run. The optimizer is tried out on parameters with as many
    dimensions and few elements.

    Raises TypeError and ValueError with a sentence for what the engine cannot use.
    """

    def __init__(
        self,
        optimizer: OptimizerSource,
        schedule: Optional[ScheduleSource],
        shapes: Iterable[Sequence[int]],
        steps: int,
    ) -> None:
        self._make = optimizer
        self._schedule = schedule
        # More than one element each, so that a state's tensors differ from its numbers.
        small = {tuple(min(max(size, 2), 5) for size in shape) or (2,) for shape in shapes}
        self._shapes = sorted(small) or [(2, 3), (2,)]
        made = self._optimizer_of([nn.Parameter(torch.ones(shape)) for shape in self._shapes])
        self._name = type(made).__name__
        self.title = f"{type(made).__module__}.{type(made).__qualname__}"
        course = _Course(schedule, made)
        self._trial_options = [
            course.options(min(step, steps - 1)) for step in range(_TRIAL_STEPS)
        ]
        self.tensors: list[str] = []
        self._try_out()

    def of_stage(self) -> StageRule:
        """Return the rule of one stage."""
        return StageRule(self._optimizer_of, self._schedule, self.tensors)

    def _optimizer_of(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Make the optimizer of these parameters, which must take all of them."""
        made = self._make(iter(parameters))
        if not isinstance(made, Optimizer):
            raise TypeError(
                f"optimizer(parameters) returns {type(made).__name__}: expected an optimizer of "
                f"torch.optim, as {_EXAMPLE} makes it"
            )
        taken = [id(each) for group in made.param_groups for each in group["params"]]
        if sorted(taken) != sorted(id(each) for each in parameters):
            raise ValueError(
                f"{type(made).__name__} takes {len(taken)} of the {len(parameters)} parameters "
                "that optimizer(parameters) was given: expected all of them; set requires_grad to "
                "False for a parameter that is not to be trained"
            )
        return made

    # --- The trial -----------------------------------------------------------------------------

    def _try_out(self) -> None:
        random = torch.Generator().manual_seed(1)

        def draw() -> _Tensors:
            return [torch.randn(shape, generator=random) for shape in self._shapes]

        values, others = draw(), draw()
        gradients = [draw() for _ in range(_TRIAL_STEPS)]
        is_kept = [each > 0 for each in draw()]

        def mixed(kept: _Tensors, other: _Tensors) -> _Tensors:
            return [torch.where(*each) for each in zip(is_kept, kept, other)]

        whole = self._train(values, gradients, self._trial_options)
        self.tensors = self._find_tensors(whole[1])
        changed = self._train(
            mixed(values, others), [mixed(each, draw()) for each in gradients], self._trial_options
        )
        for kept, one, other in zip(is_kept, self._elements(whole), self._elements(changed)):
            if any(not torch.equal(a[kept], b[kept]) for a, b in zip(one, other)):
                raise ValueError(
                    f"{self._name} lets elements of parameters depend on one another: expected an "
                    "optimizer that treats each element alone, such as Adam, RMSprop or SGD, "
                    "because parts of its state are sent to other workers while updates go on"
                )
        self._expect_repeatable(values, gradients, self._trial_options)
        if self._schedule is not None:  # whose options may change later than in the trial
            rising = [
                [{**group, "lr": group["lr"] * (1 + 0.25 * step)} for group in options]
                for step, options in enumerate(self._trial_options)
                if all("lr" in group for group in options)
            ]
            self._expect_repeatable(values, gradients, rising)

    def _train(
        self, values: _Tensors, gradients: Sequence[_Tensors], options: Sequence[_Options]
    ) -> tuple[list[nn.Parameter], Optimizer]:
        """Train in one go, without the engine."""
        parameters = [nn.Parameter(value.clone()) for value in values]
        optimizer = self._optimizer_of(parameters)
        for step, each in enumerate(gradients[: len(options)]):
            try:
                _take_step(optimizer, parameters, each, options[step])
            except Exception as error:
                raise ValueError(
                    f"{self._name} failed in a trial on parameters of shapes "
                    f"{', '.join(str(list(shape)) for shape in self._shapes)}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return parameters, optimizer

    def _find_tensors(self, optimizer: Optimizer) -> list[str]:
        """Return the names of the state's tensors. All else must be single numbers."""
        names = set()
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                is_tensor = isinstance(value, torch.Tensor)
                if is_tensor and value.shape == parameter.shape and value.dtype == torch.float32:
                    names.add(name)
                elif not _is_number(value):
                    what = type(value).__name__
                    if is_tensor:
                        what = f"{value.dtype} of shape {list(value.shape)}"
                    raise ValueError(
                        f"{self._name} keeps {name}, which is {what}, for a parameter of shape "
                        f"{list(parameter.shape)}: expected fp32 tensors of the parameter's shape "
                        "and single numbers"
                    )
        return sorted(names)

    def _elements(
        self, trained: tuple[list[nn.Parameter], Optimizer]
    ) -> Iterator[list[torch.Tensor]]:
        """Yield of each parameter its values and the tensors of its state."""
        parameters, optimizer = trained
        for parameter in parameters:
            state = optimizer.state[parameter]
            tensors = [state[name] for name in self.tensors if name in state]
            yield [parameter.detach(), *tensors]

    def _expect_repeatable(
        self, values: _Tensors, gradients: Sequence[_Tensors], options: Sequence[_Options]
    ) -> None:
        """Take each step with an optimizer that knows nothing but what the engine keeps."""
        whole, _ = self._train(values, gradients, options)
        parts = [value.clone() for value in values]
        state = [[torch.zeros_like(value) for _ in self.tensors] for value in values]
        for step, each in enumerate(gradients[: len(options)]):
            stage = self.of_stage()
            stage.bind(parts, state)
            stage.take(options[step], step + 1, each)
        if all(torch.equal(one.detach(), other) for one, other in zip(whole, parts)):
            return
        whose, advice = self._name, "take another optimizer"
        if self._schedule is not None:
            whose += " and its schedule"
            advice += ", or a schedule that changes less (cycle_momentum=False)"
        raise ValueError(
            f"{whose}: an update depends on more than the tensors of the state, the number of "
            "updates and the options of its step, so a worker that returns could not go on with "
            f"it: {advice}"
        )


class StageRule:
    """What updates the parameters of one stage. Threads of the engine call it."""

    def __init__(
        self,
        make: Callable[[Sequence[nn.Parameter]], Optimizer],
        schedule: Optional[ScheduleSource],
        tensors: Sequence[str],
    ) -> None:
        self.tensors = list(tensors)
        self._make = make
        self._schedule = schedule
        self._parameters: list[nn.Parameter] = []
        self._views: dict[nn.Parameter, dict[str, torch.Tensor]] = {}
        self._updates = 0  # that the optimizer's present state has seen

    def bind(self, values: _Tensors, states: Sequence[_Tensors]) -> None:
        """Begin with parameters whose memory, and that of their state, is the engine's."""
        self._parameters = [nn.Parameter(value) for value in values]
        for parameter, state in zip(self._parameters, states):
            self._views[parameter] = dict(zip(self.tensors, state))
        # A stage whose parameters are all frozen has nothing to update, but its steps have rates.
        self._optimizer = self._make(self._parameters or [nn.Parameter(torch.ones(2))])
        # Some optimizers are made with a state.
        self._begins = _copy_of(self._optimizer.state)
        self._course = _Course(self._schedule, self._optimizer)
        self._count = _Count(self._optimizer, self._begins, self.tensors)
        self._numbers: dict[int, _Options] = {}  # by the number of updates, the last ones

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, that of the first parameter group."""
        return float(self._course.options(step)[0].get("lr", 0.0))

    def update(self, step: int, updates: int, gradients: _Tensors) -> None:
        """Take the update of a step. Until then there have been `updates` - 1."""
        self.take(self._course.options(step), updates, gradients)

    def take(self, options: _Options, updates: int, gradients: _Tensors) -> None:
        """Take an update with these options."""
        if not self._parameters:
            return
        if updates == 1:
            self._optimizer.state = defaultdict(dict, _copy_of(self._begins))
        elif self._updates != updates - 1:
            self._set_state(updates - 1)
        _take_step(self._optimizer, self._parameters, gradients, options)
        with torch.no_grad():
            for parameter, views in self._views.items():
                _move_into(self._optimizer.state[parameter], views)
        self._updates = updates
        self._numbers[updates] = _numbers_of(self._optimizer, self.tensors)
        for old in [count for count in self._numbers if abs(count - updates) >= _KEPT_STEPS]:
            del self._numbers[old]

    def _set_state(self, updates: int) -> None:
        """Give the optimizer the state after so many updates, whose tensors the engine has set."""
        known = self._numbers.get(updates)
        numbers = self._count.after(updates) if known is None else known
        for group, each in zip(self._optimizer.param_groups, numbers):
            for parameter in group["params"]:
                views = self._views[parameter]
                self._optimizer.state[parameter] = {
                    name: views[name] if name in views else copy.deepcopy(value)
                    for name, value in each.items()
                }


class _Course:
    """The options of an optimizer's parameter groups, step by step."""

    def __init__(self, schedule: Optional[ScheduleSource], optimizer: Optimizer) -> None:
        self._schedule: Any = schedule
        self._twin = _twin_of(optimizer)
        self._base = _options_of(optimizer)
        self._known: dict[int, _Options] = {}  # the last steps
        self._scheduler: Optional[LRScheduler] = None
        self._is_function = schedule is not None and _is_function(schedule)

    def options(self, step: int) -> _Options:
        """Return the options of a step, counted from 0."""
        if self._schedule is None:
            return self._base
        if self._is_function:
            rate = float(self._schedule(float(step)))
            return [{**group, "lr": rate} for group in self._base]
        if step not in self._known:
            self._run_to(step)
        return self._known[step]

    def _run_to(self, step: int) -> None:
        """Run the scheduler to a step; it only runs forwards."""
        at = max(self._known, default=0)
        if self._scheduler is None or step < at:
            self._known.clear()
            at = 0
            self._scheduler = self._begin()
            self._known[0] = _options_of(self._scheduler.optimizer)
        for number in range(at + 1, step + 1):
            self._scheduler.optimizer.step()  # does nothing; schedulers warn if nobody calls it
            self._scheduler.step()
            self._known[number] = _options_of(self._scheduler.optimizer)
            self._known.pop(number - _KEPT_STEPS, None)

    def _begin(self) -> LRScheduler:
        twin = _twin_of(self._twin)
        twin.step = types.MethodType(_no_step, twin)  # type: ignore[method-assign]
        made = self._schedule(twin)
        if isinstance(made, ReduceLROnPlateau):
            raise ValueError(
                "ReduceLROnPlateau changes the learning rate by a measured value, which a run that "
                "goes on elsewhere does not have: take a schedule that depends on the step alone"
            )
        if not isinstance(made, LRScheduler):
            raise TypeError(
                f"schedule(optimizer) returns {type(made).__name__}: expected a scheduler of "
                "torch.optim.lr_scheduler; or make schedule a function of the number of steps that "
                "returns the learning rate"
            )
        return made


class _Count:
    """The numbers of an optimizer's state as a function of the number of updates.

    They are those of a twin that takes updates of its own.
    """

    def __init__(
        self, optimizer: Optimizer, begins: dict[Any, dict[str, Any]], tensors: Sequence[str]
    ) -> None:
        self._template = _twin_of(optimizer)
        self._begins = [
            begins.get(group["params"][0], {}) if group["params"] else {}
            for group in optimizer.param_groups
        ]
        self._tensors = tensors
        self._twin: Optional[Optimizer] = None
        self._updates = 0

    def after(self, updates: int) -> _Options:
        """Return the numbers after so many updates. Takes about 50 us for each of them."""
        if self._twin is None or updates < self._updates:
            self._twin, self._updates = self._begin(), 0
        while self._updates < updates:
            for group in self._twin.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.ones_like(parameter)
            self._twin.step()
            self._updates += 1
        return _numbers_of(self._twin, ())

    def _begin(self) -> Optimizer:
        twin = _twin_of(self._template)
        for group, begins in zip(twin.param_groups, self._begins):
            for small in group["params"]:
                twin.state[small] = {
                    name: torch.full_like(small, float(value.flatten()[0]), requires_grad=False)
                    if name in self._tensors
                    else copy.deepcopy(value)
                    for name, value in begins.items()
                }
        return twin


def check_source(optimizer: Any, schedule: Any) -> None:
    """Raise TypeError if a script gives an optimizer or a scheduler itself, or something else."""
    advice = "because each worker makes that of its own stage"
    if optimizer is not None and (isinstance(optimizer, Optimizer) or not callable(optimizer)):
        raise TypeError(
            f"optimizer is {type(optimizer).__name__}: expected a class of torch.optim, or a "
            f"function of parameters that makes one, such as {_EXAMPLE}, {advice}"
        )
    if schedule is None:
        return
    if isinstance(schedule, LRScheduler) or not callable(schedule):
        raise TypeError(
            f"schedule is {type(schedule).__name__}: expected a class of torch.optim.lr_scheduler, "
            "or a function of an optimizer that makes a scheduler, or one of the number of steps "
            f"that returns the learning rate, {advice}"
        )
    if optimizer is None:
        raise TypeError(
            "schedule is given without an optimizer: give both, or set optimizer.schedule, "
            "optimizer.warm_up_steps and optimizer.minimum_rate in the job"
        )


def _take_step(
    optimizer: Optimizer, parameters: Iterable[nn.Parameter], gradients: _Tensors, options: _Options
) -> None:
    for group, own in zip(optimizer.param_groups, options):
        group.update(own)
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    optimizer.step()
    for parameter in parameters:
        parameter.grad = None


def _move_into(state: dict[str, Any], views: dict[str, torch.Tensor]) -> None:
    """Copy the tensors of a state into the engine's memory, unless they are there already."""
    for name, view in views.items():
        made = state.get(name)
        if made is not None and made is not view:
            view.copy_(made)
            state[name] = view


def _copy_of(states: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {parameter: copy.deepcopy(state) for parameter, state in states.items()}


def _options_of(optimizer: Optimizer) -> _Options:
    return [
        {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]


def _numbers_of(optimizer: Optimizer, tensors: Sequence[str]) -> _Options:
    """Return of each group the state of its first parameter; of the tensors only the names."""
    return [
        {
            name: None if name in tensors else copy.deepcopy(value)
            for group_state in [optimizer.state[group["params"][0]]]
            for name, value in group_state.items()
        }
        if group["params"]
        else {}
        for group in optimizer.param_groups
    ]


def _twin_of(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer with the same options, no state, and a small parameter for each group."""
    twin: Optimizer = object.__new__(type(optimizer))
    twin.__dict__.update(optimizer.__dict__)
    twin.state = defaultdict(dict)
    twin.param_groups = []
    for group, options in zip(optimizer.param_groups, _options_of(optimizer)):
        dimensions = [max(1, each.dim()) for each in group["params"][:1]]
        small = [nn.Parameter(torch.ones([2] + [1] * (count - 1))) for count in dimensions]
        twin.param_groups.append({**options, "params": small})
    return twin


def _no_step(_self: Optimizer, _closure: Any = None) -> None:
    pass


def _is_function(schedule: Any) -> bool:
    """Return whether a schedule is a function of the number of steps, not of an optimizer."""
    try:
        value = schedule(0.0)
    except Exception:  # schedulers refuse a number as their optimizer
        return False
    return _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return value is None or isinstance(value, (bool, int, float))
