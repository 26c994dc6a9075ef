"""What benchmarks profile: the zoo, a Triton softmax, a cuBLAS product, a module of many kernels.

python3 -m benchmarks.subjects NAME     # launches one subject, for a profiler that watches
"""

import sys
from collections.abc import Callable

from benchmarks.zoo import ZOO, launchers

OTHERS = ("triton_softmax", "cublas_bf16_gemm", "many_kernels")
NAMES = (*(specimen.name for specimen in ZOO), *OTHERS)


def made() -> dict[str, Callable[[], object]]:
    """Every subject by name: a function that launches it once and waits."""
    found: dict[str, Callable[[], object]] = {
        specimen.name: launch for specimen, launch in launchers()
    }
    return {**found, **_in_torch()}


def _in_torch() -> dict[str, Callable[[], object]]:
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def softmax_rows(x, y, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        row = tl.program_id(0).to(tl.int64) * columns
        place = tl.arange(0, BLOCK)
        inside = place < columns
        values = tl.load(x + row + place, mask=inside, other=float("-inf"))
        raised = tl.exp(values - tl.max(values, axis=0))
        tl.store(y + row + place, raised / tl.sum(raised, axis=0), mask=inside)

    rows, columns = 8192, 3000
    x = torch.randn(rows, columns, device="cuda")
    y = torch.empty_like(x)
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    scale, bias = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")

    def waiting(work: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            result = work()
            torch.cuda.synchronize()
            return result

        return run

    def many() -> object:
        z = torch.nn.functional.gelu(x * scale) * bias + x
        return torch.nn.functional.layer_norm(z, (columns,)).sum(dim=-1)

    return {
        "triton_softmax": waiting(lambda: softmax_rows[(rows,)](x, y, columns, BLOCK=4096)),
        "cublas_bf16_gemm": waiting(lambda: a @ b),
        "many_kernels": waiting(many),
    }


def main(names: list[str]) -> None:
    """Warm up, start the profiler, and launch each."""
    import torch

    subjects = made()
    chosen = [subjects[name] for name in names or NAMES]
    for launch in chosen:
        launch()
        launch()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for launch in chosen:
        launch()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
