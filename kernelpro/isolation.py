"""Call hooks one plugin at a time, so that a faulty one is named, muted and stops nothing.

Knows no plugin by name. A plugin that raises in one hook is not asked for that hook again in the
same run; its other hooks go on.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import pluggy

from kernelpro.errors import PluginError
from kernelpro.hookspecs import Session
from kernelpro.manager import origin
from kernelpro.records import (
    Candidate,
    Detector,
    Evaluation,
    Kernel,
    Metric,
    Problem,
    Profile,
    Proposal,
    Step,
)


class Hooks:
    """The hooks of a plugin manager, with each plugin's faults kept to itself.

    Attributes:
        complaints: one sentence for each plugin and hook that failed, oldest first.
    """

    def __init__(self, plugins: pluggy.PluginManager, complaints: list[str] | None = None) -> None:
        self.plugins = plugins
        self.complaints = complaints if complaints is not None else []
        self._muted: set[tuple[str, str]] = set()

    def origins(self) -> dict[str, str]:
        """Where each plugin comes from, by its name: its distribution and version."""
        return {name: origin(self.plugins, name) for name, _ in self.plugins.list_name_plugin()}

    def detectors(self) -> list[tuple[str, Detector]]:
        """Every detector with its plugin's name; of two with one name the first is kept."""
        found: dict[str, tuple[str, Detector]] = {}
        for plugin, answer in self._ask("detectors"):
            for detector in answer:
                if not isinstance(detector, Detector):
                    self._mute(plugin, "detectors", f"gave {detector!r:.80}, which is no Detector")
                elif detector.name in found:
                    self._complain(
                        f"plugin {plugin!r} gives a detector {detector.name!r}, but "
                        f"{found[detector.name][0]!r} has one of that name; the second is left out"
                    )
                else:
                    found[detector.name] = (plugin, detector)
        return list(found.values())

    def policies(self) -> list[type]:
        """Every search policy that plugins give; of two with one name the first is kept."""
        found: dict[str, type] = {}
        for plugin, answer in self._ask("policies"):
            for policy in answer:
                if not _is_policy(policy):
                    self._mute(
                        plugin,
                        "policies",
                        f"gave {policy!r:.80}, which is no frozen dataclass with a name and a "
                        "method select",
                    )
                else:
                    found.setdefault(policy.name, policy)
        return list(found.values())

    def collect(
        self,
        problem: Problem,
        candidate: Candidate,
        evaluation: Evaluation,
        names: frozenset[str],
        session: Session,
    ) -> Profile:
        """Merge what every collector measured; the first to give a value for a name wins.

        Kernels are joined by their names; the first collector to name one says its share.
        """
        metrics: dict[str, Metric] = {}
        launches: tuple[Any, ...] = ()
        kernels: dict[str, Kernel] = {}
        for plugin, answer in self._ask(
            "collect_metrics",
            problem=problem,
            candidate=candidate,
            evaluation=evaluation,
            names=names,
            session=session,
        ):
            part = answer.metrics if isinstance(answer, Profile) else answer
            if isinstance(answer, Profile):
                launches = launches or answer.launches
                for kernel in answer.kernels:
                    known = kernels.get(kernel.name) or replace(kernel, metrics={})
                    kernels[kernel.name] = replace(
                        known, metrics={**_sound(kernel.metrics), **known.metrics}
                    )
            for name, metric in part.items():
                if not _is_metric(metric):
                    self._mute(
                        plugin,
                        "collect_metrics",
                        f"gave {metric!r:.80} for {name!r}, which is no Metric of a number",
                    )
                elif metrics.get(name, _ABSENT).value is None:
                    metrics[name] = metric
        ranked = sorted(kernels.values(), key=lambda kernel: -kernel.share)
        return Profile(metrics=metrics, launches=launches, kernels=tuple(ranked))

    def propose(self, proposal: Proposal) -> Candidate | None:
        """Return the first candidate that a proposer gives."""
        for plugin, answer in self._ask("propose", proposal=proposal):
            if isinstance(answer, Candidate):
                return answer
            self._mute(plugin, "propose", f"gave {answer!r:.80}, which is no Candidate")
        return None

    def reject(self, problem: Problem, candidate: Candidate) -> str | None:
        """Return the first reason to throw the candidate out before it is built."""
        for _, answer in self._ask("reject", problem=problem, candidate=candidate):
            return str(answer)
        return None

    def reward(self, problem: Problem, evaluation: Evaluation, sol_us: float) -> float:
        """Return the first plugin's score.

        Raises:
            PluginError: no plugin scores.
        """
        for plugin, answer in self._ask(
            "reward", problem=problem, evaluation=evaluation, sol_us=sol_us
        ):
            if isinstance(answer, int | float) and answer == answer:  # not NaN
                return float(answer)
            self._mute(plugin, "reward", f"gave {answer!r:.80}, which is no number")
        raise PluginError("no plugin gave a reward; do not block `reward_speedup`")

    def step_finished(self, step: Step) -> None:
        """Tell every watcher."""
        for _ in self._ask("step_finished", step=step):
            pass

    def _ask(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
        """Yield each plugin's answer that is not None, in pluggy's order."""
        impls = getattr(self.plugins.hook, hook).get_hookimpls()
        for impl in reversed(impls):
            if impl.hookwrapper or impl.wrapper or (impl.plugin_name, hook) in self._muted:
                continue
            function: Callable[..., Any] = impl.function
            try:
                answer = function(*(arguments[name] for name in impl.argnames))
                if hook in ("detectors", "policies"):
                    answer = list(answer)
            except Exception as error:  # a stranger's code may raise anything
                text = str(error).splitlines()[0] if str(error) else "no message"
                self._mute(impl.plugin_name, hook, f"raised {type(error).__name__}: {text}")
                continue
            if answer is not None:
                yield impl.plugin_name, answer

    def _mute(self, plugin: str, hook: str, what: str) -> None:
        if (plugin, hook) not in self._muted:
            self._muted.add((plugin, hook))
            self._complain(
                f"plugin {plugin!r} ({origin(self.plugins, plugin)}) {what} in its hook {hook}; "
                "it is not asked again in this run"
            )

    def _complain(self, sentence: str) -> None:
        if sentence not in self.complaints:
            self.complaints.append(sentence)


def _is_policy(value: Any) -> bool:
    return (
        isinstance(value, type)
        and is_dataclass(value)
        and isinstance(getattr(value, "name", None), str)
        and callable(getattr(value, "select", None))
    )


def _is_metric(value: object) -> bool:
    return isinstance(value, Metric) and (
        value.value is None or (isinstance(value.value, int | float) and math.isfinite(value.value))
    )


def _sound(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if _is_metric(metric)}


_ABSENT = Metric(value=None, how="absent")
