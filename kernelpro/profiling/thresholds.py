"""Every cut that a detector applies: its value, where it comes from, and its calibrated value.

A cut of NVIDIA's rules or of a paper stands as it is. A cut marked own may be calibrated on a
machine: `kernelpro calibrate` writes `thresholds.json` to the configuration folder, which takes
precedence here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelpro.settings import config_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One cut.

    Attributes:
        value: what a metric is compared with.
        unit: of the value: `%`, `bytes`, `us`, or empty for a share or a ratio.
        source: the rule, document or paper it comes from, or `own`.
    """

    value: float
    unit: str = ""
    source: str = "own"

    @property
    def own(self) -> bool:
        """Whether it is our own choice, which calibration may move."""
        return self.source.startswith("own")


def cut(name: str) -> float:
    """The value to compare with: calibrated on this machine, else the table's.

    Raises:
        KeyError: no threshold has that name.
    """
    threshold = TABLE[name]
    if threshold.own and (value := _calibrated().get(name)) is not None:
        return value
    return threshold.value


def calibrated_file() -> Path:
    """Where `kernelpro calibrate` keeps this machine's cuts."""
    return config_folder() / "thresholds.json"


@cache
def _calibrated() -> Mapping[str, float]:
    try:
        found = json.loads(calibrated_file().read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in found["cuts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


_SOL = "NVIDIA's SpeedOfLight rule"
_STALL = "NVIDIA's CPIStall rule"
_PIPES = "NVIDIA's HighPipeUtilization rule"
_SLOW = "NVIDIA's SlowPipeLimiter rule"
_FP_ROOFLINE = "NVIDIA's SpeedOfLight_Roofline rule"
_APERTURE = "NVIDIA's MemoryApertureUsage rule"

# By family of detectors, in the order of the files in plugins/. Names are detector names, with a
# suffix where a detector has more than one cut.
TABLE: dict[str, Threshold] = {
    # --- shared by families
    "busy": Threshold(value=60.0, unit="%", source=_SOL),
    "near_roof": Threshold(value=80.0, unit="%", source=_SOL),
    "stall_share": Threshold(value=0.3, source=_STALL),
    "issuing": Threshold(value=0.8, source=_STALL),
    # --- system level: detect_launches, detect_launch_records, detect_host, detect_transfers,
    # detect_operators
    "launch_bound.kernel": Threshold(value=10.0, unit="us", source="own: a launch takes 2 to 5 us"),
    "launch_bound.busy": Threshold(value=0.8),
    "tiny_kernels.us": Threshold(value=5.0, unit="us", source="own: no longer than its launch"),
    "tiny_kernels.launches": Threshold(value=5.0),
    "tiny_kernels.share": Threshold(value=0.2),
    "graph_candidate.repeats": Threshold(value=3.0),
    "graph_candidate.launches": Threshold(value=3.0),
    "graph_candidate.busy": Threshold(value=0.9),
    "stream_serialisation.share": Threshold(value=0.3),
    "static_occupancy_trace.occupancy": Threshold(
        value=80.0, unit="%", source="NVIDIA's TheoreticalOccupancy rule"
    ),
    "gpu_gaps.us": Threshold(value=5.0, unit="us", source="own: above a launch's own gap"),
    "gpu_gaps.step": Threshold(value=0.1),
    "low_time_utilisation.busy": Threshold(value=0.5, source="Nsight Systems' rule gpu_time_util"),
    "low_time_utilisation.gain": Threshold(value=0.05),
    "sync_api_in_loop.calls": Threshold(value=1.0),
    "sync_api_in_loop.share": Threshold(value=0.05),
    "host_overhead.gap": Threshold(value=0.2),
    "hd_traffic.share": Threshold(value=0.1),
    "copy_cast_fill_kernels.share": Threshold(value=0.1),
    "dominant_kernel.share": Threshold(value=0.5),
    "unfused_passes.factor": Threshold(value=1.5),
    "library_bound.share": Threshold(value=0.5),
    "small_operators.us": Threshold(
        value=10.0, unit="us", source="own: dispatching an operator takes 1 to 5 us"
    ),
    "small_operators.count": Threshold(value=4.0),
    "small_operators.share": Threshold(value=0.2),
    "temporary_tensors.factor": Threshold(value=2.0),
    "temporary_tensors.bytes": Threshold(
        value=float(1 << 20), unit="bytes", source="own: less stays in a core's cache"
    ),
    # --- detect_energy.py, fed by a meter
    "energy_per_run.steps": Threshold(value=50.0, source="own: a step is then 2 % of the energy"),
    "power_capped.share": Threshold(value=0.1),
    "dram_energy.share": Threshold(value=0.4, source="own, of low confidence"),
    "idle_energy.share": Threshold(value=0.1),
    "instruction_energy.factor": Threshold(value=2.0),
    "clock_sensitivity.slope": Threshold(value=0.1),
    "clock_sensitivity.saving": Threshold(value=0.02),
    # --- end of the system level
    # --- detect_memory.py: DRAM and what lies behind it
    "dram_amplification.factor": Threshold(value=1.5, source="own"),
    "l2_thrash.hit": Threshold(value=50.0, unit="%", source="own"),
    "write_amplification.factor": Threshold(value=1.5, source="own"),
    "sysmem_or_peer_traffic.share": Threshold(value=0.4, source=_APERTURE),
    "sysmem_or_peer_traffic.l2": Threshold(value=50.0, unit="%", source=_APERTURE),
    "sysmem_or_peer_traffic.bytes": Threshold(value=65536.0, unit="bytes", source="own"),
    "l2_compression.success": Threshold(
        value=20.0, unit="%", source="NVIDIA's MemoryL2Compression rule"
    ),
    # --- detect_coalescing.py: which addresses a warp asks for, and how wide
    "uncoalesced.gain": Threshold(value=0.05, source="own floor to NVIDIA's any"),
    "sectors_per_request.excess": Threshold(
        value=1.25, source="own; sectors and requests as in NVIDIA's Profiling Guide"
    ),
    "narrow_accesses.lane_bytes": Threshold(
        value=4.0, unit="bytes", source="own; GPUscout's vectorisation analysis"
    ),
    "narrow_accesses.hit": Threshold(value=50.0, unit="%", source="own"),
    # --- detect_caches.py: L1, L2 and local memory
    "l1_reuse_missed.l1_hit": Threshold(value=30.0, unit="%", source="own"),
    "l1_reuse_missed.l2_hit": Threshold(value=80.0, unit="%", source="own"),
    "l1_reuse_missed.l2_busy": Threshold(value=50.0, unit="%", source="own"),
    "l2_bound.lead": Threshold(value=10.0, unit="%", source=_SOL),
    "l2_partition_crossing.share": Threshold(value=0.3, source="own"),
    "local_memory_traffic.l2": Threshold(value=0.1, source="own; GPUscout's spilling formula"),
    "local_memory_traffic.share": Threshold(value=0.1, source="own"),
    # --- detect_shared_memory.py
    "smem_bank_conflict.share": Threshold(value=0.1, source="NVIDIA's SharedMemoryConflicts rule"),
    "smem_pipe_saturated.busy": Threshold(value=60.0, unit="%", source="own"),
    "smem_efficiency.used": Threshold(value=50.0, unit="%", source="own"),
    "shared_atomics.extra": Threshold(value=1.0, source="own; GPUscout's atomics analysis"),
    # --- detect_occupancy.py, detect_grid.py
    "occupancy_theoretical.share": Threshold(
        value=0.8, source="NVIDIA's TheoreticalOccupancy rule"
    ),
    "occupancy_gap.points": Threshold(
        value=10.0, unit="%", source="NVIDIA's AchievedOccupancy rule"
    ),
    "issue_slots_idle.issued": Threshold(value=0.6, source="NVIDIA's IssueSlotUtilization rule"),
    "issue_slots_idle.active": Threshold(value=0.8, source="NVIDIA's IssueSlotUtilization rule"),
    "tail_effect.share": Threshold(value=0.2, source="NVIDIA's LaunchStatistics rule"),
    "block_shape.small": Threshold(value=64.0, source="own"),
    "block_shape.large": Threshold(value=1024.0, source="own"),
    "block_shape.barrier": Threshold(value=0.1, source="own"),
    "unit_imbalance.gain": Threshold(value=0.05, source="NVIDIA's WorkloadImbalance rule"),
    "cta_churn.us": Threshold(value=2.0, unit="us", source="own"),
    "cta_churn.waves": Threshold(value=8.0, source="own"),
    "cluster_limits.share": Threshold(value=80.0, unit="%", source="own; ncu's Occupancy section"),
    "measurement_trust.us": Threshold(value=10.0, unit="us", source="own"),
    "measurement_trust.samples": Threshold(value=1000.0, source="NVIDIA's PCSamplingData rule"),
    "measurement_trust.interval": Threshold(value=0.1, source="NVIDIA's PCSamplingData rule"),
    "register_headroom.registers": Threshold(value=128.0, source="own"),
    # --- throughput.py: when L1 is named shared memory
    "shared_level.conflicts": Threshold(value=0.2, source="own"),
    # --- detect_stalls.py; all stalls share stall_share and issuing
    "stall_hotspots.share": Threshold(value=0.1, source="own; GPA's blame by instruction"),
    "stall_hotspots.reason": Threshold(value=0.3, source=_STALL),
    "too_many_warps.eligible": Threshold(value=2.0, source="own"),
    # --- detect_divergence.py
    "thread_divergence.threads": Threshold(value=24.0, source="NVIDIA's ThreadDivergence rule"),
    "branch_divergence.uniform": Threshold(value=90.0, unit="%", source="own"),
    "branch_divergence.branches": Threshold(value=0.03, source="own"),
    # --- detect_pipes.py
    "pipe_over_utilised.busy": Threshold(value=60.0, unit="%", source=_PIPES),
    "pipes_idle.busy": Threshold(value=20.0, unit="%", source=_PIPES),
    "sfu_bound.busy": Threshold(value=60.0, unit="%", source=_PIPES),
    "slow_pipe.throughput": Threshold(value=80.0, unit="%", source=_SLOW),
    "slow_pipe.issued": Threshold(value=20.0, unit="%", source=_SLOW),
    "slow_pipe.lead": Threshold(value=25.0, unit="%", source=_SLOW),
    # --- detect_arithmetic.py
    "fp64_in_fp32_kernel.busy": Threshold(value=5.0, unit="%", source="own"),
    "fp64_in_fp32_kernel.float64": Threshold(value=0.15, source=_FP_ROOFLINE),
    "fp64_in_fp32_kernel.float32": Threshold(value=0.6, source=_FP_ROOFLINE),
    "unfused_fp.share": Threshold(value=0.1, source="NVIDIA's FPInstructions rule"),
    "conversion_overhead.share": Threshold(value=0.05, source="own; GPUscout's conversions"),
    "integer_overhead.ratio": Threshold(value=2.0, source="own"),
    "integer_overhead.busy": Threshold(value=40.0, unit="%", source="own"),
    # --- detect_tensor_cores.py
    "tensor_core_unused.ffma": Threshold(value=0.3, source="own"),
    "tensor_core_unused.work": Threshold(value=0.5, source="own"),
    "tensor_core_starved.busy": Threshold(value=50.0, unit="%", source="own"),
    "tensor_core_starved.good": Threshold(value=85.0, unit="%", source="own: a good GEMM"),
    "tensor_core_starved.least": Threshold(value=5.0, unit="%", source="own"),
    "legacy_mma_on_hopper.share": Threshold(value=0.5, source="own"),
    "legacy_mma_on_hopper.busy": Threshold(value=20.0, unit="%", source="own"),
    "tensor_flops_by_dtype.share": Threshold(value=0.5, source="own"),
    # --- detect_atomics.py
    "global_atomics.share": Threshold(value=0.1, source="own; GPUscout's atomics analysis"),
    "global_atomics.busy": Threshold(value=60.0, unit="%", source="own"),
    # --- detect_front_end.py
    "constant_cache_miss.share": Threshold(value=0.1, source="own"),
    "constant_cache_miss.stall": Threshold(value=0.05, source="own"),
    "icache_pressure.share": Threshold(value=0.05, source="own"),
    "icache_pressure.stall": Threshold(value=0.1, source="own"),
    # --- detect_async_copy.py
    "async_copy_missing.staged": Threshold(value=0.5, source="own"),
    "async_copy_missing.loads": Threshold(value=4.0, source="own: enough tiles for a pipeline"),
    # --- end of stalls, divergence, pipes, arithmetic, atomics, front end, copies
    # --- machine code: detect_sass_registers
    "sass_backed.stall": Threshold(value=0.05, source="own: less is not worth an edit"),
    "spill_instructions.count": Threshold(value=0.0, source="exact: the compiler's own marks"),
    "dynamic_local_array.count": Threshold(value=0.0, source="exact"),
    "register_peak.registers": Threshold(value=64.0, source="own: fewer leave warps enough"),
    "register_peak.share": Threshold(value=0.9, source="own; GPUscout's live registers"),
    "register_peak.plateau": Threshold(value=0.1, source="own: a short stretch of the code"),
    "register_peak.typical": Threshold(value=0.7, source="own"),
    "occupancy_cliff.registers": Threshold(value=8.0, source="own: one step of the allocation"),
    "occupancy_cliff.share": Threshold(value=0.8, source="NVIDIA's TheoreticalOccupancy rule"),
    "register_bank_reuse.share": Threshold(value=0.2, source="own"),
    # --- machine code: detect_sass_memory, detect_sass_shared, detect_sass_pipeline
    "access_width.share": Threshold(value=0.75, source="own; GPUscout's vectorisation"),
    "access_width.adjacent": Threshold(value=0.5, source="own"),
    "access_width.contiguous": Threshold(value=0.75, source="own"),
    "readonly_path.share": Threshold(value=0.5, source="own; GPUscout's restrict"),
    "load_batching.loads": Threshold(value=4.0, source="own"),
    "load_batching.bytes": Threshold(value=32.0, unit="bytes", source="own: two wide loads"),
    "generic_addressing.count": Threshold(value=0.0, source="exact"),
    "no_async_copy.count": Threshold(value=0.0, source="exact"),
    "shared_width.per_ffma": Threshold(value=0.5, source="own"),
    "shared_width.adjacent": Threshold(value=2.0, source="own: a pair can be joined"),
    "static_bank_model.ways": Threshold(value=2.0, source="exact"),
    "static_bank_model.conflicts": Threshold(
        value=0.1, source="NVIDIA's SharedMemoryConflicts rule"
    ),
    # --- machine code: detect_sass_datapath, detect_sass_arithmetic
    "mma_kind.busy": Threshold(value=20.0, unit="%", source="own"),
    "fp64_instructions.count": Threshold(value=0.0, source="exact"),
    "slow_math.per_ffma": Threshold(value=0.1, source="own; GPA's fast math"),
    "int_div_mod.slots": Threshold(value=25.0, source="counted in sm_80 and sm_90 code"),
    "int_div_mod.slots_64": Threshold(value=100.0, source="counted in sm_80 and sm_90 code"),
    "type_conversions.share": Threshold(value=0.15, source="own; GPUscout's conversions"),
    "address_overhead.ratio": Threshold(value=2.0, source="own"),
    "address_overhead.math": Threshold(value=4.0, source="own: less is no loop of arithmetic"),
    "static_issue_cost.math": Threshold(value=0.4, source="own"),
    "scalar_half.share": Threshold(value=0.5, source="own"),
    # --- machine code: detect_sass_control, detect_sass_build
    "barrier_density.math": Threshold(value=32.0, source="own"),
    "barrier_density.iteration": Threshold(value=2.0, source="own: more than one a tile"),
    "barrier_density.total": Threshold(value=4.0, source="own: a tree of barriers"),
    "divergent_structure.regions": Threshold(value=2.0, source="own; GPUscout's divergence"),
    "divergent_structure.predicated": Threshold(value=0.3, source="own"),
    "divergent_structure.least": Threshold(value=32.0, source="own: shorter code is no evidence"),
    "divergent_structure.lost": Threshold(value=0.05, source="own"),
    "code_footprint.loop": Threshold(value=16384.0, unit="bytes", source="own"),
    "code_footprint.kernel": Threshold(value=102400.0, unit="bytes", source="own"),
    "fences.count": Threshold(value=0.0, source="own"),
    "device_calls.count": Threshold(value=0.0, source="GPA's function inlining"),
    "build_flags.level": Threshold(value=3.0, source="the compiler's default"),
    # --- end of machine code
    # --- CPU target: detect_cpu_kernel, _vectors, _arithmetic, _accesses, _threads, _system
    "far_from_roof.light": Threshold(value=0.5),
    "ordinary_stores.bandwidth": Threshold(value=0.3),
    "repeated_fetches.factor": Threshold(value=1.5),
    "mispredicted_branches.share": Threshold(value=0.1),
    "page_table_walks.share": Threshold(value=0.1),
    "scalar_loop.vectors": Threshold(value=0.5),
    "shuffles.share": Threshold(value=0.2),
    "horizontal_reduction.count": Threshold(value=2.0),
    "scalar_remainder.share": Threshold(value=0.1),
    "serial_chain.factor": Threshold(value=1.5),
    "divisions.share": Threshold(value=0.25),
    "double_promotion.share": Threshold(value=0.05),
    "missed_fma.count": Threshold(value=1.0),
    "branches_in_loop.count": Threshold(value=1.0),
    "loop_overhead.share": Threshold(value=0.5),
    "busy_port.share": Threshold(value=0.9),
    "idle_threads.share": Threshold(value=0.75),
    "serial_code.us": Threshold(value=50.0, unit="us", source="own: a region costs 1 to 20 us"),
    "thread_imbalance.share": Threshold(value=0.2),
    "page_faults.count": Threshold(value=64.0, source="own: 256 kB of fresh pages"),
    "page_faults.system": Threshold(value=0.1),
    # --- end of the CPU target
}
