"""A bench whose measurements follow from a candidate's source: for tests of all but the judge."""

from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Evaluation, Outcome, Timing
from kernelpro.search.bench import Measured

BASELINE_US = 1000.0


class FormulaBench:
    """What a search needs of a bench; `told` is called with each candidate's id."""

    complaints = ()

    def __init__(self, problem, target, told=lambda mark, name: None):
        self.machine = target.machine()
        self.light = speed_of_light(problem, self.machine)
        self._told = told

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def remember(self, steps):
        pass

    def prepare(self, candidate):
        pass

    def baseline(self):
        self._told("E", "baseline")
        return Measured(evaluation=_evaluation(BASELINE_US))

    def evaluate(self, candidate):
        self._told("E", candidate.id)
        return Measured(evaluation=_of(candidate))

    def confirm(self, candidate):
        self._told("C", candidate.id)
        return _of(candidate)


def make_bench(problem, target, hooks, *, settings):
    return FormulaBench(problem, target)


def _of(candidate):
    return _evaluation(200.0 + int(candidate.id[:2], 16) * 5)


def _evaluation(us):
    ratio = BASELINE_US / us
    timing = Timing(
        median_us=us,
        p20_us=us,
        p80_us=us,
        runs=9,
        baseline_us=BASELINE_US,
        baseline="eager",
        speedup=ratio,
        speedup_low=ratio,
        speedup_high=ratio,
        clock="a formula",
    )
    return Evaluation(outcome=Outcome.ACCEPTED, timing=timing)
