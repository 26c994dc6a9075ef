"""A piece of GPU memory that the judge shares with one worker, by CUDA's inter-process handles.

Outputs need not go through the host's memory then, which takes ten times as long as the calls. The
judge allocates the block and the worker maps it; what either writes there, the other sees. It is
the worker's for as long as that lives: nothing else is ever in it, so a candidate that writes there
spoils its own results and nobody's else. Where the system refuses the handle, the host's memory
serves as before.
"""

from typing import Any

import torch

GRANULE = 2 << 20
"""Bytes of the driver's smallest allocation: a handle opens whole ones, so blocks fill them."""

_refused = False


class DeviceBlock:
    """The judge's end of such a block.

    Attributes:
        memory: its bytes, as a tensor on the GPU.
        handle: what another process opens it by, as hexadecimal text.
    """

    def __init__(self, size: int) -> None:
        """Allocate at least size bytes outside torch's allocator, which shares its own out.

        Raises:
            Exception: CuPy or the driver cannot.
        """
        import cupy

        self._runtime = cupy.cuda.runtime
        size = max(1, -(-size // GRANULE)) * GRANULE
        self._pointer = self._runtime.malloc(size)
        try:
            self.handle = bytes(self._runtime.ipcGetMemHandle(self._pointer)).hex()
            self.memory = _view(self._pointer, size)
        except BaseException:
            self._runtime.free(self._pointer)
            raise

    def close(self) -> None:
        """Free it; views of `memory` must not be used any more, and the worker must have ended."""
        if self._pointer:
            pointer, self._pointer = self._pointer, 0
            self.memory = torch.empty(0, dtype=torch.uint8)
            self._runtime.free(pointer)


def make(size: int) -> DeviceBlock | None:
    """Allocate a block, or return None where that does not work or was refused before."""
    if _refused:
        return None
    try:
        return DeviceBlock(size)
    except Exception:  # CuPy is missing or old, no memory is left, the driver has no such handles
        return None


def refuse() -> None:
    """Note that workers cannot open handles here, so that no further one is made."""
    global _refused
    _refused = True


def is_possible() -> bool:
    """Whether blocks were not found to be impossible yet."""
    return not _refused


def opened(handle: str, size: int) -> torch.Tensor:
    """Map, in the worker, the first size bytes of a block of the judge's.

    Raises:
        Exception: the driver refuses.
    """
    import cupy

    return _view(cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(handle)), size)


def let_go(memory: torch.Tensor) -> None:
    """Unmap what `opened` returned, in the worker."""
    import cupy

    cupy.cuda.runtime.ipcCloseMemHandle(memory.data_ptr())


def _view(pointer: int, size: int) -> torch.Tensor:
    import cupy

    memory: Any = cupy.cuda.UnownedMemory(pointer, size, None)
    array = cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
    return torch.as_tensor(array, device="cuda")
