import math

import pytest

from kernelpro.errors import SettingsError
from kernelpro.search.budget import Budget


def test_no_limit_is_never_spent():
    budget = Budget()
    assert budget.spent(10**9, 1e9) is None
    assert (budget.iterations_left(5), budget.seconds_left(5.0)) == (None, None)


def test_iterations_are_spent_exactly_at_their_number():
    budget = Budget(iterations=3)
    assert [budget.spent(n, 0.0) is not None for n in range(5)] == [False] * 3 + [True] * 2
    assert [budget.iterations_left(n) for n in (0, 2, 3, 4)] == [3, 1, 0, 0]
    assert budget.spent(3, 0.0) == "all 3 iterations are done"


def test_seconds_are_spent_exactly_at_their_number():
    budget = Budget(seconds=1.5)
    assert budget.spent(0, 1.49) is None
    assert budget.spent(0, 1.5) == "the 1.5 s of search time are over"
    assert budget.seconds_left(1.0) == 0.5


def test_no_iterations_at_all_is_a_budget():
    assert Budget(iterations=0).spent(0, 0.0) is not None


@pytest.mark.parametrize("wrong", [{"iterations": -1}, {"seconds": -0.1}, {"seconds": math.nan}])
def test_a_budget_below_nothing_is_refused(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Budget(**wrong)
