"""A worker of torch.distributed.pipelining whose stages sleep: sleeping_stages.py SELF WORKERS PORT

It prints "ready". Then each line of its input is a request, one JSON object with the keys schedule,
micros, op_ms (of a worker's forward, input gradient and weight gradient; stages of a worker share
it), speeds (of each worker), link and delay_ms (of the messages between workers link and link + 1,
both ways), elements (of a message), steps. It answers with the moments at which its steps ended, in
seconds.

A message has the time at which it was sent. If it comes over the slow link, the receiver waits with
it until it has been on its way for delay_ms, as Tenuto's workers do with their slow-link fault. The
sender does not wait. The weight gradient is PyTorch's dw_builder, which saves PyTorch the second
pass of autograd in schedules with a split backward.
"""
import json
import os
import sys
import time
import warnings

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides warnings that hosts have no names
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402: the warning comes with the import
from torch import nn  # noqa: E402

from common import sharpen_timer  # noqa: E402
from torch_schedules import (SCHEDULES, chunks_of, join, make_schedule, make_stage,  # noqa: E402
                             stages_of, worker_of)


def receive(values, delay):
    """Waits until a message has been under way for `delay` seconds."""
    if delay > 0:
        time.sleep(max(0.0, values[0, 0].item() + delay - time.monotonic()))


def message(values):
    """A message of the same shape, sent now."""
    sent = values.clone(memory_format=torch.contiguous_format)
    sent[0, 0] = time.monotonic()
    return sent


def sleep(seconds):
    """Sleeps as Tenuto's paced device does (src/rehearsal/paced.cc): awake for the last hundredth,
    at most 100 us, so that waking up delays nothing."""
    end = time.monotonic() + seconds
    time.sleep(seconds - min(seconds / 100, 100e-6))
    while time.monotonic() < end:
        pass


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, _weight, stage):
        ctx.stage = stage
        receive(values, stage.delay_before)
        sleep(stage.op)
        return message(values)

    @staticmethod
    def backward(ctx, gradient):
        receive(gradient, ctx.stage.delay_behind)
        sleep(ctx.stage.op)
        return message(gradient), None, None


class Stage(nn.Module):
    """`op`: seconds of an op. `delay_before`, `delay_behind`: of messages from the stage before and
    from the stage behind it."""

    def __init__(self, op, delay_before, delay_behind):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))  # without one, there would be no backward
        self.op, self.delay_before, self.delay_behind = op, delay_before, delay_behind

    def forward(self, values):
        return Sleep.apply(values, self.weight, self)

    def weight_gradient(self):
        sleep(self.op)


def sleeping_stage(number, own, workers, request):
    name = request["schedule"]
    count = chunks_of(name) * workers

    def delay_to(other):
        if not 0 <= other < count or request["link"] is None:
            return 0.0
        ends = {own, worker_of(name, other, workers)}
        return request["delay_ms"] / 1e3 if ends == {request["link"], request["link"] + 1} else 0.0

    op = request["op_ms"] / 1e3 / chunks_of(name) / request["speeds"][own]
    module = Stage(op, delay_to(number - 1), delay_to(number + 1))
    shapes = [torch.zeros(1, request["elements"], dtype=torch.float64) for _ in range(2)]
    return make_stage(module, number, count, shapes, dw_builder=lambda: module.weight_gradient)


def run(own, workers, request):
    name, micros = request["schedule"], request["micros"]
    numbers = stages_of(name, own, workers)
    last = chunks_of(name) * workers - 1
    schedule = make_schedule(name, [sleeping_stage(number, own, workers, request)
                                    for number in numbers], micros,
                             lambda output, _: output.sum())
    inputs = [torch.zeros(micros, request["elements"], dtype=torch.float64)] if 0 in numbers else []
    more = {"target": torch.zeros(micros, 1)} if last in numbers else {}
    ends = []
    for _ in range(request["steps"]):
        schedule.step(*inputs, return_outputs=False, **more)
        ends.append(time.monotonic())
    return ends


def main():
    own, workers, port = map(int, sys.argv[1:])
    sharpen_timer()
    join(own, workers, port)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["schedule"] not in SCHEDULES:
            sys.exit(f"schedule is '{request['schedule']}': expected one of {sorted(SCHEDULES)}")
        ends = run(own, workers, request)
        torch.distributed.barrier()
        print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()
