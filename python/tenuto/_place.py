"""The place of a process among those that torchrun, Slurm or Kubernetes has started together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

# Where the coordinator listens in a pod, which has all ports for itself.
_POD_PORT = 7000
# Ports for jobs of Slurm: above those of known services, below those that the kernel gives away.
_FIRST_PORT, _PORTS = 20000, 12000


class Place(NamedTuple):
    """Which worker this process is, and where the coordinator of all of them is."""

    rank: int  # from 0; that of rank 0 starts the coordinator
    count: int  # of all processes
    host: str  # that of rank 0
    port: int  # of the coordinator; 0: rank 0 chooses one, and tells it through torch's store
    restarts: int  # how often all of them have been started again
    system: str  # "torchrun", "Slurm" or "Kubernetes"

    @property
    def starts_coordinator(self) -> bool:
        """True in the one process that starts the coordinator."""
        return self.rank == 0


def place_of(environment: Mapping[str, str]) -> Optional[Place]:
    """Return the place that an environment states; None: nobody has started several processes.

    The innermost system counts: torchrun may itself be started by Slurm or in a pod. The processes
    of Slurm are those of srun: the script of sbatch has a place of its own in nothing.

    Errors: ValueError with a sentence for an environment that is set in part or has a wrong value.
    """
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _under_torchrun(environment)
    if "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment:
        return _under_slurm(environment)
    if "JOB_COMPLETION_INDEX" in environment:
        return _in_pod(environment)
    return None


def first_host(nodes: str) -> str:
    """Return the first host of a list of Slurm's: "node03" of "node[03-05,9],other".

    Errors: ValueError with a sentence for a list with brackets that do not match.
    """
    depth, end = 0, len(nodes)
    for index, letter in enumerate(nodes):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            end = index
            break
    host = re.sub(r"\[([^],\-\[]+)[^]\[]*\]", r"\1", nodes[:end])
    if not host or "[" in host or "]" in host:
        raise ValueError(
            f"the list of nodes '{nodes}' cannot be read: expected such as node[03-05,9],other"
        )
    return host


def check_count(place: Place, job: Mapping[str, Any]) -> None:
    """Raise ValueError with a sentence when a job has another number of workers than processes."""
    workers = job["stages"] * job["pipelines"]
    if workers != place.count:
        raise ValueError(
            f"{place.system} has started {place.count} processes, and the job has {workers} "
            f"workers (parallel.stages {job['stages']} x parallel.pipelines {job['pipelines']}): "
            f"start {workers}, or change the job"
        )


def flags_of(
    flags: Sequence[str], restarts: int, newest: Optional[int], resume: Optional[bool] = None
) -> list[str]:
    """Return the flags of the coordinator, whether this is the first start or another one.

    flags     TENUTO_FLAGS; its --resume means: go on if there is a checkpoint, else begin
    restarts  how often all processes have been started again
    newest    step of the newest checkpoint of the run; None: there is none
    resume    what the script has given to fit(); beginning_of in src/app/launch_script.cc has the
              same rule for `tenuto launch`

    Raises ValueError with a sentence when a flag says the opposite of `resume`.
    """
    for said, flag, does in ((True, "--overwrite", "replaces"), (False, "--resume", "continues")):
        if resume is said and flag in flags:
            raise ValueError(
                f"the script says fit(resume={said}), and {flag} in TENUTO_FLAGS {does} the run: "
                "leave one of them out"
            )
    others = [flag for flag in flags if flag not in ("--resume", "--overwrite")]
    if restarts > 0 or (resume and "--resume" not in flags):
        # All workers are new, so no worker waits for a coordinator: a step is named for that.
        if newest is None:
            return [*others, "--overwrite"]
        return [*others, "--resume", "--from-step", str(newest)]
    if "--resume" in flags and newest is None:
        return others
    return list(flags)


def flags_of_evaluation(flags: Sequence[str]) -> list[str]:
    """Return the flags of the coordinator of an evaluation: it replaces the one before it."""
    others = [flag for flag in flags if flag not in ("--resume", "--overwrite")]
    return [*others, "--overwrite"]


def is_done(flags: Sequence[str], newest: Optional[int], steps: int) -> bool:
    """Return whether a run has no step left. `flags` and `newest` are what flags_of() gives, takes.

    The coordinator then ends before anybody can join it.
    """
    if newest is None or newest < steps or "--resume" not in flags:
        return False
    names_newest = list(flags[-2:]) == ["--from-step", str(newest)]
    return names_newest or not any(flag.startswith("--from-step") for flag in flags)


def _under_torchrun(environment: Mapping[str, str]) -> Place:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    _need(environment, names, "torchrun", "start the script with torchrun, or unset them all")
    _port(environment, "MASTER_PORT")
    return _checked(
        Place(
            rank=_number(environment, "RANK"),
            count=_number(environment, "WORLD_SIZE"),
            host=environment["MASTER_ADDR"],
            port=_port(environment, "TENUTO_PORT", 0),
            restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
            system="torchrun",
        ),
        ("RANK", "WORLD_SIZE"),
    )


def _under_slurm(environment: Mapping[str, str]) -> Place:
    count = _one_of(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = _one_of(environment, "SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")
    names = ("SLURM_PROCID", count, nodes, "SLURM_JOB_ID")
    _need(environment, names, "Slurm", "start the script with srun")
    # Steps of a job may run at the same time.
    job, step = _number(environment, "SLURM_JOB_ID"), _number(environment, "SLURM_STEP_ID")
    port = _FIRST_PORT + (job * 16 + step) % _PORTS
    return _checked(
        Place(
            rank=_number(environment, "SLURM_PROCID"),
            count=_number(environment, count),
            host=first_host(environment[nodes]),
            port=_port(environment, "TENUTO_PORT", port),
            restarts=_number(environment, "SLURM_RESTART_COUNT", 0),
            system="Slurm",
        ),
        ("SLURM_PROCID", count),
    )


def _in_pod(environment: Mapping[str, str]) -> Place:
    names = ("JOB_COMPLETION_INDEX", "TENUTO_COUNT", "TENUTO_HOST")
    advice = (
        "set TENUTO_COUNT to the job's completions, and TENUTO_HOST to the name of its first pod "
        "in a headless service, as examples/kubernetes.yaml does"
    )
    _need(environment, names, "Kubernetes", advice)
    return _checked(
        Place(
            rank=_number(environment, "JOB_COMPLETION_INDEX"),
            count=_number(environment, "TENUTO_COUNT"),
            host=environment["TENUTO_HOST"],
            port=_port(environment, "TENUTO_PORT", _POD_PORT),
            restarts=0,  # pods are started again one by one, and not all together
            system="Kubernetes",
        ),
        ("JOB_COMPLETION_INDEX", "TENUTO_COUNT"),
    )


def _one_of(environment: Mapping[str, str], *names: str) -> str:
    """Return the first of these names that is set, or else the first one."""
    return next((name for name in names if name in environment), names[0])


def _need(
    environment: Mapping[str, str], names: tuple[str, ...], system: str, advice: str
) -> None:
    missing = [name for name in names if not environment.get(name)]
    if not missing:
        return
    there = [name for name in names if environment.get(name)]
    raise ValueError(
        f"the environment is that of {system} in part: {' and '.join(missing)} missing, "
        f"{' and '.join(there) or 'none'} set: {advice}"
    )


def _number(environment: Mapping[str, str], name: str, without: Optional[int] = None) -> int:
    text = environment.get(name, "")
    if not text and without is not None:
        return without
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{name} is '{text}' in the environment: expected a number from 0")
    return int(text)


def _port(environment: Mapping[str, str], name: str, without: Optional[int] = None) -> int:
    port = _number(environment, name, without)
    if port > 65535:
        raise ValueError(f"{name} is {port} in the environment: expected a port, at most 65535")
    return port


def _checked(place: Place, names: tuple[str, str]) -> Place:
    if place.rank < place.count:
        return place
    raise ValueError(
        f"{names[0]} is {place.rank} in the environment, and {names[1]} is {place.count}: expected "
        "numbers from 0 to one less than the count"
    )
