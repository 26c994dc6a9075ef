"""Kinds of CUDA API calls, by their names."""

import re

LAUNCH = re.compile(r"(cuda|cu)(Graph)?Launch")
WAIT = re.compile(r"cuda(Device|Stream|Event)Synchronize$|cu(Ctx|Stream|Event)Synchronize$")
ALLOCATE = re.compile(
    r"(cuda(Malloc|Free|HostAlloc|HostRegister|HostUnregister)"
    r"|cuMem(Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|SetAccess"
    r"|Address))(?!.*Async)"
)
COPY = re.compile(r"(cuda|cu)Memcpy(?!.*(Async|Batch))")
FILL = re.compile(r"(cuda|cu)Memset(?!.*Async)")
LOAD = re.compile(
    r"cu(da)?(Module|Library)Load|cuLink(Create|Add|Complete)|nvrtc"
    r"|.*(Lazy Function Loading|Module Loading)"
)

_ENDING = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")


def bare(name: str) -> str:
    """A function's name without its version and its default stream: `cudaLaunchKernel_v7000`."""
    return _ENDING.sub("", name, count=1)
