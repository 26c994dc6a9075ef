"""A call captured in a CUDA graph, and replayed without the host between its kernels.

A kernel of a few microseconds ends before the host has launched the next one, so that calls in a
row run at the host's pace. A graph of one call, put many times in a row into a second graph, runs
at the device's. Exactly one call is captured: several could share what the first of them computed.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

CHAIN = 32  # own: calls in the longer graph; launching it costs the host about a call's own launch
WARM_CALLS = 3  # what is compiled or allocated at a first call cannot be captured
# Taken before any candidate runs, which could replace them.
_Graph: Callable[..., Any] = torch.cuda.CUDAGraph
_capturing: Callable[..., Any] = torch.cuda.graph
_stream: Callable[[], Any] = torch.cuda.current_stream
_synchronize: Callable[[], None] = torch.cuda.synchronize


class Captured:
    """One call as a CUDA graph.

    Attributes:
        result: what the call returned; each replay computes it anew, in the same memory.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        """Capture a call.

        Args:
            call: reads the same memory each time and waits for nothing.

        Raises:
            RuntimeError: it cannot be captured, or does nothing on the device.
        """
        for _ in range(WARM_CALLS):
            call()
        _synchronize()
        self._graph = _Graph(keep_graph=True)
        with _capturing(self._graph):
            self.result = call()
        one = ctypes.c_void_p(self._graph.raw_cuda_graph())
        self._driver = ctypes.CDLL("libcuda.so.1")
        nodes = ctypes.c_size_t()
        self._call("cuGraphGetNodes", one, None, ctypes.byref(nodes))
        if not nodes.value:
            raise RuntimeError("nothing ran on the device while the call was captured")
        self._one = self._executable([one])
        self._many = self._executable([one] * CHAIN)

    def replay(self, calls: int) -> None:
        """Queue so many calls on torch's current stream."""
        stream = ctypes.c_void_p(_stream().cuda_stream)
        for _ in range(calls // CHAIN):
            self._call("cuGraphLaunch", self._many, stream)
        for _ in range(calls % CHAIN):
            self._call("cuGraphLaunch", self._one, stream)

    def _executable(self, parts: Sequence[ctypes.c_void_p]) -> ctypes.c_void_p:
        """Graphs one after the other, ready to be launched; it lives as long as the process."""
        whole, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuGraphCreate", ctypes.byref(whole), ctypes.c_uint(0))
        before = ctypes.c_void_p()
        for n, part in enumerate(parts):
            node = ctypes.c_void_p()
            earlier = ctypes.byref(before) if n else None
            self._call(
                "cuGraphAddChildGraphNode",
                ctypes.byref(node),
                whole,
                earlier,
                ctypes.c_size_t(min(n, 1)),
                part,
            )
            before = node
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(made), whole, ctypes.c_ulonglong(0))
        return made

    def _call(self, name: str, *arguments: Any) -> None:
        if error := getattr(self._driver, name)(*arguments):
            raise RuntimeError(f"{name} failed with CUDA error {error}")
