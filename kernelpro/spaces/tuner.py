"""Kernel Tuner's strategies on a recorded space: its own simulation mode on its own cache file.

Kernel Tuner (van Werkhoven, 2019; package `kernel_tuner`, extra `bench`) reads the times from a
cache file made of the table. Numbers stay as they are; words are numbered in their order, since
some strategies do arithmetic with values. What cannot run is a restriction, which costs a strategy
nothing, as an illegal move costs the built-in proposer nothing.
"""

import importlib.util
import json
import random
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernelpro.spaces.table import Space, SpaceError, Values

MISSING = (
    "Kernel Tuner is not installed, so kernelpro's policies are shown alone; "
    "`pip install kernelpro[bench]` adds its strategies"
)

LEFT_OUT = {
    "brute_force": "it has no order",
    "skopt": "its package scikit-optimize is not maintained",
    "pyatf_strategies": "its package pyatf is not among Kernel Tuner's dependencies",
    "nsga2": "it is for several objectives",
    "nsga3": "it is for several objectives",
}
"""Strategies that are not compared, each with the reason."""

SLOW = {
    "basinhopping": "its finite differences ask for known points again and again: 10 to 30 s a run",
}
"""Strategies that are compared only when they are asked for by name, each with the reason."""

KERNEL = "schedule"


def installed() -> bool:
    """Whether Kernel Tuner can be imported."""
    return importlib.util.find_spec("kernel_tuner") is not None


def strategies() -> list[str]:
    """Names of the strategies that can be compared, slow ones included."""
    from kernel_tuner.interface import strategy_map

    return sorted(set(strategy_map) - set(LEFT_OUT))


def parameters(space: Space) -> dict[str, list[Any]]:
    """Kernel Tuner's tunable parameters: each knob's values, words as numbers."""
    return {
        knob: list(range(len(values))) if isinstance(values[0], str) else list(values)
        for knob, values in space.header.knobs.items()
    }


def encoded(space: Space, values: Values) -> Values:
    """A point's values as Kernel Tuner has them."""
    return tuple(
        allowed.index(value) if isinstance(value, str) else value
        for allowed, value in zip(space.header.knobs.values(), values, strict=True)
    )


def write_cache(space: Space, path: Path) -> Path:
    """Write a space as a cache file of Kernel Tuner; times in its unit, milliseconds."""
    names = list(space.header.knobs)
    cache: dict[str, dict[str, Any]] = {}
    for values, point in space.points.items():
        coded = encoded(space, values)
        entry: dict[str, Any] = dict(zip(names, coded, strict=True))
        entry["time"] = point.us / 1e3 if point.valid else "RuntimeFailedConfig"
        entry |= {"compile_time": 0.0, "verification_time": 0.0, "benchmark_time": 0.0}
        cache[",".join(map(str, coded))] = entry
    contents = {
        "device_name": space.header.device,
        "kernel_name": KERNEL,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": parameters(space),
        "objective": "time",
        "cache": cache,
    }
    path.write_text(json.dumps(contents), encoding="utf-8")
    return path


def run(
    space: Space, cache: Path, strategy: str, seed: int, evaluations: int, seconds: float
) -> list[float]:
    """Run a strategy and return the times of the points that it evaluated.

    Args:
        space: where.
        cache: the space as `write_cache` wrote it.
        strategy: its name.
        seed: of Python's and NumPy's generators, which the strategies draw from.
        evaluations: points to evaluate; fewer where the strategy ends before.
        seconds: wall time after which Kernel Tuner ends the run.

    Returns:
        Microseconds, in order, none twice; infinite where a point is not valid.

    Raises:
        SpaceError: the strategy fails.
    """
    import numpy as np

    names = list(space.header.knobs)
    legal = {encoded(space, values) for values in space.points}

    def restriction(point: dict[str, Any]) -> bool:
        return tuple(point[name] for name in names) in legal

    random.seed(seed)
    np.random.seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the numbers that its own optimizers meet
            import kernel_tuner

            results, _ = kernel_tuner.tune_kernel(
                KERNEL,
                f"void {KERNEL}() {{}}",
                1,
                [],
                parameters(space),
                restrictions=restriction,
                lang="C",
                simulation_mode=True,
                cache=str(cache),
                strategy=strategy,
                strategy_options={
                    "max_fevals": min(evaluations, len(space.points)),
                    "time_limit": seconds,
                },
                quiet=True,
                seed=seed,
            )
    except Exception as error:
        raise SpaceError(
            f"Kernel Tuner's strategy {strategy} failed on {space.name}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return _unique(results, names)[:evaluations]


def _unique(results: Iterable[dict[str, Any]], names: list[str]) -> list[float]:
    found: dict[Values, float] = {}
    for result in results:
        time = result.get("time")
        us = float("inf")
        if isinstance(time, float) and "__error__" not in result:
            us = time * 1e3
        found.setdefault(tuple(result[name] for name in names), us)
    return list(found.values())
