"""Which bench a search gets: its own, or one with slots on the devices that it names."""

from collections.abc import Iterable
from dataclasses import replace

from kernelpro.bench import Bench
from kernelpro.errors import SettingsError
from kernelpro.isolation import Hooks
from kernelpro.judge.settings import JudgeSettings
from kernelpro.objective import Objective
from kernelpro.records import Problem
from kernelpro.search.overlap import Pace
from kernelpro.slots.bench import SlotBench
from kernelpro.slots.places import places
from kernelpro.slots.ray_cluster import Cluster, RayBench
from kernelpro.targets import Target
from kernelpro.targets.cuda import CudaTarget
from kernelpro.targets.nvrtc import Compiler

LOCAL, RAY = "local", "ray"
JOBS_PER_SLOT = 3
"""Candidates under way for each device where nobody says: one measured, one waiting, one in the
making. Own choice."""


def bench(
    problem: Problem,
    target: Target,
    hooks: Hooks,
    settings: JudgeSettings,
    *,
    devices: str | None = None,
    executor: str | None = None,
    objective: Objective | None = None,
    block: Iterable[str] = (),
) -> Bench | SlotBench:
    """A bench in this process, or one with a slot on each of the devices.

    Args:
        problem: what the candidates must compute.
        target: what they are made for.
        hooks: collectors and detectors.
        settings: the judge's settings.
        devices: see `places`; None for the current device.
        executor: `local`, `ray` or `ray:HOST:PORT`.
        objective: what the search is to find; speed by default.
        block: names of plugins to leave out.

    Raises:
        SettingsError: a device is not there, is named twice, or is no number; or there is no such
            executor.
        TargetError: there is no such cluster.
    """
    kind, _, address = (executor or LOCAL).partition(":")
    if kind not in (LOCAL, RAY) or (kind == LOCAL and address):
        raise SettingsError(
            f"no executor is called {executor!r}; there are local, ray and ray:HOST:PORT"
        )
    if problem.workloads and (devices is not None or kind == RAY):
        raise SettingsError(
            f"a workload mix such as {problem.name} is judged on one device of this machine; leave "
            "--devices and --executor out"
        )
    if kind == RAY:
        if devices is not None:
            raise SettingsError(
                "--devices names devices of this machine, but --executor ray takes those of a "
                "cluster; leave one of them out"
            )
        return RayBench(
            problem,
            target,
            Cluster(address, target.device),
            settings=settings,
            objective=objective,
            block=block,
        )
    if devices is None:
        return Bench(problem, target, hooks, settings=settings, objective=objective)
    where = places(devices, target.device)
    if target.device == "cuda":  # built for what the slots are, whatever else is in the machine
        target = CudaTarget(Compiler(where[0].environment))
    elif objective is not None and objective.weighs and len(where) > 1:
        raise SettingsError(
            "the CPU's energy counter counts whole packages, so several slots on one cannot be "
            f"weighed; give one to --devices, or leave --objective {objective.name} out"
        )
    return SlotBench(problem, target, where, settings=settings, objective=objective, block=block)


def elsewhere(executor: str | None) -> bool:
    """Whether an executor judges on other machines, so that this one need not be able to."""
    return (executor or LOCAL).partition(":")[0] == RAY


def pace(given: Pace, slots: int, *, asked: bool) -> Pace:
    """How many candidates are under way, with so many slots.

    Args:
        given: the settings.
        slots: devices.
        asked: whether somebody has said how many jobs.

    Raises:
        SettingsError: fewer jobs are asked for than there are devices.
    """
    if slots == 1 and (asked or given.jobs > 1):
        return given
    if asked and given.jobs < slots:
        raise SettingsError(
            f"--jobs must be at least the number of devices, {slots}, but is {given.jobs}; leave "
            "it out, or name fewer devices"
        )
    return given if asked else replace(given, jobs=max(given.jobs, JOBS_PER_SLOT * slots))
