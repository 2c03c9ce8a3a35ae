"""Adaptations of libraries when they are loaded, so that they behave as in a notebook.

A finder in front of the others passes a listed module to its function as soon as it has run. It also provides a
substitute for IPython if that is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from cenote_worker.jail.cells import ipython, subprocesses_unsafe
from cenote_worker.jail.cells.ipython import Shell
from cenote_worker.jail.cells.magics import Magics
from cenote_worker.jail.output.display import Displays
from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_CELL: Final = "<cell "
_PICTURES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}
_MOST_READ: Final = 64 * 2**20
"""Bytes of a file that is read. Displayed objects have limits of their own."""


class Browser:
    """The replacement for `webbrowser`: a file is displayed, an address is printed."""

    def __init__(self, displays: Displays) -> None:
        self._displays = displays

    def open(self, url: str, *_args: object, **_options: object) -> bool:
        text = bounded_str(url, 2_000)
        parts = urlsplit(text)
        if parts.scheme not in ("", "file"):
            self._displays.note(f"there is no browser to open {text} in")
            return False
        path = unquote(parts.path)
        kind = os.path.splitext(path)[1].lower()  # noqa: PTH122  (without pathlib's properties, which a cell may set)
        try:
            with open(path, "rb") as file:
                data = file.read(_MOST_READ)
        except OSError as error:
            self._displays.note(f"{path} cannot be opened: {error.strerror}")
            return False
        if kind in _PICTURES:
            self._show({_PICTURES[kind]: data})
        else:
            self.show_page(
                data.decode("utf-8", "replace"), "image/svg+xml" if kind == ".svg" else "text/html"
            )
        return True

    open_new = open_new_tab = open

    def show_page(self, text: str, kind: str = "text/html") -> None:
        self._show({kind: text})

    def _show(self, forms: dict[str, object]) -> None:
        self._displays.display(forms, raw=True)


class _Adaptions:
    """The adaptations of each module in `names` once it is loaded."""

    def __init__(self, displays: Displays) -> None:
        self._displays = displays
        self._browser = Browser(displays)
        self.names: Final[dict[str, Callable[[Any], None]]] = {
            "IPython.core.display_functions": self._displaying,
            "IPython.core.getipython": lambda module: setattr(module, "get_ipython", ipython.get_ipython),
            "IPython.utils.capture": lambda module: setattr(module, "capture_output", ipython.capture_output),
            "PIL.ImageShow": self._pillow,
            "altair.utils._show": self._opening_pages,
            "multiprocessing.pool": subprocesses_unsafe.fail_with_workers,
            "multiprocessing.reduction": subprocesses_unsafe.send_definitions,
            "numba.core.caching": _cache_cells,
            "plotly.io._base_renderers": self._opening_pages,
            "plotly.io._renderers": self._plotly,
            "webbrowser": self._webbrowser,
        }

    @staticmethod
    def _displaying(module: Any) -> None:
        """An installed IPython displays nothing without its own shell."""
        for name in ("display", "clear_output", "update_display", "publish_display_data", "DisplayHandle"):
            setattr(module, name, getattr(ipython, name))

    def _webbrowser(self, module: Any) -> None:
        module.register("cenote", None, self._browser, preferred=True)

    def _pillow(self, module: Any) -> None:
        displays = self._displays

        class Viewer(module.Viewer):  # type: ignore[misc]
            format = "PNG"

            def show_image(self, image: object, **_options: object) -> int:
                displays.display(image)
                return 1

        module.register(Viewer, 0)

    def _opening_pages(self, module: Any) -> None:
        """They would serve the page on a local port for a browser."""
        browser = self._browser

        def open_html_in_browser(html: str | bytes, *_args: object, **_options: object) -> None:
            browser.show_page(html.decode() if isinstance(html, bytes) else html)

        module.open_html_in_browser = open_html_in_browser

    def _plotly(self, module: Any) -> None:
        """`fig.show()` displays the figure; without IPython and nbformat it would look for a browser."""
        displays, renderers = self._displays, module.renderers

        class Renderer(module.ExternalRenderer):  # type: ignore[misc]
            def render(self, fig_dict: dict[str, Any]) -> None:
                page = sys.modules["plotly.io"].to_html(
                    fig_dict, include_plotlyjs="cdn", full_html=False, validate=False
                )
                traces = [str(trace.get("type", "scatter")) for trace in fig_dict.get("data", ())]
                shown: dict[str, object] = {
                    "text/plain": f"<plotly figure: {', '.join(traces[:20]) or 'no traces'}>"
                }
                shown |= renderers["plotly_mimetype"].to_mimebundle(fig_dict)
                displays.display({**shown, "text/html": page}, raw=True)

        renderers["cenote"] = renderers["browser"] = Renderer()
        if not os.environ.get("PLOTLY_RENDERER"):
            renderers.default = "cenote"


def _cache_cells(module: Any) -> None:
    """`njit(cache=True)`: functions of cells have no file next to which a cache could be stored."""

    base = getattr(module, "IPythonCacheLocator", None) or module._IPythonCacheLocator

    class CellCacheLocator(base):  # type: ignore[misc, valid-type]
        def get_cache_path(self) -> str:
            import tempfile

            return os.path.join(tempfile.gettempdir(), "numba_cache")  # noqa: PTH118

        @classmethod
        def from_function(cls, py_func: object, py_file: str) -> object:
            if not py_file.startswith(_CELL):
                return None
            locator = cls(py_func, py_file)
            locator.ensure_cache_path()
            return locator

    module.CacheImpl._locator_classes.append(CellCacheLocator)


class _StandIn(Loader):
    """Makes a module of IPython's names."""

    def exec_module(self, module: ModuleType) -> None:
        ipython.fill(module)
        if (
            "." not in module.__name__
        ):  # all of them at once, as IPython does: pickles look in the class's own module
            for name in ipython.MODULES:
                importlib.import_module(name)


class LibraryHooks(MetaPathFinder):
    """The finder. One per process, in front: `install`."""

    def __init__(self, displays: Displays, magics: Magics) -> None:
        ipython.use(Shell(displays, magics))
        self._displays = displays
        self._adaptions = _Adaptions(displays).names

    def install(self) -> None:
        sys.meta_path[:] = [self, *(each for each in sys.meta_path if not isinstance(each, LibraryHooks))]
        for name in self._adaptions.keys() & sys.modules.keys():
            self._adapt(sys.modules[name])

    def _adapt(self, module: ModuleType) -> None:
        try:
            self._adaptions[module.__name__](module)
        except Exception as error:  # another version of a library, or a module of the user's with its name
            self._displays.note(
                f"{module.__name__} is not set up for this runtime: {bounded_str(error, 200)}"
            )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._adaptions and fullname not in ipython.MODULES:
            return None
        spec = self._others(fullname, path, target)
        if spec is None and fullname in ipython.MODULES and not self._is_installed(fullname):
            is_package = any(name.startswith(f"{fullname}.") for name in ipython.MODULES)
            return importlib.util.spec_from_loader(fullname, _StandIn(), is_package=is_package)
        if spec is not None and spec.loader is not None and fullname in self._adaptions:
            _run_after(spec.loader, self._adapt)
        return spec

    def _others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                return spec
        return None

    @staticmethod
    def _is_installed(fullname: str) -> bool:
        """Whether the package is installed, and only this module of it is missing."""
        package = sys.modules.get("IPython")
        return "." in fullname and package is not None and not isinstance(package.__loader__, _StandIn)


def _run_after(loader: Any, adapt: Callable[[ModuleType], None]) -> None:
    run = loader.exec_module

    def run_and_adapt(module: ModuleType) -> None:
        run(module)
        adapt(module)

    loader.exec_module = run_and_adapt
