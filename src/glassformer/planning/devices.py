"""What devices can do. Rates marked `measured` were, by `measure` below; the others are what the makers say,
times the shares of it that training was seen to reach on the measured one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from glassformer.core.errors import UsageError, closest

GB, TB, TFLOP = 1e9, 1e12, 1e12


@dataclass(frozen=True)
class Device:
    name: str
    memory: float  # bytes
    matmul: float  # operations a second of large matrix products, bf16 with float32 sums
    bandwidth: float  # bytes a second, read and written
    link: float  # bytes a second to the other devices of a machine, each way
    price: float = 0.0  # dollars an hour: a rough figure of what one is let for; --price says better
    narrow_row: float = 2.5e-9  # seconds for a norm over a row too short to fill the memory's width
    launch: float = 25e-6  # seconds of the host for each kernel
    step: float = 6e-3  # seconds of the host for each step, while the device waits
    sample: float = 25e-6  # and for each sample
    measured: bool = False
    multiplies_fp8: bool = False

    @property
    def attention(self) -> float:
        """Operations a second of the fused kernel, of those that a causal mask leaves."""
        return 0.59 * self.matmul


# Large products reach this share of the peak that data sheets give, and copies this share of the bandwidth.
MATMUL_SHARE, BANDWIDTH_SHARE = 0.76, 0.87


# Of Ada's and later architectures.
FP8 = ("b200", "h100", "l40s", "l4", "rtx-5090", "rtx-4090")


def _sheet(
    name: str, memory: float, tflops: float, tb: float, link: float, price: float
) -> tuple[str, Device]:
    rates = (MATMUL_SHARE * tflops * TFLOP, BANDWIDTH_SHARE * tb * TB, link * GB)
    return name, Device(name, memory * GB, *rates, price, multiplies_fp8=name in FP8)


DEVICES = dict(
    [
        (
            "h200",
            Device(
                "h200", 150 * GB, 750 * TFLOP, 4.2 * TB, 450 * GB, 3.5, measured=True, multiplies_fp8=True
            ),
        ),
        _sheet("b200", 192, 2250, 8.0, 900, 5.5),
        _sheet("h100", 80, 989, 3.35, 450, 2.5),
        _sheet("a100-80gb", 80, 312, 2.04, 300, 1.6),
        _sheet("a100", 40, 312, 1.56, 300, 1.3),
        _sheet("l40s", 48, 362, 0.86, 25, 1.0),
        _sheet("l4", 24, 121, 0.30, 25, 0.6),
        _sheet("a10", 24, 125, 0.60, 25, 0.8),
        _sheet("rtx-5090", 32, 210, 1.79, 25, 0.6),
        _sheet("rtx-4090", 24, 165, 1.01, 25, 0.4),
        _sheet("rtx-3090", 24, 71, 0.94, 25, 0.25),
        _sheet("t4", 16, 65, 0.32, 12, 0.35),
    ]
)


def find(name: str) -> Device:
    if name == "here":
        return measure()
    if name.lower() not in DEVICES:
        names = list(DEVICES)
        hint = closest(name.lower(), names)
        raise UsageError(f"--gpu {name} is not known.{hint} There are: {', '.join(names)}; or here.")
    return DEVICES[name.lower()]


def measure() -> Device:
    """This machine's GPU, or its CPU, by a few seconds of work."""
    import torch  # a plan for another machine does without it

    from glassformer.core.device import multiplies_fp8

    cuda = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)

    def seconds(work: Callable[[], object], times: int) -> float:
        best = float("inf")
        for _ in range(3):
            work()
            torch.cuda.synchronize() if cuda else None
            start = time.perf_counter()
            for _ in range(times):
                work()
            torch.cuda.synchronize() if cuda else None
            best = min(best, (time.perf_counter() - start) / times)
        return best

    n, size = (8192, 1 << 28) if cuda else (1024, 1 << 24)
    a = torch.randn(n, n, device=device, dtype=dtype)
    matmul = 2 * n**3 / seconds(lambda: a @ a, 10)
    b, c = torch.ones(size, device=device), torch.empty(size, device=device)
    bandwidth = 8 * size / seconds(lambda: c.copy_(b), 10)
    if cuda:
        gpu = torch.cuda.get_device_properties(0)
        relative = next((d for name, d in DEVICES.items() if name.split("-")[0].upper() in gpu.name), None)
        memory = float(gpu.total_memory)
        rates = {"matmul": matmul, "bandwidth": bandwidth, "measured": True}
        rates["multiplies_fp8"] = multiplies_fp8(torch.device("cuda"))
        return replace(relative or DEVICES["rtx-4090"], name=gpu.name, memory=memory, **rates)
    memory = 8e9
    info = Path("/proc/meminfo")
    if info.is_file():
        memory = float(info.read_text().split()[1]) * 1024
    # A CPU waits for nothing: its kernels are called, not launched.
    return Device("cpu", memory, matmul, bandwidth, 10 * GB, 0.0, 0.0, 10e-6, 1e-3, 5e-6, measured=True)
