"""The meter and a short comparison on a real card."""

import time

import pytest

from kernelpro import energy_runs
from kernelpro.energy import trace as traces
from kernelpro.energy import windows
from kernelpro.energy.comparison import Verdict, compare
from kernelpro.energy.meter import find, measure_resolution
from kernelpro.energy.protocol import EnergySettings
from kernelpro.energy.recorder import Recorder

pytestmark = pytest.mark.gpu

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))

    def forward(self, x, y):
        return torch.relu(x * self.weight + y)


def get_inputs():
    return [torch.rand(4096, 4096), torch.rand(4096, 4096)]


def get_init_inputs():
    return [4096]
"""
# The same in one pass over memory where the reference makes three.
FUSED = '''
import cupy
import torch

kernel = cupy.RawModule(code=r"""
extern "C" __global__ void fused(
    const float* x, const float* w, const float* y, float* out, long long n
) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float v = fmaf(x[i], w[i & 4095], y[i]);
        out[i] = v > 0 ? v : 0;
    }
}
""").get_function("fused")


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))

    def forward(self, x, y):
        out = torch.empty_like(x)
        pointers = (x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), out.data_ptr())
        kernel(((x.numel() + 255) // 256,), (256,), (*pointers, x.numel()))
        return out
'''
SHORT = EnergySettings(windows=4, window_s=6.0, idle_s=4.0, warm_s=5.0, most_warm_s=20.0)


@pytest.fixture
def meter():
    opened = find("cuda")
    yield opened
    opened.close()


def test_the_counter_steps_and_counts_more_under_load(meter):
    import torch

    resolution_s = measure_resolution(meter)
    assert 0.001 < resolution_s < 0.5
    square = torch.rand(4096, 4096, device="cuda", dtype=torch.float16)
    with Recorder(meter, resolution_s) as recorder:
        began = meter.now()
        time.sleep(4.0)
        idle_end = meter.now()
        while meter.now() < idle_end + 6.0:
            for _ in range(50):
                square @ square
            torch.cuda.synchronize()
        load_end = meter.now()
        time.sleep(0.2)
    trace = traces.Trace(header=None, readings=recorder.readings)  # type: ignore[arg-type]
    idle = windows.idle_watts(trace.within(began, idle_end))
    load = windows.slope(windows.steps(trace.within(idle_end + 1.0, load_end)))
    assert idle is not None
    limit = recorder.readings[-1].power_limit_w
    assert 5.0 < idle < load
    assert limit is None or load < 1.2 * limit
    last = recorder.readings[-1]
    assert last.temperature_c is not None
    assert last.sm_clock_mhz is not None
    joules = [r.joules for r in recorder.readings if r.joules is not None]
    assert joules == sorted(joules)


def weigh(folder, a, b):
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "fused.py").write_text(FUSED)
    told: list[str] = []
    trace = energy_runs.weigh(
        a, b, folder / "problem.py", target="cuda", settings=SHORT, tell=told.append
    )
    found = compare(trace)
    assert found.pairs == SHORT.windows, (found.sentence, found.notes, told)
    assert found.energy is not None
    traces.write(folder / "trace.jsonl", trace)
    assert compare(traces.read(folder / "trace.jsonl")).sentence == found.sentence
    return found


def test_one_pass_over_memory_takes_less_energy_than_three_but_is_not_matched(tmp_path):
    found = weigh(tmp_path, "eager", tmp_path / "fused.py")
    assert found.verdict is Verdict.NOT_MATCHED
    assert found.energy.high < 0.9
    assert found.delay_product.high < 0.8
    assert all(side.joules > 0 and side.watts > found.idle_after_w for side in found.sides)


def test_the_reference_against_itself_is_matched_and_no_different(tmp_path):
    found = weigh(tmp_path, "eager", "eager")
    assert found.matched, found.sentence
    assert found.verdict is Verdict.NO_DIFFERENCE
