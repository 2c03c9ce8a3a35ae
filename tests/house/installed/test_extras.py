"""Without extras there is a jail, its record and an agent; an extra is named where it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cenote_security.errors import UnavailableError
from cenote_security.extras import MissingExtraError, importing, require

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

AWAY = (
    "aiohttp boto3 botocore click cryptography e2b_charts fsspec google.rpc grpc grpc_health grpc_reflection IPython "
    "ipykernel jedi jinja2 jupyter_client litellm matplotlib mcp multipart numpy openai openpyxl pandas psycopg "
    "pyarrow ray regex requests s3fs sklearn starlette tiktoken tokenizers traitlets uv uvicorn"
)
"""The packages of extras, and their dependencies."""

BLOCKED = f"import sys\nfor name in {AWAY!r}.split():\n    sys.modules[name] = None\n"

SMOKE = [sys.executable, "-c", f"{BLOCKED}from tests.house.installed import smoke\nsmoke.main(sys.argv[1:])"]
COMMAND = [sys.executable, "-c", f"{BLOCKED}from cenote.cli.main import main\nsys.exit(main(sys.argv[1:]))"]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """With separate places for tokens and state, and no platform in its environment."""
    own = {f"XDG_{kind}_HOME": str(folder) for kind in ("CONFIG", "DATA", "STATE")}
    given = {name: value for name, value in os.environ.items() if not name.startswith("CENOTE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=given | own)


def test_the_base_is_enough_for_a_jail_its_record_and_an_agent(tmp_path: Path) -> None:
    """Cells, a rollback, a history in a file, an agent on a server of OpenAI's chat completions."""
    done = run([*SMOKE, "base"], tmp_path)
    assert ("", 0) == (done.stderr, done.returncode)


def test_the_command_line_is_there(tmp_path: Path) -> None:
    """Its help, and a cell."""
    assert "commands:" in run([*COMMAND, "--help"], tmp_path).stdout
    done = run([*COMMAND, "exec", "-c", "sum(range(10))"], tmp_path)
    assert ("45\n", "", 0) == (done.stdout, done.stderr, done.returncode)


PLATFORM = (
    "status",
    "runtime ls",
    "job ls",
    "team ls",
    "up",
    "up --without-ray",
    "runtime show --address h:1 etl",
)

COMMANDS = {
    **dict.fromkeys(PLATFORM, "platform"),
    "serve": "http",
    "mcp": "mcp",
    "jupyter install": "jupyter",
    "jupyter kernel -f none.json": "jupyter",
    "run --model openai/gpt-5 hello": "models",
    "demo": "data",
    "env build absent": "environments",
}

CALLS = {
    "import cenote; cenote.connect()": "platform",
    "import cenote; cenote.connect('localhost:1')": "platform",
    "import cenote; cenote.PythonRuntime(address='localhost:1')": "platform",
    "import cenote.jobs": "platform",
    "import cenote; from cenote.environments import build; build(cenote.Environment(['absent']))": "environments",
    "import cenote.platform_team": "platform",
    "from cenote.data import map_batches; map_batches(None, lambda rows: rows)": "platform,data",
    "import cenote; cenote.LiteLLMModel('openai/gpt-5')": "models",
    "from cenote.tokens import count_tokens; count_tokens('a text')": "models",
    "import cenote; cenote.PythonRuntime(history='postgresql://localhost/x').start()": "postgresql",
    "import cenote; cenote.PythonRuntime(name='x', store='s3://bucket/x').start()": "s3",
}

ALL = """
import contextlib, io, json
from cenote.cli.main import main
lines, calls = json.loads(sys.argv[1])
said = {}
for line in lines:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        said[line] = main(line.split()), errors.getvalue()
for call in calls:
    try:
        exec(call)
    except Exception as error:
        said[call] = 0, f"{error}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The status and the error of each of them, from one process."""
    cases = json.dumps([[*COMMANDS], [*CALLS]])
    done = run([sys.executable, "-c", BLOCKED + ALL, cases], tmp_path_factory.mktemp("away"))
    assert "" == done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("line", "extra"), COMMANDS.items())
def test_a_command_names_the_extra_that_it_needs(
    line: str, extra: str, said: dict[str, tuple[int, str]]
) -> None:
    """In one line, with the status for features that are not available."""
    status, error = said[line]
    assert 4 == status
    assert 1 == error.count("\n")
    assert f" is not installed here: pip install 'cenote[{extra}]' (" in error


@pytest.mark.slow
@pytest.mark.parametrize(("call", "extra"), CALLS.items())
def test_a_call_names_the_extra_that_it_needs(
    call: str, extra: str, said: dict[str, tuple[int, str]]
) -> None:
    """As the text of the error."""
    _, error = said[call]
    assert f" is not installed here: pip install 'cenote[{extra}]' (" in error
    assert "\n" not in error


def test_code_that_tries_imports_sees_an_import_error() -> None:
    """Code that catches Cenote's errors catches it, too."""
    with pytest.raises(ImportError) as caught, importing("a door", "doors"):
        import no_such_library  # noqa: F401
    assert isinstance(caught.value, UnavailableError)
    assert (
        "a door is not installed here: pip install 'cenote[doors]' (No module named 'no_such_library')"
        == str(caught.value)
    )


def test_the_part_that_is_missing_is_named() -> None:
    """If one extra's code needs another extra, the error names the inner one."""
    with pytest.raises(MissingExtraError, match=r"cenote\[inner\]"), importing("outer", "outer"):
        require("inner", "inner", "sys", "no_such_library")


def test_all_has_all() -> None:
    """`cenote[all]` names each of the other extras, except frameworks, whose requirements conflict."""
    extras = PROJECT["optional-dependencies"]
    (own,) = extras["all"]
    frameworks = {path.stem for path in (ROOT / "platform" / "cenote" / "adapters").glob("*.py")}
    assert sorted(extras.keys() - {"all"} - frameworks) == own.removeprefix("cenote[").removesuffix(
        "]"
    ).split(",")
