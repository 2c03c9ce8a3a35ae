"""A matplotlib backend whose `show()` hands figures to the kernel.

matplotlib loads it by name (`MPLBACKEND=module://...`) and asks for its classes, which are made only then: the module
itself must load without matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable

_NAMES = ("FigureCanvas", "FigureManager")

_shower: list[Callable[[], None]] = []


def on_show(show: Callable[[], None]) -> None:
    """Sets the function for `plt.show()` and `figure.show()`. One per process, as pyplot's own figures are."""
    _shower[:] = [show]


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(zip(_NAMES, _make_classes(), strict=True))
    return globals()[name]


def _make_classes() -> tuple[type, type]:
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    class FigureManager(FigureManagerBase):
        def show(self) -> None:
            _shower[0]()

        @classmethod
        def pyplot_show(cls, *, block: bool | None = None) -> None:  # noqa: ARG003  (pyplot passes it)
            _shower[0]()

    class FigureCanvas(FigureCanvasAgg):
        manager_class = FigureManager

    return FigureCanvas, FigureManager
