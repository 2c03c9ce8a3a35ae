"""CaveAgent over real, jailed runtimes: behaviour that a fake could get wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.overdue import LIMITS

from cenote.agent import CaveAgent, EventType
from cenote.harness import Artifact
from cenote.models import ScriptedModel
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote.security import ImportRule, SecurityChecker
from cenote.skills import Skill
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")

PATCHING_ANSWERS = (
    "```python\nrows = [3]\n```",
    "```python\nprint(rows[1])\n```",
    "```patch\nstep 1: too short\n<<<<<<< SEARCH\nrows = [3]\n=======\nrows = [3, 4]\n>>>>>>> REPLACE\n```",
    "Done.",
)


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def outputs(agent: CaveAgent) -> list[str]:
    """The outputs of its blocks as shown to the model."""
    return [message.content for message in agent.messages[2:] if message.role == "user"]


async def play(runtime: PythonRuntime | AsyncPythonRuntime, *codes: str, **settings: object) -> CaveAgent:
    agent = CaveAgent(ScriptedModel([*map(block, codes), "Done."]), runtime, **settings)
    await agent.run("the task")
    return agent


async def test_outputs_values_and_errors_of_a_jail() -> None:
    """Printed text, the last value, an error in one line with its hint."""
    with PythonRuntime(variables=[Variable("prices", [1.5, 2.0], "Prices")]) as runtime:
        agent = await play(runtime, "print('a')\nsum(prices)", "print('b')\npricess")
    first, second = outputs(agent)
    assert "Output:\na\n3.5" == first
    assert second.startswith("Output:\nb\nError: NameError: name 'pricess' is not defined")
    assert second.endswith("[line 2: pricess]")
    assert "prices" in second.partition("defined")[2]


async def test_long_output_is_read_back_from_inside() -> None:
    """The handle is a host function: the text itself is not copied into the jail."""
    with PythonRuntime() as runtime:
        agent = await play(
            runtime,
            "print('x' * 900 + 'needle' + 'y' * 900)",
            "print(read_output(1)[895:908])",
            max_exec_output=200,
        )
    assert "read_output(1)[" in outputs(agent)[0]
    assert "Output:\nxxxxxneedleyy" == outputs(agent)[1]


async def test_reply_counts_only_if_the_cell_succeeds() -> None:
    """`reply` of the jail, in a failing and in a succeeding block."""
    with PythonRuntime() as runtime:
        model = ScriptedModel([block("reply('wrong')\n1 / 0"), block("reply(f'right {6 * 7}')")])
        response = await CaveAgent(model, runtime).run("the task")
    assert ("right 42", 2) == (response.content, response.steps_taken)


async def test_the_loss_of_a_jail_is_told_with_what_is_left() -> None:
    """Injected values are restored, values made by blocks are lost, helpers work again."""
    codes = [
        "m = 6\nprint('x' * 300)",
        "import os\nos._exit(3)",
        "print(n, 'm' in globals(), len(read_output(1)))",
    ]
    forgetful = SandboxPolicy(snapshots="none")
    with PythonRuntime(variables=[Variable("n", 5)], sandbox=forgetful) as runtime:
        agent = await play(runtime, *codes, max_exec_output=200)
    assert outputs(agent)[1].endswith("The namespace now has: n.")
    assert "Output:\n5 False 300" == outputs(agent)[2]


async def test_cancelling_a_task_interrupts_its_cell() -> None:
    """The namespace is unchanged; the next task mentions the interruption."""
    entered = asyncio.Event()

    # On this loop: a plain function would set the event from a thread, which does not wake the loop.
    async def enter() -> None:
        entered.set()

    async with AsyncPythonRuntime(functions=[Function(enter, host=True)]) as runtime:
        model = ScriptedModel(
            [block("n = 1\nawait enter()\nimport time\ntime.sleep(60)"), block("print(n)"), "Done."]
        )
        agent = CaveAgent(model, runtime)
        task = asyncio.create_task(agent.run("sleep"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await agent.run("again")
    said = [message.content for message in agent.messages if message.role == "user"]
    assert ["sleep", "Interrupted; the block may have run in part.", "again", "Output:\n1"] == said


async def test_a_time_limit_ends_a_cell() -> None:
    """The model gets the reason, and the state is kept."""
    with PythonRuntime() as runtime:
        for limit in LIMITS:  # with more time if the cell has not begun by then
            agent = await play(runtime, "n = 1\nprint('begun')\nwhile True: pass", max_exec_timeout=limit)
            (output,) = outputs(agent)
            if "begun" in output:
                break
        assert f"Error: TimeoutError: the cell ran longer than {limit:g} s" in output
        assert "1" == runtime.execute("n").value


def skill_folder(home: Path, name: str, files: dict[str, bytes]) -> Skill:
    for path, data in files.items():
        (home / name / path).parent.mkdir(parents=True, exist_ok=True)
        (home / name / path).write_bytes(data)
        (home / name / path).chmod(0o755 if path.endswith(".sh") else 0o644)
    return Skill(name, "Does it.", "Run it.", directory=home / name)


async def test_the_files_of_a_skill_lie_where_its_code_runs(tmp_path: Path) -> None:
    """Scripts, packages and binary files are at the paths that the instructions use, from the same block on."""
    files = {
        "scripts/add.py": b"import sys\nprint(sum(map(int, sys.argv[1:])))",
        "core/__init__.py": b"",
        "core/builder.py": b"WORD = 'built'",
        "run.sh": b"#!/bin/sh\necho ran",
        "logo.bin": b"\xff\xfe\x00",
        "LICENSE.txt": b"mine",
    }
    other = {"scripts/add.py": b"print('another')", "LICENSE.txt": b"yours", "only.txt": b"o"}
    skills = [skill_folder(tmp_path, "sums", files), skill_folder(tmp_path, "others", other)]
    begin = """
import subprocess, sys
def run(*command, **more): return subprocess.run(command, capture_output=True, text=True, **more).stdout.strip()
"""
    with PythonRuntime() as runtime:
        agent = await play(
            runtime,
            f"print(activate_skill('sums')){begin}\nprint(run(sys.executable, 'scripts/add.py', '1', '2'))",
            "from core.builder import WORD\nprint(WORD, run('./run.sh'), open('logo.bin', 'rb').read())",
            "print(activate_skill('others'))\nprint(run(sys.executable, 'scripts/add.py', cwd='others'))",
            "print(run(sys.executable, 'scripts/add.py', '3', '4'), open('LICENSE.txt').read())",
            skills=skills,
        )
    first, second, third, fourth = outputs(agent)
    assert "Files of this skill, in the working directory: LICENSE.txt, core/__init__.py" in first
    assert first.endswith("\n3")
    assert "built ran b'\\xff\\xfe\\x00'" in second
    assert "Files of this skill, in the folder others/, since other files have their names" in third
    assert third.endswith("\nanother")
    assert fourth.endswith("7 mine")


async def test_the_files_of_a_skill_are_there_in_a_fork_and_after_a_rollback(tmp_path: Path) -> None:
    """They are ordinary files of the working directory."""
    skill = skill_folder(tmp_path, "sums", {"a.txt": b"a"})
    with PythonRuntime() as runtime:
        await play(runtime, "text = activate_skill('sums')", "open('a.txt', 'w').write('b')", skills=[skill])
        runtime.rollback(runtime.state.steps[-2].number)
        assert "'a'" == runtime.execute("open('a.txt').read()").value
        assert "Files of this skill" in str(runtime.retrieve("text"))
        assert str is type(runtime.retrieve("text"))
        with runtime.fork() as branch:
            assert "'a'" == branch.execute("open('a.txt').read()").value


async def test_a_skill_brings_its_code_into_the_jail() -> None:
    """Activated in one block, used in the next."""

    def double(x: int) -> int:
        return 2 * x

    skill = Skill("doubling", "Doubles.", "Call double.", functions=[Function(double)])
    with PythonRuntime() as runtime:
        agent = await play(runtime, "print(activate_skill('doubling'))", "print(double(21))", skills=[skill])
    told = "Output:\nCall double.\n\nReady to use from the next block on:\ndouble(x: int) -> int"
    assert told == outputs(agent)[0]
    assert "Output:\n42" == outputs(agent)[1]


async def test_a_sub_agent_is_worked_with_by_code() -> None:
    """Data goes from jail to jail; only the answer passes through a model's context."""
    with PythonRuntime(variables=[Variable("data", [], "Input")]) as inner, PythonRuntime() as outer:
        cleaner = CaveAgent(ScriptedModel([block("clean = [x for x in data if x]"), "Removed one."]), inner)
        await_code = (
            "cleaner.runtime.update_variable('data', [1, None, 2])\nprint(await cleaner.run('Clean data'))\n"
            "print(cleaner.runtime.retrieve('clean'))"
        )
        outer.inject(Variable("cleaner", cleaner, "Cleans lists"))
        agent = await play(outer, await_code)
    assert "cleaner  # Cleans lists; has variables data" in agent.messages[0].content
    assert "Output:\nRemoved one.\n[1, 2]" == outputs(agent)[0]


def test_run_sync_makes_its_own_runtime() -> None:
    """Several tasks, each in its own event loop, over one namespace."""
    agent = CaveAgent(ScriptedModel([block("n = 20"), "Set.", block("print(n + 1)"), "Told."]))
    with agent.runtime:
        assert ["Set.", "Told."] == [agent.run_sync("set").content, agent.run_sync("tell").content]
    assert "Output:\n21" == agent.messages[-2].content


async def test_the_rules_of_a_runtime_are_an_event() -> None:
    """The exact place is reported, and nothing ran."""
    from cenote.security import ImportRule, SecurityChecker

    with PythonRuntime(security_checker=SecurityChecker([ImportRule({"os"})])) as runtime:
        model = ScriptedModel([block("n = 1\nimport os"), block("print('n' in globals())"), "Done."])
        agent = CaveAgent(model, runtime)
        events = [event async for event in agent.stream_events("look")]
    (refused,) = [event.content for event in events if event.type is EventType.SECURITY_ERROR]
    assert refused.startswith("line 2")
    assert "Output:\nFalse" == outputs(agent)[1]


async def test_two_agents_in_one_runtime() -> None:
    """The second sees the first one's variables, and the first gets a notice of what the second has rebound."""
    with PythonRuntime(variables=[Variable("rate", 1.5)]) as runtime:
        first = CaveAgent(
            ScriptedModel([block("prices = [1]"), "Done.", block("len(prices)"), "Done."]),
            runtime.attach("first"),
        )
        await first.run("make prices")
        second = await play(runtime.attach("second"), "prices = [1, 2]\nprices")
        assert "prices: list (1,)" in second.messages[0].content
        assert ["Output:\n[1, 2]"] == outputs(second)
        await first.run("count them")
        assert "Output:\n2\n[`prices` was rebound by second in step 2]" == outputs(first)[-1]


async def test_an_agent_with_names_of_its_own() -> None:
    """Its prompt mentions `shared`, and one agent's functions do not replace another's."""
    with PythonRuntime() as runtime:
        code = ("print('x' * 900)", "print(read_output(1)[:3])\nshared.result = 1")
        agents = [
            await play(runtime.attach(name, scope="private"), *code, max_exec_output=200)
            for name in ("a", "b")
        ]
        assert "`shared.name` is seen by all" in agents[0].messages[0].content
        assert ["Output:\nxxx"] * 2 == [outputs(agent)[1] for agent in agents]
        assert 1 == runtime.retrieve("result")


async def test_a_patch_changes_the_history_of_a_jail() -> None:
    """The failing block shows where its values came from; patching that reruns only its dependents.

    Blame names the model call that wrote the patch for changed steps, and the first one for kept steps.
    """
    answers = [
        block("rows = [{'mass': 3}, {'mass': 5}]\nlog = []"),
        block("import itertools\ncount = len(log)\nprint('counted', count)"),
        block("total = sum(row['weight'] for row in rows)\nprint('total', total)"),
        "```patch\nstep 3\n<<<<<<< SEARCH\ntotal = sum(row['weight'] for row in rows)\n=======\n"
        "total = sum(row['mass'] for row in rows)\n>>>>>>> REPLACE\n```",
        "```patch\nstep 1: a row was missing\nrows = [{'mass': 3}, {'mass': 5}, {'mass': 7}]\nlog = []\n```",
        "Done.",
    ]
    with PythonRuntime() as runtime:
        agent = CaveAgent(ScriptedModel(answers), runtime, patches=True)
        response = await agent.run("the task")
        shown = outputs(agent)
        assert "rows: step 1, rows = [{'mass': 3}, {'mass': 5}]" in shown[2]
        assert ["#1 ok", "#2:\ncounted 0"] == shown[:2]
        assert shown[2].startswith("#3:\nError: KeyError")
        assert shown[3].endswith(":\ntotal 8")
        assert "Patched; ran again: 1, 3.\nChanged: rows, total.\n#3:\ntotal 15" == shown[4]
        assert "counted" not in shown[4]
        causes = [step.cause for step in response.steps]
        state = runtime.state
        assert [causes[4], causes[1]] == [state.blame(name).cause for name in ("rows", "count")]
        assert [causes[4], causes[1], causes[3]] == [step.cause for step in state.steps]


@pytest.mark.at("embedded", "platform")
@pytest.mark.slow
async def test_a_patch_of_a_module_runs_the_tests_that_use_it() -> None:
    """Its dependents are made again, and the model reads what differs: a file, a test with its line."""
    answers = [
        block("%%writefile shop.py\ndef tax(net):\n    return net * 0.2\ndef label(x):\n    return str(x)"),
        block("import shop\nwith open('report.md', 'w') as report: n = report.write(f'{shop.tax(100):.2f}')"),
        "Done.",
        "```patch\nartifact shop.py: too much\n<<<<<<< SEARCH\nreturn net * 0.2\n=======\nreturn net * 0.0\n"
        ">>>>>>> REPLACE\n```",
        "Done.",
    ]
    tests = (
        "%%writefile test_shop.py\nimport shop\ndef test_tax():\n    assert shop.tax(1)\n"
        "def test_label():\n    assert shop.label(1) == '1'"
    )
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        agent = CaveAgent(ScriptedModel([block(tests), *answers]), runtime, patches=True)
        await agent.run("write it")
        runtime.state.declare(
            Artifact("shop.py", "module"),
            Artifact("test_shop.py", "tests"),
            Artifact("report.md", "document"),
        )
        assert "built" == runtime.state.build().status
        await agent.run("mend it")
        shown = outputs(agent)[-1].splitlines()
        assert "Changed files: report.md, shop.py." in shown
        assert [
            "Tests: 1 of 2 run, 1 failed.",
            "test_tax: AssertionError: assert shop.tax(1) (test_shop.py, line 3)",
        ] == shown[-2:]
        assert b"0.00" == runtime.files.read("report.md")


async def test_rules_hold_for_patches_of_a_jail() -> None:
    """Code that is run again is checked, by the runtime's own rules."""
    answers = [block("x = 1"), "```patch\nstep 1\nimport os\nx = os.getcwd()\n```", "Done."]
    with PythonRuntime(security_checker=SecurityChecker([ImportRule({"os"})])) as runtime:
        agent = CaveAgent(ScriptedModel(answers), runtime, patches=True)
        await agent.run("the task")
        assert outputs(agent)[1].startswith("Not run, against the rules:\n")
        assert 1 == runtime.retrieve("x")


@pytest.mark.at("embedded", "platform")
async def test_a_model_patches_what_has_run() -> None:
    """Its prompt says where the values of a failing step came from, and what differs once that is fixed."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        agent = CaveAgent(ScriptedModel([*PATCHING_ANSWERS]), runtime, patches=True)
        await agent.run("the task")
        shown = [one.content for one in agent.messages[2:] if one.role == "user"]
        assert "rows: step 1, rows = [3]" in shown[1]
        assert "Patched; ran again: 1-2." == shown[2].splitlines()[0]
        assert ["rows = [3, 4]", "print(rows[1])"] == [step.code for step in runtime.state.steps]
