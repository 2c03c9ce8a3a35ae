"""Names in a text: code that looks them up through a frame counts as reading them."""

from __future__ import annotations

import pytest
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import ANYTHING, name

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("code", ["f.query('a > @limit')", "f.query(text)", "f.eval('b = a + @limit')"])
def test_an_expression_of_pandas_depends_on_what_it_names(steps: Steps, code: str) -> None:
    steps.good(
        "import pandas as pd\nf = pd.DataFrame({'a': [1, 2]})\nlimit, other, text = 1, 2, 'a > @limit'"
    )
    trace = steps.good(f"rows = {code}")
    assert (True, False) == (name("limit") in trace.reads, name("other") in trace.reads)
    assert () == trace.opaque


def test_what_a_function_in_an_expression_changes_is_seen(steps: Steps) -> None:
    steps.good("import pandas as pd\nf = pd.DataFrame({'a': [1, 2]})\nseen = []")
    steps.good("def positive(column):\n    seen.append(1)\n    return column > 0")
    assert name("seen") in steps.good("f.query('@positive(a)')").mutated


def test_a_model_depends_on_what_its_annotations_name(steps: Steps) -> None:
    steps.good("from pydantic import BaseModel\nKind, other = int, 2")
    trace = steps.good("class Model(BaseModel):\n    one: 'Kind'\n    two: list['Kind'] = []")
    assert (True, False) == (name("Kind") in trace.reads, name("other") in trace.reads)
    assert () == trace.opaque


def test_a_text_that_imports_names_of_the_users_may_touch_anything(steps: Steps) -> None:
    steps.good("import timeit\nbox = []")
    trace = steps.good("timeit.timeit('box.append(1)', 'from __main__ import box', number=1)")
    assert ANYTHING in trace.reads
