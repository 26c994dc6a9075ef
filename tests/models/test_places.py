"""Anchors are put where the best finding points that names a function of the source."""

from kernelpro.models.anchors import BEGIN, END
from kernelpro.models.places import suggested
from kernelpro.records import Action, Diagnosis
from tests.models import scripted

ACTIONS = (Action(name="vectorize", instruction="use  wider\nvectors"),)


def finding(where, detector="lanes"):
    return Diagnosis(
        detector=detector, bottleneck="b", why="w", gain=0.5, where=where, actions=ACTIONS
    )


def marked(source, *findings):
    """Lines between the anchors, and the finding that they are there for."""
    place = suggested(source, findings)
    assert place is not None
    ground, detector = place
    lines = [line.strip() for line in ground.text.splitlines()]
    first, last = (next(n for n, ln in enumerate(lines) if m in ln) for m in (BEGIN, END))
    assert "\n".join(ground.lines) == source.rstrip()
    return lines[first : last + 1], detector


def test_the_first_finding_that_names_a_function_decides():
    findings = (finding("aten.mul", "passes"), finding("loop at 0x10 in run (parallel region)"))
    lines, detector = marked(scripted.FAST, *findings)
    assert detector == "lanes"
    assert lines[:3] == [
        f"// {BEGIN}",
        "// use wider vectors",
        'extern "C" void run(const float* x, float* y, long n) {',
    ]
    assert lines[-2:] == ["}", f"// {END}"]


def test_else_the_kernel_is_marked_and_in_the_reference_forward():
    lines, detector = marked(scripted.FAST, finding("aten.mul"))
    assert (detector, lines[1].split()[0]) == ("", "extern")
    lines, detector = marked(scripted.PROBLEM)
    assert lines == [
        f"# {BEGIN}",
        "def forward(self, x):",
        "return torch.relu(x * 1.5 + 0.5) * 0.25 - x * 0.125 + torch.abs(x) * 0.5 + 1.0",
        f"# {END}",
    ]


def test_what_is_no_python_has_no_place():
    assert suggested("class ModelNew(: nothing", [finding("run")]) is None
