"""Which candidate is the best, by speed, by joules inside the band, by their product."""

from dataclasses import replace

import pytest

from kernelpro.errors import SettingsError
from kernelpro.objective import Objective, asked_for, recorded, same_objective
from kernelpro.records import Energy
from tests.search.toy import step


def weighed(index, speedup, share):
    """A step with so many times the baseline's joules; None where it was not weighed."""
    made = step(index, 0, speedup=speedup)
    if share is None:
        return made
    energy = Energy(joules=2.0 * share, mean_watts=100.0, window_s=6.0, baseline_joules=2.0)
    return replace(made, evaluation=replace(made.evaluation, energy=energy))


STEPS = [
    weighed(1, 3.00, 0.50),  # the fastest
    weighed(2, 2.96, 0.40),  # inside its band, with fewer joules
    weighed(3, 2.97, None),  # inside, but not weighed
    weighed(4, 2.80, 0.10),  # outside, as an earlier best: least joules and least product
    weighed(5, 2.00, 0.45),
]


@pytest.mark.parametrize(
    ("name", "order"),
    [("speed", [1, 3, 2, 4, 5]), ("energy", [2, 1, 3, 4, 5]), ("edp", [4, 2, 1, 5, 3])],
)
def test_the_best_comes_first(name, order):
    assert [s.index for s in Objective(name=name).ranked(STEPS)] == order


def test_a_wider_band_takes_more_in():
    assert Objective(name="energy", within=0.1).ranked(STEPS)[0].index == 4


def test_without_anything_weighed_the_fastest_is_the_best():
    bare = [weighed(1, 1.5, None), weighed(2, 2.5, None)]
    assert [s.index for s in Objective(name="energy").ranked(bare)] == [2, 1]
    assert Objective(name="edp").ranked([]) == []


def test_only_what_is_inside_the_band_is_weighed():
    goal = Objective(name="energy", within=0.05)
    assert goal.inside(2.0, 2.0)
    assert goal.inside(1.91, 2.0)
    assert not goal.inside(1.90, 2.0)
    assert goal.weighs
    assert not Objective().weighs


def test_a_file_without_an_objective_is_a_search_for_speed():
    assert recorded({}) == Objective()
    assert recorded({"objective": {"name": "edp", "within": 0.05}}).within == 0.05


def test_a_search_goes_on_with_its_own_objective():
    was = Objective(name="edp")
    assert same_objective(was, Objective(), asked=False) is was
    with pytest.raises(SettingsError, match="begun with --objective edp"):
        same_objective(was, Objective(name="energy"), asked=True)


def test_what_means_nothing_is_refused():
    with pytest.raises(SettingsError, match="no objective is called 'power'"):
        asked_for("power", None)
    with pytest.raises(SettingsError, match="between 0 and 1"):
        asked_for("energy", 1.0)
    with pytest.raises(SettingsError, match="give one of them"):
        asked_for(None, 0.02)
