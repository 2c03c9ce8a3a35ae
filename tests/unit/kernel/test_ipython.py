"""Code that displays by IPython's names behaves as in a notebook, with or without IPython."""

import base64
import pickle
import sys

import pytest
from tests.unit.kernel.output.test_display import PNG

from cenote_worker.jail.libraries.import_hooks import LibraryHooks


@pytest.mark.parametrize(
    ("code", "mime", "form"),
    [
        ("HTML('<b>x</b>')", "text/html", "<b>x</b>"),
        ("HTML(filename='page.html')", "text/html", "<i>y</i>"),
        ("HTML('page.html')", "text/html", "<i>y</i>"),
        ("Markdown('**x**')", "text/markdown", "**x**"),
        ("Latex('$x$')", "text/latex", "$x$"),
        ("Math('x^2')", "text/latex", "$\\displaystyle x^2$"),
        ("SVG(data='<svg/>')", "image/svg+xml", "<svg/>"),
        ("JSON({'a': 1})", "application/json", '{"a": 1}'),
        ("Javascript('f()')", "application/javascript", "f()"),
        ("Image(data=png)", "image/png", PNG),
        ("Image('dot.png', width=3)", "image/png", PNG),
        ("Image(filename='dot.png')", "image/png", PNG),
        ("Image(b'\\xff\\xd8x')", "image/jpeg", b"\xff\xd8x"),
        ("Image(url='https://x.org/a.png', width=3)", "text/html", '<img src="https://x.org/a.png" width="3"/>'),
        ("Audio([0.0, 0.5], rate=8000)", "text/html", '<audio controls src="data:audio/wav;base64,'),
        ("FileLink('dot.png')", "text/html", "<a href='dot.png' target='_blank'>dot.png</a>"),
        ("YouTubeVideo('abc')", "text/html", '<iframe width="400" height="300" src="https://www.youtube.com/embed/abc"'),
    ],
)  # fmt: skip
def test_objects_have_their_forms(good, sink, tmp_path, code, mime, form):
    (tmp_path / "dot.png").write_bytes(PNG)
    (tmp_path / "page.html").write_text("<i>y</i>")
    good(f"from IPython.display import *\npng = {PNG!r}\nshown = {code}\ndisplay(shown)\nshown")
    assert 2 == len(sink.displays)
    assert {True} == {shown[mime][: len(form)] == form for shown in sink.displays}


def test_the_function_is_the_builtin(good, sink):
    good("from IPython.display import display as named, HTML\nnamed(HTML('x')); display(HTML('x'))")
    assert sink.displays[0] == sink.displays[1] == {
        "text/plain": "<IPython.core.display.HTML object>", "text/html": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "from IPython.core.display import HTML, display",
        "import IPython; HTML, display = IPython.display.HTML, IPython.display.display",
        "import IPython.display as shown; HTML, display = shown.HTML, shown.display",
        "from IPython import display as shown; HTML, display = shown.HTML, shown.display",
        "from IPython.core.display_functions import display; from IPython.core.display import HTML",
    ],
)
def test_every_way_to_import_it(good, sink, line):
    good(f"import IPython.display\n{line}\ndisplay(HTML('x'))")
    assert "x" == sink.displays[0]["text/html"]


@pytest.mark.parametrize("function", ["display_html", "display_markdown"])
def test_one_form_of_an_object(good, sink, function):
    good(
        "class Both:\n    def __repr__(self): return 'B'\n    def _repr_html_(self): return 'h'\n"
        f"    def _repr_markdown_(self): return 'm'\nfrom IPython.display import {function}\n{function}(Both())"
    )
    mime = function.replace("display_", "text/")
    assert [{"text/plain": "B", mime: mime[5]}] == sink.displays


def test_bundles_are_displayed_as_they_are(good, sink):
    good("from IPython.display import publish_display_data\nb = {'text/plain': 'p', 'text/html': 'h'}\n"
         "display(b, raw=True); publish_display_data(b); display({'text/html': 'h'}, raw=True)")  # fmt: skip
    bundle = {"text/plain": "p", "text/html": "h"}
    assert [bundle, bundle, {"text/plain": "<text/html>", "text/html": "h"}] == sink.displays


def test_what_is_no_bundle_is_refused(failing):
    assert "raw=True displays a dictionary" in failing("display('x', raw=True)").message


class TestPlaces:
    def test_a_display_is_replaced(self, good, sink):
        good("h = display('a', display_id=True)\ndisplay('other')\nh.update('b')\nh")
        assert [{"text/plain": "'b'"}, {"text/plain": "'other'"}] == sink.displays

    def test_by_its_id(self, good, sink):
        good(
            "from IPython.display import update_display\ndisplay('a', display_id='mine')\n"
            "for i in range(100): update_display(i, display_id='mine')"
        )
        assert ([{"text/plain": "99"}], "") == (sink.displays, sink.err)

    def test_a_handle_without_an_object(self, good, sink):
        good("h = display(display_id='x')\nh.display('a'); h.update('b')")
        assert [{"text/plain": "'b'"}] == sink.displays

    @pytest.mark.parametrize("told", ["5", "'x' * 300"])
    def test_an_id_is_a_short_text(self, failing, told):
        assert "display_id is True or a string" in failing(f"display(1, display_id={told})").message

    def test_progress_bars_have_one_place(self, good, sink):
        good("from IPython.display import ProgressBar\nfor i in ProgressBar(3): pass")
        assert [f"[{'=' * 60}] 3/3"] == [shown["text/plain"] for shown in sink.displays]


class TestClearing:
    def test_what_came_before_is_gone(self, good, sink):
        good("import sys\nprint('a'); print('e', file=sys.stderr); display(1)\n"
             "from IPython.display import clear_output\n"
             "clear_output(); print('b')")  # fmt: skip
        assert ("b\n", "", []) == (sink.out, sink.err, sink.displays)

    def test_it_may_wait_for_what_comes_next(self, good, sink):
        good(
            "from IPython.display import clear_output\nfor i in range(3):\n    clear_output(wait=True); print(i)"
        )
        assert "2\n" == sink.out
        good("clear_output(wait=True)")
        good("print(3)")
        assert "2\n3\n" == sink.out

    def test_each_frame_of_many(self, good, sink):
        """The limit of displays of a cell is counted from the last clearing."""
        good("from IPython.display import clear_output\nfor i in range(300):\n"
             "    clear_output(wait=True); display(i)")  # fmt: skip
        assert ([{"text/plain": "299"}], "") == (sink.displays, sink.err)
        good("for i in range(300): display(i, clear=True)")
        assert [{"text/plain": "299"}] == sink.displays


def test_output_is_captured(good, sink):
    good(
        "from IPython.utils.capture import capture_output\nwith capture_output() as cap:\n"
        "    print('x'); display('y')\nprint(cap.stdout, len(cap.outputs))"
    )
    assert ("x\n 1\n", []) == (sink.out, sink.displays)
    good("cap.show()")
    assert [{"text/plain": "'y'"}] == sink.displays


def test_exported_notebooks_run(good, sink, kernel):
    """`get_ipython` needs no import."""
    good(
        "get_ipython().run_line_magic('matplotlib', 'inline')\nget_ipython().system('echo a')\n"
        "x = get_ipython().getoutput('echo b')\nget_ipython().run_cell_magic('bash', '', 'echo c')"
    )
    assert ("a\nc\n", ["b"]) == (sink.out, kernel.namespace["x"])
    assert "True" == good("from IPython import get_ipython as other\nother() is get_ipython()").value


def test_objects_that_show_themselves(good, sink):
    """`_ipython_display_` is called instead of the other methods, once."""
    code = (
        "class Own:\n    def _ipython_display_(self): print('shown'); display({'text/html': 'h'}, raw=True)\n"
        "    def _repr_html_(self): return 'other'\n"
    )
    good(f"{code}Own()")
    good("display(Own())")
    assert ("shown\nshown\n", ["h", "h"]) == (sink.out, [shown["text/html"] for shown in sink.displays])


def test_objects_that_fail_to_show_themselves_come_in_their_other_forms(good, sink):
    good("class Own:\n    def _ipython_display_(self): 1/0\n    def _repr_html_(self): return 'other'\nOwn()")
    assert "other" == sink.displays[0]["text/html"]
    assert "Own._ipython_display_ raised ZeroDivisionError" in sink.err


def test_objects_are_pickled_by_their_names(good, kernel):
    """So that they can be sent to other processes."""
    good("from IPython.display import HTML\nkept = HTML('x')")
    assert "x" == pickle.loads(pickle.dumps(kernel.namespace["kept"])).data


def test_what_is_installed_is_used(good, sink, tmp_path):
    """Its objects are used, and display here."""
    package = tmp_path / "IPython"
    (package / "core").mkdir(parents=True)
    (package / "__init__.py").write_text("own = True\n")
    (package / "core/__init__.py").touch()
    (package / "core/display_functions.py").write_text("def display(*objs, **options): print(*objs)\n")
    (package / "display.py").write_text("from IPython.core.display_functions import *\n")
    good("import IPython, IPython.display\nIPython.display.display('x')\nIPython.own")
    assert ("", [{"text/plain": "'x'"}]) == (sink.out, sink.displays)


def test_the_finder_stands_in_front_once(good, kernel):
    good("import IPython")
    assert [0] == [at for at, finder in enumerate(sys.meta_path) if isinstance(finder, LibraryHooks)]


def test_base64_pictures_are_decoded(good, sink):
    data = base64.b64encode(PNG).decode()
    good(f"display({{'image/png': {data!r}}}, raw=True)")
    assert PNG == sink.displays[0]["image/png"]
