"""The NVIDIA cards that this process may use, asked of CUDA's driver without making a context.

The one place that says which physical card a number means. CUDA's numbers follow
CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; NVML's and nvidia-smi's do not. So a number is turned
into a UUID here, once, and everything later goes by that: a process that is to have one card gets
`visible(uuid)` in its environment, sees that card alone as `cuda:0`, and asks NVML by its UUID.
"""

import ctypes
import uuid
from dataclasses import dataclass
from typing import Any

from kernelpro.errors import TargetError

DRIVER = "libcuda.so.1"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card as CUDA numbers it.

    Attributes:
        index: N of torch's `cuda:N` in this process.
        uuid: as nvidia-smi writes it, such as `GPU-5a0c...`; the same in every process.
        name: the card's own name.
    """

    index: int
    uuid: str
    name: str


def cards(driver: Any = None) -> list[Card]:
    """List the cards in CUDA's order; empty where there is no driver or no card.

    Args:
        driver: library to use in place of the installed driver's.

    Raises:
        TargetError: the driver is there but does not answer.
    """
    if driver is None:
        try:
            driver = ctypes.CDLL(DRIVER)
        except OSError:
            return []
    if (status := driver.cuInit(0)) == NO_DEVICE:
        return []
    _check(status, "cuInit")
    count = ctypes.c_int()
    _check(driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return [_card(driver, index) for index in range(count.value)]


def visible(card: str) -> dict[str, str]:
    """Environment variables of a process that is to see one card and no other, by UUID."""
    return {"CUDA_VISIBLE_DEVICES": card}


def _card(driver: Any, index: int) -> Card:
    device, name, raw = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    _check(driver.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet")
    _check(driver.cuDeviceGetName(name, 256, device), "cuDeviceGetName")
    _check(driver.cuDeviceGetUuid(ctypes.byref(raw), device), "cuDeviceGetUuid")
    return Card(index=index, uuid=f"GPU-{uuid.UUID(bytes=bytes(raw))}", name=name.value.decode())


def _check(status: int, call: str) -> None:
    if status != 0:
        raise TargetError(
            f"the CUDA driver answers {call} with error {status}; check it with nvidia-smi"
        )
