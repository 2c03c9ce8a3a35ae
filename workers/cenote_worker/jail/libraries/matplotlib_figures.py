"""matplotlib's figures as PNG, without importing matplotlib for those who don't use it."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING

from cenote_security.former_names import MOVED
from cenote_worker.jail.libraries import matplotlib_backend
from cenote_worker.jail.rendering.bounded_text import bases
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__builtins__ = BUILTINS

_SCHEME = "module://"
_BACKEND = f"{_SCHEME}{matplotlib_backend.__name__}"
_MOST_PIXELS = 8_000_000
_modules = sys.modules
_NO_SCREEN = ".*is non-interactive, and thus cannot be shown"
re.compile(_NO_SCREEN, re.IGNORECASE)  # into the module's cache: see ProcessState


def select_backend() -> None:
    """Makes pyplot draw into images. `plt.show()` passes them on, without a warning about the missing screen."""
    os.environ["MPLBACKEND"] = _BACKEND
    if (matplotlib := _modules.get("matplotlib")) is not None:
        matplotlib.rcParams["backend"] = _BACKEND
    # `matplotlib.use("Agg")` is a habit of scripts; their figures are shown at the end of the cell instead.
    warnings.filterwarnings("ignore", message=_NO_SCREEN)


def present_backend(stored: object) -> object:
    """The current name of a stored backend: an earlier version may have had its module elsewhere."""
    if not isinstance(stored, str) or not stored.startswith(_SCHEME):
        return stored
    module = stored.removeprefix(_SCHEME)
    return f"{_SCHEME}{MOVED.get(module, module)}"


def open_figures() -> list[Figure]:
    """pyplot's figures, oldest first; empty unless a cell uses pyplot."""
    helpers = _modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]


def close_figures(figures: list[Figure]) -> None:
    """Removes figures from pyplot, so that the next `plt` call starts a new one. The objects stay alive."""
    for figure in figures:
        _modules["matplotlib.pyplot"].close(figure)


def is_figure(obj: object) -> bool:
    module = _modules.get("matplotlib.figure")
    return module is not None and module.Figure in bases(type(obj))


def figure_png(obj: object) -> bytes:
    """The figure as PNG, cut to what is drawn, at a lower resolution when it would be enormous."""
    figure: Figure = obj  # type: ignore[assignment]
    width, height = figure.get_size_inches()
    dpi = min(figure.dpi, (_MOST_PIXELS / max(width * height, 0.01)) ** 0.5)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dpi, bbox_inches="tight")
    return target.getvalue()
