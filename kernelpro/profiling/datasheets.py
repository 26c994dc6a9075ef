"""Peaks of GPUs as their makers' datasheets give them, by the device's own name.

Dense rates, without structured sparsity, at boost clocks. They are roofs that no kernel passes;
what a machine really reaches is measured (targets/cuda_peaks.py) and is 60 to 95 % of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """One GPU.

    Attributes:
        name: the product.
        bandwidth_bytes_per_s: of its memory.
        flops_per_s: peak by path, named as in `Machine.flops_per_s`.
        source: the document.
    """

    name: str
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    source: str


def datasheet(device: str) -> Datasheet | None:
    """The datasheet of a device; None for one that is not listed, or for a slice (MIG) of one.

    Args:
        device: the name that the driver gives, such as `NVIDIA H100 80GB HBM3`.
    """
    if re.search(r"\bMIG\b", device):
        return None
    return next((sheet for pattern, sheet in _SHEETS if re.search(pattern, device)), None)


def _sheet(
    name: str, terabytes_per_s: float, teraflops: tuple[float, float, float, float], source: str
) -> Datasheet:
    """A row: memory, then float32, float64 (vector), TF32 and half precision (matrix units)."""
    float32, float64, tf32, half = (rate * 1e12 for rate in teraflops)
    return Datasheet(
        name=name,
        bandwidth_bytes_per_s=terabytes_per_s * 1e12,
        flops_per_s={
            "float32": float32,
            "float64": float64,
            "tf32_tensor": tf32,
            "float16_tensor": half,
            "bfloat16_tensor": half,
        },
        source=source,
    )


_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet"
_A100_FLOPS = (19.5, 9.7, 156.0, 312.0)
_H100_SXM_FLOPS = (67.0, 34.0, 494.5, 989.5)
_H100_NVL_FLOPS = (60.0, 30.0, 417.5, 835.5)

# The first pattern that is found decides.
_SHEETS: tuple[tuple[str, Datasheet], ...] = (
    (r"\bA100\b.*\bPCI.*80GB|\bA100 80GB PCI", _sheet("A100 80GB PCIe", 1.935, _A100_FLOPS, _A100)),
    (r"\bA100\b.*80GB", _sheet("A100 80GB SXM", 2.039, _A100_FLOPS, _A100)),
    (r"\bA100\b.*40GB", _sheet("A100 40GB", 1.555, _A100_FLOPS, _A100)),
    (r"\bH100 PCIe\b", _sheet("H100 PCIe", 2.039, (51.0, 26.0, 378.0, 756.5), _H100)),
    (r"\bH100 NVL\b", _sheet("H100 NVL", 3.938, _H100_NVL_FLOPS, _H100)),
    (r"\bH100\b", _sheet("H100 SXM", 3.352, _H100_SXM_FLOPS, _H100)),
    (r"\bH200 NVL\b", _sheet("H200 NVL", 4.8, _H100_NVL_FLOPS, _H200)),
    (r"\bH200\b", _sheet("H200 SXM", 4.8, _H100_SXM_FLOPS, _H200)),
    (r"\bB200\b", _sheet("B200", 8.0, (75.0, 37.0, 1100.0, 2250.0), "NVIDIA HGX B200 datasheet")),
    (
        r"\bL4$",
        _sheet("L4", 0.3, (30.3, 0.49, 60.5, 121.0), "NVIDIA L4 Tensor Core GPU datasheet"),
    ),
    (r"\bL40S\b", _sheet("L40S", 0.864, (91.6, 1.43, 183.0, 362.05), "NVIDIA L40S datasheet")),
    (
        r"\bRTX 4090$",
        _sheet("RTX 4090", 1.008, (82.6, 1.29, 82.6, 165.2), "NVIDIA Ada architecture whitepaper"),
    ),
)
