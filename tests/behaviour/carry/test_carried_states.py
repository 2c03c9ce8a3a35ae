"""State without a name, carried over from a former state."""

from __future__ import annotations

import pytest
from tests.support.carry.moves import carry, ran, versions

from cenote.runtime import PythonRuntime
from cenote_worker.execution.trace import HIDDEN, hidden

CHANGES = {
    "random": "import random\nrandom.seed(5)",
    "numpy.random": "import numpy as np\nnp.random.seed(5)",
    "environ": "import os\nos.environ['COLOUR'] = 'red'",
    "cwd": "import os\nos.makedirs('below', exist_ok=True)\nos.chdir('below')",
    "sys.path": "import sys\nsys.path.append('more')",
    "warnings": "import warnings\nwarnings.simplefilter('error', ResourceWarning)",
    "logging": "import logging\nlogging.getLogger('a.b').setLevel(10)\nlogging.getLogger().setLevel(40)\n"
    "logging.getLogger('quiet').addHandler(logging.NullHandler())",
    "locale": "import locale\nlocale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "process": "__name__ = 'other'\n__package__ = 'home'",
    "decimal": "import decimal\ndecimal.getcontext().prec = 5",
    "numpy": "import numpy as np\nnp.set_printoptions(precision=2)\nnp.seterr(all='raise')",
    "pandas": "import pandas as pd\npd.set_option('display.max_rows', 7)",
    "matplotlib": "import matplotlib\nmatplotlib.rcParams['lines.linewidth'] = 9",
    "torch": "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_printoptions(precision=2)",
    "torch.random": "import torch\ntorch.manual_seed(5)",
}
BACK = {
    "random": "random.random()",
    "numpy.random": "np.random.random()",
    "environ": "del os.environ['COLOUR']",
    "cwd": "os.chdir('..')",
    "sys.path": "sys.path.remove('more')",
    "warnings": "warnings.resetwarnings()",
    "logging": "logging.getLogger('a.b').setLevel(0)\nlogging.getLogger('c').setLevel(20)\n"
    "logging.getLogger('quiet').handlers.clear()\nlogging.getLogger('a.b').addHandler(logging.NullHandler())",
    "locale": "locale.setlocale(locale.LC_ALL, 'C')",
    "process": "__name__ = '__main__'",
    "decimal": "decimal.getcontext().prec = 9",
    "numpy": "np.set_printoptions(precision=4)\nnp.seterr(all='warn')",
    "pandas": "pd.set_option('display.max_rows', 8)",
    "matplotlib": "matplotlib.rcParams['lines.linewidth'] = 3",
    "torch": "torch.set_default_dtype(torch.float32)",
    "torch.random": "torch.rand(1)",
}


def test_every_state_has_its_case() -> None:
    assert set(HIDDEN) == CHANGES.keys() == BACK.keys()


@pytest.mark.sweep
@pytest.mark.parametrize("state", HIDDEN)
def test_a_state_is_carried(runtime: PythonRuntime, state: str) -> None:
    if state.startswith("torch"):
        pytest.importorskip("torch")
    ran(runtime, CHANGES[state].partition("\n")[0])  # a step that imports a lot is not kept
    ran(runtime, CHANGES[state])
    then = versions(runtime, hidden(state))
    ran(runtime, BACK[state])
    assert then != versions(runtime, hidden(state))
    assert "" == carry(runtime, 2, hidden(state))
    assert then == versions(runtime, hidden(state))


def test_random_numbers_go_on_as_they_did_there(runtime: PythonRuntime) -> None:
    ran(runtime, "import random\nimport numpy as np\nrandom.seed(1)\nnp.random.seed(2)")
    draw = "(random.random(), np.random.random())"
    drawn = runtime.execute(draw).value
    assert drawn != runtime.execute(draw).value
    assert "" == carry(runtime, 1, hidden("random"), hidden("numpy.random"))
    assert drawn == runtime.execute(draw).value


def test_handlers_of_logging_are_refused(runtime: PythonRuntime) -> None:
    ran(runtime, "import logging\nlogging.basicConfig()")
    ran(runtime, "logging.getLogger().handlers.clear()")
    assert "handlers and filters of `logging` cannot be carried" == carry(runtime, 1, hidden("logging"))


def test_one_state_that_cannot_be_set_leaves_all_as_they_are(runtime: PythonRuntime) -> None:
    ran(runtime, "import os, decimal\nos.mkdir('below')\nos.chdir('below')\ndecimal.getcontext().prec = 5")
    ran(runtime, "os.chdir('..')\nos.rmdir('below')\ndecimal.getcontext().prec = 9")
    assert "FileNotFoundError" in carry(runtime, 1, hidden("decimal"), hidden("cwd"))
    assert "9" == runtime.execute("decimal.getcontext().prec").value
