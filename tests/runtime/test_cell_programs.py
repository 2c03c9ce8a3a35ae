"""What cells are told of the program that they are in, and which programs they start."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none")) as made:
        yield made


def test_a_program_with_a_parser_of_arguments_gets_none(runtime: PythonRuntime) -> None:
    """It would take what the jail's process was started with for its own, and refuse it."""
    code = "import argparse, sys\nargparse.ArgumentParser().parse_args(), sys.argv"
    assert "(Namespace(), [''])" == runtime.execute(code).value


@pytest.mark.parametrize(
    "code",
    [
        "!python -c 'import sys; print(sys.prefix)'",
        "import subprocess\nprint(subprocess.getoutput(\"python -c 'import sys; print(sys.prefix)'\"))",
    ],
)
def test_python_is_the_one_that_the_cell_is_in(runtime: PythonRuntime, code: str) -> None:
    """The system's may have none of its packages, or not be there."""
    assert f"{sys.prefix}\n" == runtime.execute(code).stdout
