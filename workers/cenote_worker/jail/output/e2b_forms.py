"""Additional data that E2B's clients get for tables and charts; and their limits.

They request it by an environment variable, which the E2B API server sets for its sandboxes. Charts need the package
`e2b-charts`; without it, they are pictures only.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from cenote_worker.jail.libraries.matplotlib_figures import is_figure
from cenote_worker.jail.output.limits import KernelLimits
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

VARIABLE: Final = "CENOTE_E2B_FORMS"
DATA: Final = "e2b/data"
CHART: Final = "e2b/chart"

LIMITS: Final = KernelLimits(value_chars=2**20, message_chars=2**20, display_chars=4 * 2**20)
"""E2B cuts nothing, and its users send values as texts: smolagents its answers as messages."""

_environ = os.environ
_modules = sys.modules


def wanted() -> bool:
    return VARIABLE in _environ


def data_of(obj: Any) -> object:
    """Columns of a frame as lists; None for anything else."""
    pandas = _modules.get("pandas")
    if pandas is None or not isinstance(obj, pandas.DataFrame):
        return None
    from json import loads

    columns = loads(obj.to_json(orient="split", date_format="iso", default_handler=str))
    rows = columns["data"]
    return {str(name): [row[at] for row in rows] for at, name in enumerate(columns["columns"])}


def chart_of(obj: Any) -> object:
    """The data that a matplotlib figure plots; None for anything else, and without the package."""
    if not is_figure(obj):
        return None
    try:
        from e2b_charts import chart_figure_to_dict
    except ImportError:
        return None
    return chart_figure_to_dict(obj)
