"""What `kernelpro search --suite` prints: a line a turn, and a table at the end."""

from kernelpro.report import duration
from kernelpro.search.allocate import NEAR, Standing
from kernelpro.suite import SuiteResult, confirmed_speedup


class Lines:
    """Prints a line for each turn."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def refused(self, name: str, reason: str) -> None:
        """A problem is left out."""
        print(f"left out: {name}: {reason}", flush=True)

    def turn(self, standing: Standing, trials: int, open_ones: int) -> None:
        """Some trials of a problem were made."""
        if self.quiet:
            return
        state = "done" if standing.ended else f"{open_ones} open"
        print(
            f"{trials:5} trials  {standing.name:28} {len(standing.speedups):4} of them, "
            f"{standing.speedup:.2f}x, {_above(standing)}; {state}",
            flush=True,
        )


def _above(standing: Standing) -> str:
    if standing.sol_us <= 0.0:
        return "no bound known"
    return f"{standing.best_us / standing.sol_us:.2f} times the speed of light"


def table(result: SuiteResult) -> str:
    """Write a line for each problem, the geometric mean, and what the priorities saved."""
    lines = [
        f"{'problem':28} {'baseline':>10} {'found':>8} {'judged again':>13} {'trials':>7}  bound"
    ]
    for standing, found in zip(result.standings, result.results, strict=True):
        again = f"{confirmed_speedup(found):.2f}x" if found.best is not None else "-"
        lines.append(
            f"{standing.name:28} {duration(standing.baseline_us):>10} {standing.speedup:7.2f}x "
            f"{again:>13} {len(standing.speedups):7}  {_above(standing)}"
        )
    lines += [f"{name}: left out: {reason}" for name, reason in result.refused.items()]
    lines.append(
        f"geometric mean over {len(result.results)} problems: {result.geomean:.2f}x "
        "(judged again from scratch; 1x where nothing held)"
    )
    if (saved := result.saving) is not None:
        least = "at least " if saved.at_least else ""
        lines.append(
            f"{NEAR:.0%} of the gain was reached after {saved.trials} trials; an even split would "
            f"have taken {least}{saved.even}: {least}{saved.share:.0%} saved"
        )
    return "\n".join(lines)
