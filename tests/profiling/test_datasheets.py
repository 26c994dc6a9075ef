import pytest

from kernelpro.profiling.datasheets import datasheet


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_a_device_is_known_by_the_name_that_its_driver_gives(device, name):
    sheet = datasheet(device)
    assert sheet is not None
    assert sheet.name == name
    assert sheet.source
    assert sheet.bandwidth_bytes_per_s > 1e11
    rates = sheet.flops_per_s
    assert rates["float64"] < rates["float32"] <= rates["tf32_tensor"] < rates["bfloat16_tensor"]


@pytest.mark.parametrize(
    "device",
    [
        "",
        "a test device",
        "NVIDIA L40",
        "NVIDIA GH200 480GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    ],
)
def test_other_devices_and_slices_have_none(device):
    assert datasheet(device) is None
