"""Every example runs offline, as a reader would run it, and prints what it claims to show."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SHOWN = {
    "hello_world": ["greeting: Hello, world!", "answer: I reversed"],
    "function_calling": [
        "tasks: [{'name': 'buy groceries', 'done': True}, {'name': 'call the plumber', 'done': False}]"
    ],
    "object_methods": [
        "light: Light(name='Living Room', brightness=20)",
        "thermostat: Thermostat(celsius=22)",
    ],
    "multi_agent": ["insights: {'count': 5, 'mean': 13.6, 'range': [12.5, 15.2]}"],
    "branches": ["scores: [14.0, 20.0, 20.0, 20.0]", "kept: 20.0 ["],
    "team_pipeline": [
        "agents: 20",
        "result: <ObjectReference smoothed: numpy.ndarray (500000,), 4000000 bytes>",
        "from jail to jail: 80 MB",
        "kB in 40 calls, metadata only",
    ],
    "patching": ["--- patch", "totals: {'north': 216.0, 'south': 108.0}", "tokens: 25 to write the patch"],
    "portfolio": [
        "tests: 6 of 6 run",
        "report.md: step 4 used `shop.py` as it was before step 6",
        "built; was out of date: report.md, shop.py, test_shop.py",
        "tests: 2 of 6 run, spared: test_shop.py::test_label_counts",
        "steps: 2 of 5 run again",
        "report: With tax: 321.30",
        "report.md is by step 8, model call 4",
    ],
    "stream": ["Executing: mean =", "Result: mean 126.4", "Result: best day 4"],
    "security_rules": [
        "security_error: ",
        "execution_output: milk, bread",
        "final_response: Your shopping note",
    ],
    "skill_data_processor": ["result: AnalysisResult(", "outliers=[48.0]", "mean_without_outliers=20.5"],
    "data_analysis": ["best: north", "figure: demo-output/revenue.png"],
    "host_database": [
        "'status': 'shipped'",
        "'status': 'cancelled'",
        "without the functions: ",
    ],
}

FIGURES = {"data_analysis": "revenue.png"}
ELSEWHERE = {"model_choice", "large_dataset", "doors"}
"""Not an example; one that `tests/behaviour/data` runs; one that needs a platform and other clients."""

PROGRAM = "multi_agent"
"""An example with several runtimes."""

Run = Callable[[str], str]


def run_example(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "CENOTE_MODEL"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs as the program of this process, which has imported Cenote and has warm jails."""

    def run(name: str) -> str:
        monkeypatch.delenv("CENOTE_MODEL", raising=False)
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        output, errors = capsys.readouterr()
        assert "" == errors
        return output

    return run


def check(name: str, output: str) -> None:
    assert [] == [line for line in SHOWN[name] if line not in output], output


@pytest.mark.sweep
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_claims(name: str, run_here: Run, tmp_path: Path) -> None:
    """It runs to its end with nothing on stderr, each claimed line, and a valid figure."""
    check(name, run_here(name))
    if name in FIGURES:
        assert (tmp_path / "demo-output" / FIGURES[name]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
def test_an_example_ends_as_a_program(tmp_path: Path) -> None:
    """Exit status 0 and nothing on stderr, also after its end."""
    check(PROGRAM, run_example(PROGRAM, tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("where")
@pytest.mark.at("platform")
def test_the_portfolio_runs_unchanged(tmp_path: Path) -> None:
    """Only an address in the environment differs, and it is not visible in the results."""
    check("portfolio", run_example("portfolio", tmp_path))


def test_no_example_is_left_out() -> None:
    """Every script in the folder is in the table above and in the README's."""
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - ELSEWHERE
    assert scripts == set(SHOWN)
    readme = (EXAMPLES / "README.md").read_text()
    assert [] == [
        name for name in sorted({*scripts, "large_dataset", "doors"}) if f"`{name}.py`" not in readme
    ]
