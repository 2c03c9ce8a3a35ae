"""Libraries that would open a window or a page display their output. Those not installed have doubles here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from tests.unit.kernel.output.test_display import PNG

PLOTLY = {
    "plotly/__init__.py": "",
    "plotly/io/__init__.py": """
        from plotly.io._renderers import renderers, show
        def to_html(fig, include_plotlyjs, full_html, validate): return f'<div>{include_plotlyjs}</div>'
        """,
    "plotly/io/_base_renderers.py": "def open_html_in_browser(html, using=None, new=0): raise OSError('no port')\n",
    "plotly/io/_renderers.py": """
        from plotly.io import _base_renderers
        class ExternalRenderer: pass
        class PlotlyRenderer:
            def to_mimebundle(self, fig): return {'application/vnd.plotly.v1+json': fig}
        class Renderers(dict): default = None
        renderers = Renderers(plotly_mimetype=PlotlyRenderer())
        def show(fig, renderer=None): renderers[renderer or renderers.default].render(fig)
        """,
}
"""The parts of plotly 7 that `fig.show()` uses."""

NUMBA = {
    "numba/__init__.py": "",
    "numba/core/__init__.py": "",
    "numba/core/caching.py": """
        import hashlib, inspect, os
        class IPythonCacheLocator:
            def __init__(self, py_func, py_file): self._source = inspect.getsource(py_func)
            def get_cache_path(self): raise ImportError('IPython.paths')
            def ensure_cache_path(self): os.makedirs(self.get_cache_path(), exist_ok=True)
            @classmethod
            def from_function(cls, py_func, py_file): return None
        class CacheImpl:
            _locator_classes = [IPythonCacheLocator]
            def __init__(self, py_func):
                found = (each.from_function(py_func, inspect.getfile(py_func)) for each in self._locator_classes)
                self.locator = next((each for each in found if each is not None), None)
                if self.locator is None: raise RuntimeError('cannot cache function: no locator available')
        """,
}

Package = Callable[[dict[str, str]], None]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """Writes files of a library to a place that cells import from."""

    def write(files: dict[str, str]) -> None:
        for name, source in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(source))

    return write


@pytest.mark.parametrize("argument", ["", "renderer='browser'"])
def test_plotly(good, sink, package, argument):
    package(PLOTLY)
    good(f"import plotly.io as pio\npio.show({{'data': [{{'type': 'bar'}}]}}, {argument})")
    assert [
        {
            "text/plain": "<plotly figure: bar>",
            "application/vnd.plotly.v1+json": '{"data": [{"type": "bar"}]}',
            "text/html": "<div>cdn</div>",
        }
    ] == sink.displays


def test_a_renderer_that_the_user_has_chosen_stays(good, package, monkeypatch):
    monkeypatch.setenv("PLOTLY_RENDERER", "png")
    package(PLOTLY)
    assert "True" == good("import plotly.io as pio\npio.renderers.default is None").value


@pytest.mark.parametrize("module", ["plotly/io/_base_renderers.py", "altair/utils/_show.py"])
def test_pages_that_would_be_served_to_a_browser(good, sink, package, module):
    package({"altair/__init__.py": "", "altair/utils/__init__.py": "", **PLOTLY})
    package({module: "def open_html_in_browser(html, using=None, port=None): raise OSError('no port')\n"})
    name = module.removesuffix(".py").replace("/", ".")
    good(f"from {name} import open_html_in_browser\nopen_html_in_browser('<b>x</b>')")
    assert "<b>x</b>" == sink.displays[0]["text/html"]


def test_charts_that_ask_ipython(good, sink):
    """As altair does."""
    good(
        "class Chart:\n    def __repr__(self): return 'Chart'\n"
        "    def _repr_mimebundle_(self, **_): return {'application/vnd.vegalite.v6+json': {'a': 1}}, {}\n"
        "    def show(self):\n        from IPython.display import display\n        display(self)\nChart().show()"
    )
    assert [{"text/plain": "Chart", "application/vnd.vegalite.v6+json": '{"a": 1}'}] == sink.displays


class TestBrowser:
    def test_a_file_is_displayed(self, good, sink, tmp_path):
        """As bokeh and folium open theirs."""
        (tmp_path / "a page.html").write_text("<b>x</b>")
        assert "True" == good(f"import webbrowser\nwebbrowser.open('file://{tmp_path}/a%20page.html')").value
        assert "True" == good("webbrowser.get().open_new_tab('a page.html')").value
        assert ["<b>x</b>"] * 2 == [shown["text/html"] for shown in sink.displays]

    def test_a_picture(self, good, sink, tmp_path):
        (tmp_path / "a.png").write_bytes(PNG)
        good("import webbrowser\nwebbrowser.open('a.png')")
        assert PNG == sink.displays[0]["image/png"]

    def test_an_address_is_named(self, good, sink):
        assert "False" == good("import webbrowser\nwebbrowser.open('http://127.0.0.1:8050/')").value
        assert "display: there is no browser to open http://127.0.0.1:8050/ in\n" == sink.err

    def test_a_file_that_is_not_there(self, good, sink):
        assert "False" == good("import webbrowser\nwebbrowser.open('file:///nothing.html')").value
        assert "display: /nothing.html cannot be opened: No such file or directory\n" == sink.err


def test_pillow(good, sink):
    pytest.importorskip("PIL")
    good("from PIL import Image\nImage.new('RGB', (2, 2)).show()\nImage.new('CMYK', (2, 2)).show('title')")
    assert [PNG, PNG] == [shown["image/png"][:8] for shown in sink.displays]


def test_functions_of_cells_are_cached(good, package, monkeypatch, tmp_path):
    """As `njit(cache=True)` caches them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    package(NUMBA)
    good("from numba.core.caching import CacheImpl\ndef f(x): return x\ncached = CacheImpl(f)")
    assert repr(str(tmp_path / "numba_cache")) == good("cached.locator.get_cache_path()").value
    assert (tmp_path / "numba_cache").is_dir()


def test_a_module_of_the_users_with_such_a_name_is_imported(good, sink, package):
    package({"webbrowser.py": "mine = 5\n"})
    good("import sys\nsys.path.insert(0, '')")
    assert "5" == good("import webbrowser\nwebbrowser.mine").value
    assert "webbrowser is not set up for this runtime" in sink.err
