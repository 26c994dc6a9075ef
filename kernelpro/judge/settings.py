"""The judge's settings: deadlines, numbers of calls, and when a measurement is good enough."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Constants of the judge; the table `[judge]` of kernelpro.toml.

    Attributes:
        start_deadline_s: for starting the fork server (importing torch) and for one fork.
        load_deadline_s: for importing a candidate, building included, and constructing it.
        first_call_deadline_s: for the first call, which may compile or tune.
        call_deadline_s: for each later call, timed or not.
        collect_deadline_s: for one collector's run in the candidate's process.
        calls_deadline_s: for all compared calls of a candidate together.
        timing_deadline_s: for all its timed calls together.
        threads: CPU threads of both sides; 0 takes torch's own number.
        calls_per_set: compared calls on each input set; fewer when outputs are large.
        compare_bytes: the output bytes up to which calls_per_set is kept.
        max_judging_s: wall time after which two calls on each set are enough.
        challenged_calls: timed calls whose outputs are compared; four times as many where outputs
            have at most 1 MiB.
        baselines: what candidates are timed against, comma-separated: `eager`, `compile`,
            `max-autotune`; the fastest of those asked for.
        min_pairs: interleaved pairs of a baseline and a candidate block measured at least.
        max_pairs: pairs measured at most.
        block_s: about how long the timed calls of one block take.
        max_block_calls: timed calls in one block at most.
        max_timing_s: wall time after which no further pair is begun once min_pairs are there.
        precision: width of the 95 % interval of the speed-up at which measuring ends.
        hopeless: speed-up below which a candidate is timed no longer, after three pairs.
        settle_s: pause before a side's first calls, so that the judge's own OpenMP threads, which
            have just compared outputs, stop to spin.
        confirm_factor: how many times more calls the winner's confirmation compares.
        confirm_workers: pairs of fresh processes in which the winner is judged and timed again.
        sanitizer_deadline_s: for a winner's call under compute-sanitizer, all tools at once.
        output_bytes: printed output above which a candidate is rejected.
        file_bytes: largest file that a candidate's process may write.
        memory_bytes: memory that its processes may hold together; 0 is most of what is free.
        scratch_bytes: disk that they may fill together.
        max_processes: processes that it may start, compilers included.
        max_threads: threads of all of them.
        isolation: `process`, `basic` (Landlock, seccomp and limits as far as the kernel has them)
            or `strict` (bubblewrap besides).
        spare_workers: processes that are kept ready for candidates to come.
        light_build: whether candidates' load_inline and load are built with kernelpro's light
            headers, which takes seconds instead of minutes. A winner never is.
        rebuild_deadline_s: for loading a winner, whose extensions are built with torch's own
            headers; where that is less than load_deadline_s, the latter.
        backward: whether gradients of inputs and parameters are judged too.
        other_shapes: whether a candidate is also called at sizes that it was not asked for; a
            winner's confirmation and `kernelpro check` always do.
        require_custom_kernel: what becomes of a candidate whose time is spent in the libraries'
            kernels: `off` (not looked at), `flag` or `reject`.
    """

    start_deadline_s: float = 120.0
    load_deadline_s: float = 180.0
    first_call_deadline_s: float = 60.0
    call_deadline_s: float = 60.0
    collect_deadline_s: float = 180.0
    calls_deadline_s: float = 300.0
    timing_deadline_s: float = 300.0
    threads: int = 0
    calls_per_set: int = 6
    compare_bytes: int = 256 << 20
    max_judging_s: float = 0.5
    challenged_calls: int = 4
    baselines: str = "eager"
    min_pairs: int = 5
    max_pairs: int = 40
    block_s: float = 0.015
    max_block_calls: int = 30
    max_timing_s: float = 2.0
    precision: float = 0.03
    hopeless: float = 0.7
    settle_s: float = 0.008
    confirm_factor: int = 3
    confirm_workers: int = 3
    sanitizer_deadline_s: float = 180.0
    output_bytes: int = 8 << 20
    file_bytes: int = 1 << 30
    memory_bytes: int = 0
    scratch_bytes: int = 256 << 20
    max_processes: int = 256
    max_threads: int = 4096
    isolation: str = "basic"
    spare_workers: int = 1
    require_custom_kernel: str = "off"
    light_build: bool = True
    rebuild_deadline_s: float = 600.0
    backward: bool = False
    other_shapes: bool = False
