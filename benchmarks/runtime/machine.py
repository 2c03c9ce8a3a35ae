"""One line about the machine, printed with the figures."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from benchmarks.runtime.process_tree import total_memory


def machine_line() -> str:
    gib = total_memory() / 2**30
    system = f"{platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} CPUs, {gib:.0f} GiB, {system}, {python}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
