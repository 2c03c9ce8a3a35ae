"""What a cell did to the names, in one line."""

import time

import pytest

from cenote_worker.in_jail.delta import bindings, delta


@pytest.fixture
def changes(good, kernel):
    def run(code):
        before = bindings(kernel.namespace)
        good(code)
        return delta(before, kernel.namespace)

    return run


def test_new_rebound_and_removed_names(changes, good):
    good("n = 1\ntmp = 2\nsame = [3]")
    assert "~ n int; + items list (2,); - tmp" == changes(
        "n = 1.5; n = 7\nitems = [1, 2]\ndel tmp\nsame.append(4)"
    )


def test_nothing_changed(changes, good):
    good("n = 1")
    assert "" == changes("print(n)\n_x = 1\nimport os\n5")


def test_shapes(changes):
    pytest.importorskip("pandas")
    assert "+ df DataFrame (2, 1)" == changes("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})")


def test_many_changes_are_cut(changes):
    assert changes("globals().update({f'v{i}': i for i in range(100)})").endswith("; ... 80 more")


def test_no_value_is_kept_alive(good, kernel):
    """Or a cell that replaces a large frame would need twice the memory."""
    good("class C:\n    def __del__(self): gone.append(1)\ngone = []\nc = C()")
    before = bindings(kernel.namespace)
    good("c = None")
    assert [1] == kernel.namespace["gone"]
    assert delta(before, kernel.namespace).startswith("~ c NoneType")


def test_hostile_values(changes):
    assert "+ C type; + c C" == changes(
        "class C:\n    def __len__(self): raise SystemExit\n    __eq__ = __hash__ = __repr__ = __len__\nc = C()"
    )


def test_is_cheap(good, kernel):
    """Two hundred names take less than a millisecond, on the busiest machine."""
    good("globals().update({f'v{i}': [i] for i in range(200)})")
    assert 0.1 > min(_seconds_of_100(kernel.namespace) for _ in range(5))


def _seconds_of_100(namespace):
    started = time.process_time()
    for _ in range(100):
        delta(bindings(namespace), namespace)
    return time.process_time() - started
