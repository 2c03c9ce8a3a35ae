"""Artifacts of real runtimes: built in the jail, skipping what is not affected."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote import AsyncPythonRuntime, Function, PythonRuntime
from cenote.harness import Artifact, BuildOptions, BuildResult, Patch, UnbuildableError, UnknownArtifactError
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

SMALL = SandboxPolicy(preload=())
COLUMN = 4 if sys.version_info[:2] == (3, 12) else 11
"""Where a failed assertion begins: 3.12 reports the statement, other versions the asserted expression."""

SHOP = "def net(x):\n    return x * 2\n\ndef label(x):\n    return f'<{x}>'\n"
TESTS = (
    "import shop\n\ndef test_net():\n    assert shop.net(2) > 2\n\n"
    "def test_label():\n    assert shop.label(1) == '<1>'\n\n"
    "def test_data():\n    assert open('data.txt').read().startswith('a')\n"
)
SHOP_PY, TEST_PY = Artifact("shop.py", "module"), Artifact("test_shop.py", "tests")
REPORT, NOTES = Artifact("report.md", "document"), Artifact("notes.md", "document")


def run(runtime: PythonRuntime, code: str) -> None:
    result = runtime.execute(code)
    assert result.success, result.error


def write(runtime: PythonRuntime, path: str, text: str) -> None:
    runtime.files.write(path, text.encode(), overwrite=True)


def text_of(runtime: PythonRuntime, path: str) -> str:
    return runtime.files.read(path).decode()


def ran(result: BuildResult) -> list[str]:
    return sorted(name.rpartition("::")[2] for name in result.ran)


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    """A module, its tests and two documents, built once."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        write(runtime, "test_shop.py", TESTS)
        write(runtime, "data.txt", "abc")
        run(runtime, f"%%writefile shop.py\n{SHOP}")
        run(runtime, "open('notes.md', 'w').write('by hand')")
        run(runtime, "import shop\ntotal = sum(map(shop.net, [1, 2, 3]))")
        run(runtime, "open('report.md', 'w').write(f'total {total}')")
        runtime.state.declare(SHOP_PY, TEST_PY, REPORT, NOTES)
        assert ("built", ["test_data", "test_label", "test_net"]) == (
            (first := runtime.state.build()).status,
            ran(first),
        )
        yield runtime


def test_a_patch_of_one_function_runs_the_tests_that_use_it(runtime: PythonRuntime) -> None:
    """The plan has remade the document already; unaffected artifacts were not remade."""
    state = runtime.state
    notes = state.artifact("notes.md").versions
    patch = Patch.replace_artifact("shop.py", SHOP.replace("x * 2", "x * 3"))
    assert "applied" == state.apply(state.plan(patch)).status
    result = state.build()
    assert ("built", ["test_net"], None) == (result.status, ran(result), result.applied)
    assert ["test_shop.py::test_label", "test_shop.py::test_data"] == list(result.spared)
    assert ("total 18", notes[-1].version) == (
        text_of(runtime, "report.md"),
        state.artifact("notes.md").versions[-1].version,
    )


@pytest.mark.slow
def test_a_step_that_edits_a_file_in_use(runtime: PythonRuntime) -> None:
    """The build loads the module again and remakes its dependents; then nothing is out of date."""
    run(runtime, "text = open('shop.py').read()\nopen('shop.py', 'w').write(text.replace('x * 2', 'x * 5'))")
    state = runtime.state
    assert ("step 3 has loaded it as it was before step 6",) == state.artifact("shop.py").stale
    assert ("step 3 used `shop.py` as it was before step 6, and step 4 depends on that",) == (
        state.artifact("report.md").stale
    )
    assert () == state.artifact("notes.md").stale
    result = state.build()
    assert ("built", ["test_net"]) == (result.status, ran(result))
    assert ("total 30", 10) == (text_of(runtime, "report.md"), int(runtime.execute("shop.net(2)").value or 0))
    again = state.build()
    assert ((), [], None) == (again.rebuilt, ran(again), again.applied)


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_what_a_client_uploads_counts_as_well(runtime: PythonRuntime) -> None:
    """Its step comes before the first use."""
    write(runtime, "shop.py", SHOP.replace("x * 2", "x * 7"))
    assert ("built", ["test_net"]) == ((result := runtime.state.build()).status, ran(result))
    assert "total 42" == text_of(runtime, "report.md")
    assert [] == [reason for one in runtime.state.artifacts for reason in one.stale]


@pytest.mark.slow
def test_a_module_and_its_tests_uploaded_again_and_again() -> None:
    """Before and after the first cell, with cells in between, and with data that is not text."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        state = runtime.state
        state.declare(SHOP_PY, TEST_PY, Artifact("rates.bin", "dataset"))
        for factor in (2, 3, 4):
            write(runtime, "shop.py", SHOP.replace("x * 2", f"x * {factor}"))
            write(
                runtime,
                "test_shop.py",
                f"import shop\n\ndef test_net():\n    assert shop.net(2) == {2 * factor}\n",
            )
            runtime.files.write("rates.bin", bytes([255, factor]), overwrite=True)
            run(
                runtime,
                "import shop\ntotal = shop.net(open('rates.bin', 'rb').read()[1])" if factor == 2 else "pass",
            )
            assert ("built", ["test_net"]) == ((result := state.build()).status, ran(result)), (
                result.explain()
            )
            assert factor * factor == runtime.retrieve("total")


@pytest.mark.at("embedded")
def test_data_that_a_test_reads(runtime: PythonRuntime) -> None:
    """Files count by content, and only for tests that opened them."""
    write(runtime, "data.txt", "another")
    assert {"test_shop.py::test_data": "file:data.txt"} == dict(runtime.state.build().ran)


@pytest.mark.slow
def test_a_test_that_fails_leaves_all_as_it_was(runtime: PythonRuntime) -> None:
    """With the exact span; remade artifacts are restored. On request they stay."""
    run(runtime, "text = open('shop.py').read()")
    run(runtime, "open('shop.py', 'w').write(text.replace('x * 2', 'x * 0'))")
    state, head = runtime.state, runtime.state.head
    result = state.build()
    (failure,) = result.failures
    assert ("failed", head, "total 12") == (result.status, runtime.state.head, text_of(runtime, "report.md"))
    assert ("test_net", "AssertionError", "assert shop.net(2) > 2", "test_shop.py", (4, COLUMN, 4, 26)) == (
        failure.name,
        failure.error_type,
        failure.message,
        failure.file,
        failure.span,
    )
    assert state.artifact("report.md").stale
    kept = state.build(BuildOptions(keep_failing=True))
    assert ("built", "total 0") == (kept.status, text_of(runtime, "report.md"))
    assert ("test_net did not pass",) == state.artifact("test_shop.py").stale


@pytest.mark.at("embedded")
def test_a_document_by_declaration() -> None:
    """Its step has not read the module; it runs again when the module changes, because its author declared it."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        run(runtime, f"%%writefile shop.py\n{SHOP}")
        run(runtime, "open('notes.md', 'w').write('by hand')")
        state = runtime.state
        state.declare(SHOP_PY, Artifact("notes.md", "document", ("shop.py",)))
        assert (("shop.py",), ()) == (state.artifact("notes.md").depends_on, state.artifact("notes.md").stale)
        run(runtime, f"%%writefile shop.py\n{SHOP}# more\n")
        state.refresh()
        assert ("step 2 used `shop.py` as it was before step 3",) == state.artifact("notes.md").stale
        result = state.build()
        assert result.applied is not None
        assert ("built", (3, 2)) == (result.status, result.applied.steps_rerun)
        assert () == state.artifact("notes.md").stale


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_tests_do_nothing_to_the_state(runtime: PythonRuntime) -> None:
    """They change neither variables nor files, and one that kills its process does not affect the others."""
    harm = (
        "import os, shop\ndef test_harm():\n    shop.net = None\n    open('data.txt', 'w').write('gone')\n"
        "def test_end():\n    os._exit(0)\ndef test_fault():\n    import ctypes\n    ctypes.string_at(0)\n"
        "def test_good():\n    assert shop.net(1) == 2\n"
    )
    run(runtime, f"%%writefile test_harm.py\n{harm}")
    runtime.state.declare(Artifact("test_harm.py", "tests"))
    result = runtime.state.build(BuildOptions(keep_failing=True))
    outcomes = {test.name: (test.outcome, test.message) for test in result.tests if test.name[5:] != "data"}
    assert ("passed", "") == outcomes["test_good"] == outcomes["test_harm"]
    assert {("error", "it ended its process with status 0"), ("error", "signal 11")} == {
        outcomes["test_end"],
        outcomes["test_fault"],
    }
    assert ("abc", "2") == (text_of(runtime, "data.txt"), runtime.execute("shop.net(1)").value)


@pytest.mark.at("embedded")
def test_functions_of_the_namespace_are_tests_too() -> None:
    """By a pattern of names; a function artifact is redefined, and its dependents are made again."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        run(runtime, "def double(x):\n    return 2 * x")
        run(runtime, "def test_double():\n    assert double(1) >= 2\ndef test_other():\n    assert True")
        run(runtime, "made = double(21)")
        state = runtime.state
        state.declare(
            Artifact("double", "function"), Artifact("test_*", "tests"), Artifact("made", "dataset")
        )
        assert ["test_double", "test_other"] == ran(state.build())
        run(runtime, "def double(x):\n    return 3 * x")
        state.refresh()
        assert ("step 3 used `double` as it was before step 5",) == state.artifact("made").stale
        result = state.build()
        assert ("built", ["test_double"], 63) == (result.status, ran(result), runtime.retrieve("made"))
        assert [1, 1] == [len({one.version}) for one in state.artifact("double").versions]
        assert ("double",) == state.artifact("made").uses


def test_an_effect_outside_is_not_repeated_by_a_build() -> None:
    """The build stops before the call, and the state is unchanged."""
    sent: list[str] = []
    send = Function(sent.append, name="send", host=True, effect="external")
    with PythonRuntime(sandbox=SMALL, functions=[send]) as runtime:
        run(runtime, "%%writefile a.py\nx = 1")
        run(runtime, "import a\nsend(str(a.x))\nwith open('sent.md', 'w') as f: f.write(str(a.x))")
        runtime.state.declare(Artifact("a.py", "module"), Artifact("sent.md", "document"))
        run(runtime, "%%writefile a.py\nx = 2")
        result = runtime.state.build()
        assert ("blocked", ["1"], "1") == (result.status, sent, text_of(runtime, "sent.md"))
        assert "send" in result.explain()


@pytest.mark.at("embedded")
def test_declarations_and_results_survive_with_the_record(tmp_path: Path) -> None:
    """They are in the history's file, for the next process that opens it."""
    place = tmp_path / "steps.sqlite"
    with PythonRuntime(sandbox=SMALL, history=place, name="work") as runtime:
        run(runtime, "%%writefile test_a.py\ndef test_a():\n    pass")
        runtime.state.declare(Artifact("test_a.py", "tests"))
        runtime.state.build()
        runtime.state.flush()
    with PythonRuntime(sandbox=SMALL, history=place, name="work") as runtime:
        (suite,) = runtime.state.artifacts
        assert ("test_a.py", ["passed"]) == (suite.name, [test.outcome for test in suite.tests])


def test_what_cannot_be_done_is_refused(runtime: PythonRuntime) -> None:
    """The error has names, and comes before anything runs."""
    state = runtime.state
    with pytest.raises(UnknownArtifactError, match=r"nearest names are report.md"):
        state.artifact("report.mdx")
    state.declare(Artifact("notes.md", "document", ("shop.py",)))
    with pytest.raises(UsageError, match=r"notes.md depends on shop.py"):
        state.drop("shop.py")
    runtime.files.delete("shop.py")
    with pytest.raises(UnbuildableError, match=r"step 6 has removed it, and step 2 needs it"):
        state.build()
    state.drop("notes.md")
    assert ["report.md", "shop.py", "test_shop.py"] == [one.name for one in state.artifacts]


@pytest.mark.slow
def test_a_build_is_taken_back(runtime: PythonRuntime) -> None:
    """Like a patch, by the id of its patch: moved steps are back in place, and later ones stay."""
    run(runtime, f"%%writefile shop.py\n{SHOP.replace('x * 2', 'x * 5')}")
    state = runtime.state
    built = state.build()
    run(runtime, "later = total")
    assert built.patch is not None
    assert "applied" == state.revert(built.patch.id).status
    assert ("total 12", "(12, 12)") == (
        text_of(runtime, "report.md"),
        runtime.execute("total, later").value,
    )
    state.refresh()
    assert ["report.md", "shop.py"] == [one.name for one in state.artifacts if one.stale]


async def test_the_asynchronous_face_builds_too() -> None:
    """The same, awaited."""
    async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
        await runtime.execute(
            "%%writefile test_a.py\nasync def test_a():\n    pass\ndef test_b(x):\n    pass"
        )
        await runtime.state.declare(Artifact("test_a.py", "tests"))
        result = await runtime.state.build(BuildOptions(keep_failing=True))
        assert [("test_a", "passed"), ("test_b", "error")] == [
            (one.name, one.outcome) for one in result.tests
        ]
