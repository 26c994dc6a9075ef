"""Plans keep the source, and edits keep to the places that a plan names."""

import pytest

from kernelpro.models import anchors
from tests.models.scripted import AGAIN, LAST, SLOW, anchored

PLAN = anchored(SLOW, AGAIN, "do it once")


def test_a_plan_marks_a_place_and_says_what_to_do_there():
    ground = anchors.read(SLOW, PLAN)
    assert ground.lines[ground.begin : ground.end] == (AGAIN,)
    assert ground.advice == "// do it once"
    assert anchors.check_edit(ground, SLOW.replace(AGAIN, "    // once")).count(AGAIN) == 0


def test_an_edit_may_keep_the_anchors_and_change_nothing():
    ground = anchors.read(SLOW, PLAN)
    assert "IMPROVE" not in anchors.check_edit(ground, PLAN)
    assert anchors.check_edit(ground, SLOW.replace("\n", "  \n")) == SLOW


@pytest.mark.parametrize(
    ("planned", "why"),
    [
        (SLOW, "has 0 and 0"),
        (PLAN + PLAN, "has 2 and 2"),
        (PLAN.replace("// <<<IMPROVE BEGIN>>>", "# <<<IMPROVE BEGIN>>>"), "must be a comment"),
        (PLAN.replace("    // <<<IMPROVE END>>>\n", "") + "# <<<IMPROVE END>>>\n", "same text"),
        (PLAN.replace("// do it once", "int faster = 1;"), "adds comments alone"),
        (PLAN.replace(f"{AGAIN}\n", ""), "without|leaves out|unchanged"),
        (PLAN.replace("0.125f", "0.250f"), "unchanged around its anchors, but line"),
        (
            PLAN.replace("BEGIN", "X").replace("END", "BEGIN").replace("X", "END"),
            "must come before",
        ),
        (PLAN.replace('"""', "", 1), "no Python"),
        (PLAN + "\n" * 5 + "import os\n", "unchanged around"),
    ],
)
def test_a_plan_that_is_not_as_agreed_says_why(planned, why):
    with pytest.raises(anchors.AnchorError, match=why):
        anchors.read(SLOW, planned)


@pytest.mark.parametrize(
    "answer",
    [
        SLOW.replace("torch.empty_like(x)", "torch.zeros_like(x)"),
        SLOW.replace("0.125f", "0.25f"),
        "import os\n" + SLOW,
        SLOW + "\nmodel = ModelNew\n",
        SLOW.replace("        y = torch.empty_like(x)\n", ""),
        "",
        "x" * 100_000,
    ],
    ids=["line", "next line", "before", "behind", "left out", "empty", "huge"],
)
def test_an_edit_outside_is_seen(answer):
    ground = anchors.read(SLOW, PLAN)
    with pytest.raises(anchors.AnchorError, match="the edit goes outside the anchors"):
        anchors.check_edit(ground, answer)


def test_includes_may_change_if_the_plan_names_them_and_nothing_but_includes():
    ground = anchors.read(SLOW, PLAN, ["includes"])
    edit = SLOW.replace(AGAIN, "").replace("import torch\n", "import ctypes\nimport torch\n", 1)
    assert anchors.check_edit(ground, edit)
    with pytest.raises(anchors.AnchorError, match="only includes"):
        anchors.check_edit(ground, SLOW.replace("import torch\n", "import torch\nx = 1\n", 1))


def test_a_launch_wrapper_may_change_if_the_plan_names_it():
    edit = SLOW.replace("        y = torch.empty_like(x)\n", "        y = x.new_empty(x.shape)\n")
    assert anchors.check_edit(anchors.read(SLOW, PLAN, ["ModelNew.forward"]), edit) == edit
    whole = anchors.read(SLOW, anchored(SLOW, "import torch", "x").replace("//", "#", 3), ["run"])
    assert anchors.check_edit(whole, SLOW.replace(LAST, "    y[0] = x[0];"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a b", "nosuch", "x" * 10_000])
def test_a_name_is_one_of_the_source(name):
    with pytest.raises(anchors.AnchorError, match=r"neither `includes` nor|no function"):
        anchors.read(SLOW, PLAN, [name])
