"""Small sources and tries that the tests of lessons share."""

from kernelpro.lessons.features import Features
from kernelpro.lessons.store import Source
from kernelpro.lessons.tries import Try
from kernelpro.records import Outcome

ROW_WISE = Features(
    operators={"amax": 1, "exp": 1, "sum": 1}, row_log2=10, input_log2=20, output_log2=20
)
MATMUL = Features(operators={"matmul": 1}, input_log2=20, output_log2=20, intensity_log2=8)


def source(search: str, features: Features = ROW_WISE, device: str = "d", target: str = "cpu"):
    return Source(
        search=search, problem=f"of {search}", features=features, target=target, device=device
    )


def one(step: int, strategy: str = "vec up", gain: float | None = 0.1, **changes: str) -> Try:
    fields: dict[str, str] = {"finding": "", "roofline": "memory", "failure": ""} | changes
    outcome = Outcome.ACCEPTED if gain is not None else Outcome.WRONG_RESULT
    return Try(step=step, strategy=strategy, outcome=outcome, log_gain=gain, **fields)
