"""Displayed objects come in their richest forms, bounded, whatever their methods do."""

import base64

import pytest

from cenote_worker.jail.kernel import Kernel, KernelLimits

PNG = b"\x89PNG\r\n\x1a\n"

RICH = """
class Rich:
    def __repr__(self): return 'Rich()'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_markdown_(self): return '**rich**'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'
    def _repr_latex_(self): return '$r$'
    def _repr_json_(self): return {'a': 1}
"""


def test_text_is_always_there(good, sink):
    good("display('a', [1])")
    assert [{"text/plain": "'a'"}, {"text/plain": "[1]"}] == sink.displays


def test_all_forms(good, sink):
    good(f"{RICH}display(Rich())")
    expected = {
        "text/plain": "Rich()", "text/html": "<b>rich</b>", "text/markdown": "**rich**", "text/latex": "$r$",
        "image/svg+xml": "<svg/>", "image/png": PNG, "application/json": '{"a": 1}',
    }  # fmt: skip
    assert [expected] == sink.displays


def test_a_rich_last_value_is_displayed_too(good, sink):
    assert "Rich()" == good(f"{RICH}Rich()").value
    assert "<b>rich</b>" == sink.displays[0]["text/html"]


def test_a_plain_last_value_is_not_displayed(good, sink):
    good("[1, 2]")
    assert [] == sink.displays


@pytest.mark.parametrize(
    ("bundle", "expected"),
    [
        ("{'text/html': 'x', 'text/plain': 'ignored', 'no type': 'y'}", {"text/html": "x"}),
        ("({'text/html': 'x'}, {'meta': 1})", {"text/html": "x"}),
        (f"{{'image/png': {base64.b64encode(PNG).decode()!r}}}", {"image/png": PNG}),
        ("{'application/json': {'a': [1]}, 5: 'x', 'x/y': None}", {"application/json": '{"a": [1]}'}),
        ("'nonsense'", {}),
        ("{f'a/{i}': 'x' for i in range(1000)}", {f"a/{i}": "x" for i in range(16)}),
    ],
)
def test_mime_bundles(good, sink, bundle, expected):
    good(
        f"class B:\n    def __repr__(self): return 'B'\n"
        f"    def _repr_mimebundle_(self, include=None, exclude=None): return {bundle}\ndisplay(B())"
    )
    assert [{"text/plain": "B", **expected}] == sink.displays


def test_numbers_that_json_does_not_have_are_null(good, sink):
    good(
        "class R:\n    def __repr__(self): return 'R'\n"
        "    def _repr_json_(self): return {'a': [float('nan'), 1.5], 'b': {'c': float('-inf')}, 'd': (1, True)}\n"
        "display(R())"
    )
    assert '{"a": [null, 1.5], "b": {"c": null}, "d": [1, true]}' == sink.displays[0]["application/json"]


@pytest.mark.parametrize(
    ("method", "note"),
    [
        ("def _repr_html_(self): raise ValueError('no')", "display: Bad._repr_html_ raised ValueError: no\n"),
        ("def _repr_html_(self): raise SystemExit", "display: Bad._repr_html_ raised SystemExit: \n"),
        ("def _repr_html_(self): return 5", ""),
        ("def _repr_html_(self): return None", ""),
        ("def _repr_png_(self): return 'abc'", "display: image/png raised Error: Incorrect padding\n"),
        (
            "def _repr_json_(self): return {1: {2}}",
            "display: application/json raised TypeError: Object of type set is not JSON serializable\n",
        ),
        ("_repr_html_ = 5", "display: Bad._repr_html_ raised TypeError: 'int' object is not callable\n"),
        ("_repr_html_ = None", ""),
    ],
)
def test_failing_methods_leave_the_text(good, sink, method, note):
    """The error is a note on stderr; the cell succeeds."""
    good(f"class Bad:\n    def __repr__(self): return 'Bad'\n    {method}\ndisplay(Bad())")
    assert [{"text/plain": "Bad"}] == sink.displays
    assert note == sink.err


def test_objects_that_offer_every_attribute_offer_no_form(good, sink):
    """The class is asked, since a proxy or a mock has any attribute."""
    good(
        "class Proxy:\n    def __repr__(self): return 'Proxy'\n"
        "    def __getattr__(self, name): return lambda **k: 'x'\n"
        "display(Proxy(), Proxy)"
    )
    assert ["text/plain"] == list(sink.displays[0])


def test_classes_are_not_their_instances(good, sink):
    good(f"{RICH}Rich")
    assert [] == sink.displays


def test_surrogates_are_written_out(good, sink):
    good("class S:\n    def _repr_html_(self): return '\\ud800'\ndisplay(S())")
    assert "\\ud800" == sink.displays[0]["text/html"]


def test_large_forms_are_left_out(sink, process):
    """A truncated representation would be broken; the text stays."""
    kernel = Kernel(sink, limits=KernelLimits(display_chars=10, display_bytes=10))
    kernel.run_cell(
        "class L:\n    def __init__(self, n): self.n = n\n    def __repr__(self): return 'L'\n"
        "    def _repr_html_(self): return 'x' * self.n\n    def _repr_png_(self): return b'x' * self.n\n"
        "display(L(10), L(11))",
        1,
    )
    assert [
        {"text/plain": "L", "text/html": "x" * 10, "image/png": b"x" * 10},
        {"text/plain": "L"},
    ] == sink.displays
    assert "display: text/html of 11 characters left out\n" in sink.err
    assert "display: image/png of 11 bytes left out\n" in sink.err


def test_so_many_per_cell(sink, process):
    kernel = Kernel(sink, limits=KernelLimits(displays=3))
    kernel.run_cell("display(1, 2, 3)", 1)
    assert (3, "") == (len(sink.displays), sink.err)
    kernel.run_cell("display(*range(100))", 2)
    assert (6, 1) == (len(sink.displays), sink.err.count("only the first 3 displayed objects"))


def test_frames_have_html(good, sink):
    pytest.importorskip("pandas")
    assert "   a\n0  1" == good("import pandas as pd\npd.DataFrame({'a': [1]})").value
    assert "<table" in sink.displays[0]["text/html"]


class TestFigures:
    @pytest.fixture(autouse=True)
    def pyplot(self, good):
        pytest.importorskip("matplotlib")
        good(
            "import matplotlib\nimport matplotlib.pyplot as plt\n"
            "plt.switch_backend('module://cenote_worker.jail.libraries.matplotlib_backend')"
        )

    def test_show_hands_over_the_figure(self, good, sink):
        good("plt.plot([1, 2])\nplt.show()\nprint('after')\nplt.gcf().number")
        assert PNG == sink.displays[0]["image/png"][:8]
        assert sink.displays[0]["text/plain"].startswith("<Figure size 640x480")
        assert "" == sink.err

    def test_open_figures_come_at_the_end(self, good, sink):
        """Each once, then they are closed: the next cell starts a new one."""
        good("for _ in range(2):\n    plt.figure(); plt.plot([1])")
        assert 2 == len(sink.displays)
        assert "[]" == good("plt.get_fignums()").value
        good("1")
        assert 2 == len(sink.displays)

    def test_a_figure_as_last_value_comes_once(self, good, sink):
        good("fig, ax = plt.subplots()\nfig")
        assert 1 == len(sink.displays)
        good("ax.plot([1])\nfig")
        assert 2 == len(sink.displays)

    def test_a_displayed_figure_comes_once(self, good, sink):
        good("fig, ax = plt.subplots()\ndisplay(fig)")
        assert 1 == len(sink.displays)

    def test_figures_of_a_failing_cell_come_too(self, failing, sink):
        failing("plt.plot([1])\n1/0")
        assert 1 == len(sink.displays)

    def test_fig_show(self, good, sink):
        good("fig = plt.figure()\nfig.show()")
        assert (1, "") == (len(sink.displays), sink.err)

    def test_agg_chosen_by_a_script(self, good, sink):
        """Its `plt.show()` must not warn; the figure comes at the end of the cell."""
        good("matplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()")
        assert (1, "") == (len(sink.displays), sink.err)

    def test_an_enormous_figure_is_made_smaller(self, good, sink):
        good("plt.figure(figsize=(400, 400), dpi=1000)\nplt.plot([1])")
        assert 4 * 2**20 > len(sink.displays[0]["image/png"])

    def test_a_figure_that_cannot_be_drawn_is_a_note(self, good, sink):
        good("plt.title('$\\\\nope$')")
        assert "the figure raised ValueError" in sink.err

    def test_pretended_modules_harm_nothing(self, good):
        good(
            "import sys\nname = 'matplotlib._pylab_helpers'\nreal = sys.modules[name]\nsys.modules[name] = 5"
        )
        good("sys.modules[name] = real")
