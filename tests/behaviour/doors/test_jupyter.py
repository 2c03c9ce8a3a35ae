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


def test_output_that_is_cleared_is_gone() -> None:
    made = run(
        "from IPython.display import clear_output\n"
        "for part in range(3):\n    clear_output(wait=True)\n    print('part', part)\n'value'",
        "print('all')",
    )
    first, second = made.cells[0].outputs, made.cells[1].outputs
    assert [each.get("text", each.get("data", {}).get("text/plain")) for each in first] == [
        "part 2\n",
        "'value'",
    ]
    assert [each.text for each in second] == ["all\n"]


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


def test_a_question_that_was_interrupted_takes_no_later_answer(kernel: Any) -> None:
    def interrupt(_: dict[str, Any]) -> None:
        kernel.manager.interrupt_kernel()

    code = "input('first? ')"
    reply = kernel.execute_interactive(code, allow_stdin=True, stdin_hook=interrupt, timeout=60)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    kernel.execute_interactive(
        "second = input('second? ')",
        allow_stdin=True,
        stdin_hook=lambda _: kernel.input("typed"),
        timeout=60,
    )
    assert value(kernel, "second") == "'typed'"


def test_expressions_of_the_user_are_evaluated_after_the_cell(kernel: Any) -> None:
    wanted = {"sum": "six * 7", "missing": "no_such_name", "statement": "six = 7", "nothing": "None"}
    reply = kernel.execute_interactive("six = 6", user_expressions=wanted, timeout=60)
    found = reply["content"]["user_expressions"]
    assert found["sum"] == {"status": "ok", "data": {"text/plain": "42"}, "metadata": {}}
    assert (found["missing"]["status"], found["missing"]["ename"]) == ("error", "NameError")
    assert found["statement"]["ename"] == "SyntaxError"
    assert found["nothing"]["data"] == {"text/plain": "None"}
    assert value(kernel, "six") == "6"


@pytest.mark.parametrize(("cursor", "meant"), [(-1, 0), (1_000, 4)])
def test_a_cursor_beyond_the_code_is_at_its_end(kernel: Any, cursor: int, meant: int) -> None:
    kernel.execute_interactive("whale = 1", timeout=60)
    completed = kernel.complete("whal", cursor, reply=True, timeout=30)["content"]
    assert (completed["status"], completed["cursor_end"]) == ("ok", meant)
    assert "whale" in completed["matches"]
    assert kernel.inspect("whale", cursor, reply=True, timeout=30)["content"]["status"] == "ok"


def test_a_key_is_completed_with_keys_alone(kernel: Any) -> None:
    kernel.execute_interactive("menu = {'soup of the day': 1}", timeout=60)
    completed = kernel.complete("menu['so", reply=True, timeout=30)["content"]
    assert completed["matches"] == ["soup of the day'"]
    assert completed["cursor_start"] == len("menu['")


def test_a_comm_is_closed_at_once(kernel: Any) -> None:
    message = kernel.session.msg("comm_open", {"comm_id": "one", "target_name": "jupyter.widget", "data": {}})
    kernel.shell_channel.send(message)
    answer = None
    while answer is None:
        heard = kernel.get_iopub_msg(timeout=30)
        if heard["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            answer = heard if heard["msg_type"] != "status" else None
    assert (answer["msg_type"], answer["content"]["comm_id"]) == ("comm_close", "one")
