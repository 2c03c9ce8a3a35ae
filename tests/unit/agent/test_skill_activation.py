"""Skills while an agent works: metadata first, instructions and code on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.in_process_runtime import InProcessRuntime

from cenote.agent import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime.inject.injectables import Function, Variable
from cenote.skills import Skill, SkillWarning
from cenote_security.errors import UsageError


def analyze(data: list[float]) -> float:
    """Mean of data."""
    return sum(data) / len(data)


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def skill() -> Skill:
    return Skill(
        name="data-processor",
        description="Statistics. Use for data.",
        body_content="# How\nCall analyze.",
        functions=[Function(analyze)],
        variables=[Variable("CONFIG", {"a": 1}, "Settings")],
    )


ACTIVATE = block("print(activate_skill('data-processor'))")


async def play(script: list[str], *skills: Skill, runtime: InProcessRuntime | None = None) -> ScriptedModel:
    model = ScriptedModel(script)
    await CaveAgent(model, runtime or InProcessRuntime(), skills=skills or [skill()]).run("x")
    return model


def last(model: ScriptedModel, number: int) -> str:
    return model.prompts[number][-1].content


async def test_the_prompt_has_only_the_metadata() -> None:
    """One line per skill; its contents are neither shown nor injected."""
    model = await play(["ok"])
    system = model.prompts[0][0].content
    assert "data-processor: Statistics. Use for data." in system
    assert ("Call analyze" in system, "CONFIG" in system, "print(activate_skill(name))" in system) == (
        False,
        False,
        True,
    )


async def test_activation_gives_instructions_and_what_comes_with_them() -> None:
    """The text, and the stubs of the functions usable from the next block on, which then work."""
    runtime = InProcessRuntime()
    model = await play([ACTIVATE, block("print(analyze([1, 2]), CONFIG['a'])"), "ok"], runtime=runtime)
    assert (
        "Output:\n# How\nCall analyze.\n\nReady to use from the next block on:\n"
        "analyze(data: list[float]) -> float  # Mean of data\nCONFIG: dict  # Settings"
    ) == last(model, 1)
    assert "Output:\n1.5 1" == last(model, 2)
    assert {"activate_skill", "analyze", "CONFIG"} == {item.name for item in runtime.items}


async def test_a_second_activation_injects_nothing() -> None:
    """It returns the instructions again, in case compaction removed them."""
    runtime = InProcessRuntime()
    model = await play([ACTIVATE, ACTIVATE, "ok"], runtime=runtime)
    assert "Output:\n# How\nCall analyze." == last(model, 2)
    assert 3 == len(runtime.items)


async def test_activating_twice_in_one_block_injects_once() -> None:
    """A block may activate in a loop."""
    runtime = InProcessRuntime()
    await play([block("for _ in 'ab': activate_skill('data-processor')"), "ok"], runtime=runtime)
    assert 3 == len(runtime.items)


async def test_an_unknown_skill_is_an_error_that_names_those_there_are() -> None:
    """The error is for the model."""
    model = await play([block("activate_skill('pdf')"), "ok"])
    assert "LookupError: no skill is named 'pdf'; there are data-processor" in last(model, 1)


async def test_a_name_that_is_injected_already_is_a_clear_error() -> None:
    """At activation, where the model sees it; nothing is overwritten."""
    runtime = InProcessRuntime(Variable("CONFIG", 5))
    model = await play([ACTIVATE, "ok"], runtime=runtime)
    assert "NameExistsError: the name 'CONFIG' exists already" in last(model, 1)
    assert 5 == runtime.namespace["CONFIG"]


async def test_a_name_that_code_has_made_is_a_clear_error_too() -> None:
    """The error occurs at the injection; activation can be repeated when the name is free."""
    runtime = InProcessRuntime()
    code = "CONFIG = 7\nprint(activate_skill('data-processor'))"
    model = await play(
        [block(code), block("del CONFIG"), ACTIVATE, block("print(CONFIG)"), "ok"], runtime=runtime
    )
    assert last(model, 1).endswith("Skill data-processor is not activated: " + _taken("CONFIG"))
    assert "Output:\n{'a': 1}" == last(model, 4)


def _taken(name: str) -> str:
    return f"the name {name!r} exists already; use update_variable({name!r}, ...) to replace it"


async def test_files_of_a_skill_are_read_on_demand(tmp_path: Path) -> None:
    """`read_skill_file` exists and is described only if there is a file to read."""
    (tmp_path / "forms.md").write_text("# Forms")
    with_files = Skill("pdf", "PDFs", "See forms.md", directory=tmp_path)
    model = await play([block("print(read_skill_file('pdf', 'forms.md'))"), "ok"], with_files)
    assert "print(read_skill_file(name, path))" in model.prompts[0][0].content
    assert "Output:\n# Forms" == last(model, 1)
    assert "read_skill_file" not in (await play(["ok"])).prompts[0][0].content


async def test_a_file_that_is_no_text_is_read_as_bytes(tmp_path: Path) -> None:
    """An image, a font."""
    (tmp_path / "logo.bin").write_bytes(b"\xff\xfe\x00")
    with_files = Skill("pdf", "PDFs", "See logo.bin", directory=tmp_path)
    model = await play([block("print(read_skill_file('pdf', 'logo.bin'))"), "ok"], with_files)
    assert "Output:\nb'\\xff\\xfe\\x00'" == last(model, 1)


async def test_skills_of_several_directories_that_share_a_name(tmp_path: Path) -> None:
    """The first is used, and other skills of the second directory still load."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "SKILL.md").write_text(f"---\nname: one\ndescription: Of {folder}.\n---\n")
    model = ScriptedModel(["ok"])
    with pytest.warns(SkillWarning, match=r"'one' is also that of .*; this skill is left out"):
        agent = CaveAgent(model, InProcessRuntime(), skills_dir=[tmp_path / "a", tmp_path / "b"])
    await agent.run("x")
    assert "one: Of a." in model.prompts[0][0].content
    assert "Of b." not in model.prompts[0][0].content


async def test_skills_of_a_directory(tmp_path: Path) -> None:
    """`skills_dir` takes one folder or several, in addition to `skills`."""
    with pytest.raises(UsageError, match="skills_dir is a path"):
        CaveAgent(ScriptedModel([]), skills_dir=b"skills")  # type: ignore[arg-type]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\n")
    for folders in (tmp_path, str(tmp_path), [tmp_path / "a", tmp_path / "b"]):
        model = ScriptedModel(["ok"])
        await CaveAgent(model, InProcessRuntime(), skills=[skill()], skills_dir=folders).run("x")
        system = model.prompts[0][0].content
        assert "data-processor: Statistics. Use for data.\na: Does a.\nb: Does b." in system


def test_two_skills_of_one_name_are_refused() -> None:
    """The model could not distinguish them."""
    with pytest.raises(UsageError, match="two skills are named 'data-processor'"):
        CaveAgent(ScriptedModel([]), InProcessRuntime(), skills=[skill(), skill()])


async def test_agents_that_share_a_runtime_have_their_own_skills() -> None:
    """Each one's prompt names the function for its skills."""
    runtime = InProcessRuntime()
    await play(["ok"], runtime=runtime)
    other = Skill("pdf", "PDFs", "Read.")
    model = await play([block("print(activate_skill_2('pdf'))"), "ok"], other, runtime=runtime)
    assert "print(activate_skill_2(name))" in model.prompts[0][0].content
    assert "Output:\nRead." == last(model, 1)
