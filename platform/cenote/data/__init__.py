"""Ray Datasets, worked through by code that is not trusted: each batch inside a jail, next to where it lies.

Ray itself loads on the first call.
"""

from __future__ import annotations

from cenote.data.batches import failed_rows, map_batches
from cenote.data.datasets import Datasets
from cenote.data.errors import BatchFailedError, SchemaMismatchError

__all__ = ["BatchFailedError", "Datasets", "SchemaMismatchError", "failed_rows", "map_batches"]
