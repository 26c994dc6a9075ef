"""Detectors, instruction level: how the machine code was built."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.readings import reading
from kernelpro.profiling.sass.estimate import shown
from kernelpro.profiling.speed_of_light import is_matmul
from kernelpro.profiling.thresholds import cut

MAJOR = "device__attribute_compute_capability_major"
MINOR = "device__attribute_compute_capability_minor"


@hookimpl
def detectors() -> list[Detector]:
    """Give this family's detectors."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="instruction",
    needs=("sass.target_sm",),
    wants=(
        "sass.debug_build", "sass.optimization_level", "sass.arch_specific", "sass.tensor_anywhere",
        MAJOR, MINOR,
    ),
    group="build",
    threshold="a debug build, less than -O3, or code for an older chip than the device (exact)",
)  # fmt: skip
def build_flags(evidence: Evidence) -> Diagnosis | None:
    """The code was built for debugging, without optimisation, or for another chip."""
    profile = evidence.profile
    sm = int(profile["sass.target_sm"])
    device = int(10 * reading(profile, MAJOR) + reading(profile, MINOR))
    level = int(reading(profile, "sass.optimization_level", 3.0))
    lacks_wgmma = (
        sm == 90
        and reading(profile, "sass.arch_specific", 1.0) == 0.0
        and reading(profile, "sass.tensor_anywhere") > 0
        and is_matmul(evidence.problem)
    )
    if reading(profile, "sass.debug_build") > 0:
        found = ("a debug build (-G)", "Nothing is kept in registers or reordered.", 0.7, 0.9)
        fix = "Build without -G; -lineinfo keeps source lines for profilers."
    elif level < cut("build_flags.level"):
        found = (f"built with -O{level}", "The assembler leaves most optimisation out.", 0.5, 0.9)
        fix = "Build with -O3, the default."
    elif device and sm // 10 < device // 10:
        found = (
            f"code for sm_{sm} runs on a device of capability {device / 10:.1f}",
            "Instructions of the newer chip are not used.",
            0.1,
            0.3,
        )
        fix = f"Build for sm_{device}{'a' if device >= 90 else ''}."
    elif lacks_wgmma:
        found = (
            "built for sm_90, not sm_90a",
            "Warpgroup matrix instructions and others need the target with the letter a.",
            0.1,
            0.3,
        )
        fix = "Build for sm_90a."
    else:
        return None
    bottleneck, why, gain, confidence = found
    return Diagnosis(
        bottleneck=bottleneck,
        where=shown(profile, "sass.debug_build", "sass.optimization_level"),
        why=why,
        gain=gain,
        confidence=confidence,
        actions=(Action(name="build_flags", instruction=fix),),
        guard="Fix the build before any other finding is believed.",
    )
