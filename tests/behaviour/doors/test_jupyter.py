"""A notebook whose kernel is a runtime: what each kernel must do, and what this one does besides.

The real IPython would be installed next to the jails' own one, which other tests cover: these run where
`pip install '.[jupyter]' jupyter_kernel_test nbclient` was done.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cenote.cli.main import main

jupyter_kernel_test = pytest.importorskip("jupyter_kernel_test")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("jedi")
kernelspec, manager_of = (pytest.importorskip(f"jupyter_client.{name}") for name in ("kernelspec", "manager"))

CENOTE = (sys.executable, "-m", "cenote.cli.main")


@pytest.fixture(scope="module", autouse=True)
def specifications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Jupyter finds the kernel, as a user installs it."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder))
        subprocess.run([*CENOTE, "jupyter", "install", "--memory", "1GiB"], check=True)
        yield


class TestTheProtocol(jupyter_kernel_test.KernelTests):
    """Jupyter's own tests of kernels."""

    kernel_name = "cenote"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [  # noqa: RUF012
        {"text": "zi", "matches": {"zip"}},
        {"text": "import os; os.getcw", "matches": {"getcwd", "getcwdb"}},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_execute_result = [{"code": "1+2", "result": "3"}]  # noqa: RUF012
    code_generate_error = "raise ValueError"
    code_display_data = [  # noqa: RUF012
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {"code": "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()", "mime": "image/png"},
    ]
    code_inspect_sample = "zip"
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")


def run(*cells: str, **more: Any) -> Any:
    """A notebook of these cells, run."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(made, kernel_name="cenote", timeout=60, **more).execute()
    return made


def test_a_notebook_is_run_by_the_usual_tool() -> None:
    made = run(
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})",
        "df",
        "print('out')\ndf.a.sum()",
        "    indented = 1\n    indented",
        "!echo shell",
    )
    assert "<table" in made.cells[1].outputs[0].data["text/html"]
    assert made.cells[2].outputs[0].text == "out\n"
    assert made.cells[2].outputs[1].data["text/plain"] == "np.int64(3)"
    assert made.cells[3].outputs[0].data["text/plain"] == "1"
    assert made.cells[4].outputs[0].text == "shell\n"


def test_a_cell_that_fails_stops_the_notebook() -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        run("1/0", "2")


@pytest.fixture(scope="module")
def kernel(specifications: None) -> Iterator[Any]:
    manager = manager_of.KernelManager(kernel_name="cenote")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.manager = manager
    yield client
    client.stop_channels()
    manager.shutdown_kernel()


def value(kernel: Any, code: str) -> str:
    shown = list[str]()

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    kernel.execute_interactive(code, output_hook=hear, timeout=60)
    return shown[0]


def test_input_asks_the_user(kernel: Any) -> None:
    prompts = list[str]()

    def answer(message: dict[str, Any]) -> None:
        prompts.append(message["content"]["prompt"])
        kernel.input("typed")

    kernel.execute_interactive("got = input('name? ')", allow_stdin=True, stdin_hook=answer, timeout=60)
    assert (prompts, value(kernel, "got")) == (["name? "], "'typed'")


def test_an_interrupt_ends_the_cell_and_leaves_the_names(kernel: Any) -> None:
    interrupted = list[bool]()

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and not interrupted:
            interrupted.append(True)
            kernel.manager.interrupt_kernel()

    code = "kept = 5\nprint('on', flush=True)\nimport time\nwhile True: time.sleep(0.01)"
    reply = kernel.execute_interactive(code, output_hook=hear, timeout=60)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    assert value(kernel, "kept") == "5"


def test_what_is_asked_of_a_variable_is_no_step_and_shows_no_value(kernel: Any) -> None:
    value(kernel, "secret_text = 'not shown'\n1")
    before = value(kernel, "2")
    inspected = kernel.inspect("secret_text", reply=True, timeout=30)["content"]
    assert inspected["found"]
    assert "str" in inspected["data"]["text/plain"]
    assert "not shown" not in inspected["data"]["text/plain"]
    completed = kernel.complete("secret_te", reply=True, timeout=30)["content"]
    assert completed["matches"] == ["secret_text"]
    assert "capitalize" in kernel.complete("secret_text.capi", reply=True, timeout=30)["content"]["matches"]
    history = kernel.history(hist_access_type="tail", n=1, reply=True, timeout=30)["content"]["history"]
    assert (history[0][2], before) == ("2", "2")


def test_the_code_is_jailed(kernel: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    assert value(kernel, f"import os; os.path.exists({str(secret)!r})") == "False"


def test_wrong_names_and_what_cannot_be_joined(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        assert main(("jupyter", *words)) == 2
        return capsys.readouterr().err

    assert "small letters" in refused("install", "--name", "Bad Name")
    assert "give its --address" in refused("attach", "etl")
    assert "cenote" in kernelspec.KernelSpecManager().find_kernel_specs()
