"""Builds the one compiled file, `workers/cenote_worker/image/image.c`, with the compiler of the `ziglang` wheel.

So no machine needs a compiler of its own, and the same source gives the same bytes everywhere. The file uses no C
library, and one wheel serves each Linux on x86-64. Elsewhere there is none, and forks go by value.

    python hatch_build.py [TARGET]     builds it alone
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "workers" / "cenote_worker" / "image"
LIBRARY = FOLDER / "libcenote-image.so"
TAG = "py3-none-manylinux_2_17_x86_64"

FLAGS = (
    "-target", "x86_64-linux-gnu.2.17", "-mcpu=x86_64", "-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror",
    "-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fno-sanitize=all", "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-fPIC", "-shared", "-nostdlib",
    "-Wl,-Bsymbolic", "-Wl,--build-id=none", "-s",
)  # fmt: skip


def compile_to(target: Path) -> None:
    """Raises subprocess.CalledProcessError, with what the compiler says on standard error."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("ziglang is not installed: pip install ziglang")
    headers = Path(found.origin).parent / "lib" / "libc" / "include"
    kernel = [f"-isystem{headers / name}" for name in ("x86-linux-any", "any-linux-any")]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        # By a relative path, which is in the file otherwise.
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            *FLAGS,
            *kernel,
            "-o",
            str(target.resolve()),
            "image.c",
        ]
        subprocess.run(command, check=True, cwd=FOLDER, env=environment)  # noqa: S603


def is_built() -> bool:
    return LIBRARY.exists() and LIBRARY.stat().st_mtime >= (FOLDER / "image.c").stat().st_mtime


def is_for_this_machine() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # the file is run by itself
    pass
else:

    class ImageBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """Of wheels, editable ones too."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
            if self.target_name != "wheel" or not is_for_this_machine():
                return
            # A build without isolation takes what an editable install has built from this source.
            if importlib.util.find_spec("ziglang") is not None or not is_built():
                compile_to(LIBRARY)
            build_data["pure_python"], build_data["tag"] = False, TAG


if __name__ == "__main__":
    compile_to(Path(sys.argv[1]) if sys.argv[1:] else LIBRARY)
