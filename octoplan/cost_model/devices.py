"""Devices by name: memory, peak dense bfloat16 flop/s, memory bandwidth, each with its source.

Vendors print some peaks with structured sparsity, which is twice the dense one; those are halved here.
Memory sold as "80 GB" is counted in GiB, which is what the devices report to within a percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class CatalogueDevice:
    """One kind of device.

    Parameters
    ----------
    memory_bytes:
        Device memory.
    peak_flops:
        Dense bfloat16 flop/s of the matrix units.
    memory_bandwidth:
        Bytes per second.
    source:
        Where the figures come from.
    """

    memory_bytes: int
    peak_flops: float
    memory_bandwidth: float
    source: str


#: By the name that a cluster file would use as device type.
DEVICES = MappingProxyType(
    {
        "a100": CatalogueDevice(80 * _GIB, 312e12, 2.039e12, "NVIDIA A100 data sheet, SXM 80 GB"),
        "h100": CatalogueDevice(
            80 * _GIB, 989e12, 3.35e12, "NVIDIA H100 data sheet, SXM: 1,979 TFLOPS with sparsity, halved"
        ),
        "h800": CatalogueDevice(
            80 * _GIB,
            989e12,
            3.35e12,
            "NVIDIA H800 data sheet, SXM: as H100 but for NVLink (400 GB/s) and float64",
        ),
        "h200": CatalogueDevice(
            141 * _GIB, 989e12, 4.8e12, "NVIDIA H200 data sheet, SXM: 1,979 TFLOPS with sparsity, halved"
        ),
        "b200": CatalogueDevice(
            180 * _GIB,
            2250e12,
            7.7e12,
            "NVIDIA HGX B200 data sheet, an eighth: 36 PFLOPS with sparsity, 62 TB/s",
        ),
        "mi300x": CatalogueDevice(192 * _GIB, 1307.4e12, 5.3e12, "AMD Instinct MI300X data sheet"),
    }
)
