"""Each exemplar's kernel text, run on the host against numpy, with tails where it takes any."""

import ctypes
import itertools
import math
import shutil

import numpy as np
import pytest

from kernelpro import exemplars
from kernelpro.targets import declared
from tests.exemplars.emulation import build, launch

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ is not on PATH (apt install g++)"
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The library of all kernels."""
    sources = {
        e.name: declared.literals(e.candidate.read_text(), ("CUDA_SOURCE",))["CUDA_SOURCE"]
        for e in exemplars.INDEX
    }
    return build(sources, tmp_path_factory.mktemp("kernels"))


def draw(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def empty(*shape):
    return np.full(shape, np.nan, np.float32)


def rounded(x):
    """The bits of bfloat16."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def agree(found, wanted, limit=1e-5):
    """Compare the largest difference with the wanted values' rms."""
    assert found.shape == wanted.shape
    rms = np.sqrt(np.square(wanted, dtype=np.float64).mean())
    assert not np.isnan(found).any()
    assert np.abs(found - wanted).max() <= limit * rms


BFLOAT16 = 0.03  # of the rms: half a unit in the last place of an element eight times as large


def test_vectorized_swiglu(kernels):
    (gate, up), out = draw(2, 10, 136), empty(10, 136)
    launch(kernels, "swiglu", (1,), (256,), gate, up, out, gate.size // 4)
    agree(out, gate / (1 + np.exp(-gate)) * up)


def test_warp_row_norm(kernels):
    x, out = draw(19, 132), empty(19)
    launch(kernels, "warp_row_norm", (3,), (256,), x, out, *x.shape)
    agree(out, np.linalg.norm(x, axis=1))


def test_cluster_rms_norm(kernels):
    columns = 32 * 1030
    x, out = draw(2, columns), empty(2, columns)
    size = columns // 8 * 4
    launch(
        kernels, "cluster_rms_norm", (16,), (1024,), x, out, columns, 1e-6, shared=size, together=8
    )
    agree(out, x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6))


def test_online_softmax(kernels):
    x, out = draw(2, 5000) * 4, empty(2, 5000)
    launch(kernels, "online_softmax", (2,), (512,), x, out, 5000)
    powers = np.exp(x - x.max(1, keepdims=True))
    agree(out, powers / powers.sum(1, keepdims=True), 1e-4)


def test_residual_rms_norm(kernels):
    (x, residual), weight = rounded(draw(2, 3, 4096)), rounded(draw(4096))
    out, sums = np.zeros_like(x), np.zeros_like(x)
    launch(kernels, "residual_rms_norm", (3,), (512,), x, residual, weight, out, sums, 1e-6)
    wanted = wide(rounded(wide(x) + wide(residual)))
    assert (wide(sums) == wanted).all()
    normal = wanted / np.sqrt(np.square(wanted).mean(1, keepdims=True) + 1e-6)
    agree(wide(out), wide(rounded(normal)) * wide(weight), BFLOAT16)


def test_transpose(kernels):
    x, out = draw(70, 45), empty(45, 70)
    launch(kernels, "transpose", (2, 3), (32, 8), x, out, 70, 45)
    assert (out == x.T).all()


def test_tiled_matmul(kernels):
    a, b, out = draw(256, 40), draw(40, 128), empty(256, 128)
    launch(kernels, "tiled_matmul", (1, 2), (256,), a, b, out, 128, 40)
    agree(out, a @ b)


def test_split_k_matmul(kernels):
    a, b, out = draw(256, 64), draw(64, 128), empty(256, 128)
    parts = empty(4, 256, 128)
    launch(kernels, "partial_matmul", (1, 2, 4), (256,), a, b, parts, 128, 64, 16)
    launch(kernels, "add_parts", (128,), (256,), parts, out, 256 * 128, 4)
    agree(out, a @ b)


def test_mma_matmul(kernels):
    x, w = rounded(draw(2, 256, 256))
    out = np.zeros((256, 256), np.uint16)
    launch(kernels, "mma_matmul", (4,), (256,), x, w, out, 256, 256, 256, shared=98304)
    agree(wide(out), wide(x) @ wide(w).T, BFLOAT16)


def test_wgmma_matmul(kernels):
    class Map(ctypes.Structure):
        _fields_ = (
            ("data", ctypes.c_void_p),
            ("sizes", ctypes.c_longlong * 2),
            ("box", ctypes.c_int * 2),
            ("rest", ctypes.c_char * 96),
        )

    m, n, k = 256, 128, 64 * 6  # more steps than stages
    x, w, out = rounded(draw(m, k)), rounded(draw(n, k)), np.zeros((m, n), np.uint16)
    map_x = Map(x.ctypes.data, (m, k), (256, 64))
    map_w = Map(w.ctypes.data, (n, k), (128, 64))
    shared = 4 * (256 + 128) * 128 + 1024
    launch(kernels, "wgmma_matmul", (1,), (384,), map_x, map_w, out, m, n, k, shared=shared)
    agree(wide(out), wide(x) @ wide(w).T, BFLOAT16)


def test_grouped_matmul(kernels):
    class Groups(ctypes.Structure):
        _fields_ = (("ends", ctypes.c_int * 256),)

    sizes = [100, 0, 130, 7]
    x, w = rounded(draw(237, 128)), rounded(draw(4, 256, 128))
    out = np.zeros((237, 256), np.uint16)
    groups = Groups((ctypes.c_int * 256)(*itertools.accumulate(sizes)))
    launch(
        kernels, "grouped_matmul", (4,), (256,), x, w, out, groups, 256, 128, shared=4 * 384 * 128
    )
    parts = np.split(wide(x), list(itertools.accumulate(sizes))[:-1])
    wanted = [part @ wide(own).T for part, own in zip(parts, w, strict=True)]
    agree(wide(out), np.concatenate(wanted), BFLOAT16)


def test_flash_attention(kernels):
    q, k, v = rounded(draw(3, 2, 192, 128))
    out = np.zeros_like(q)
    power = math.log2(math.e) / math.sqrt(128)
    launch(
        kernels, "flash_attention", (3, 2), (128,), q, k, v, out, 192, power, shared=5 * 64 * 256
    )
    scores = wide(q) @ wide(k).swapaxes(-1, -2) / math.sqrt(128)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    agree(wide(out), powers / powers.sum(-1, keepdims=True) @ wide(v), BFLOAT16)


def test_row_scan(kernels):
    x, out = draw(2, 5004), empty(2, 5004)
    launch(kernels, "row_scan", (2,), (512,), x, out, 5004)
    agree(out, np.cumsum(x, 1, dtype=np.float64))


def test_histogram(kernels):
    x = np.random.default_rng(0).random(12000, np.float32) * 1.2 - 0.1
    counts = np.zeros(256, np.uint64)
    launch(kernels, "histogram", (5,), (256,), x, counts, 3000)
    wanted = np.bincount(np.clip(x * 256, 0, 255).astype(int), minlength=256)
    assert (counts == wanted.astype(np.uint64)).all()


def test_every_exemplar_is_emulated():
    for exemplar in exemplars.INDEX:
        assert f"test_{exemplar.name}" in globals(), exemplar.name
