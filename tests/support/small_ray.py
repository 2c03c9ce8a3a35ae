"""A small, quiet Ray cluster for a test's script, in its process."""

from __future__ import annotations

import logging
from pathlib import Path

import ray


def start_ray(folder: Path | str, **more: str) -> None:
    """folder: with a short name, for its sockets."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 2**20,
        _temp_dir=str(folder),
        **more,
    )
