"""Skills: reading SKILL.md, running injection.py, and the errors of both."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.runtime.inject.injectables import Function, Type, Variable
from cenote.skills import Skill, SkillDiscovery, SkillError, SkillWarning
from cenote.skills import skill as skill_files
from cenote.skills.discovery import parse
from cenote.skills.skill import MAX_BYTES

SKILL = """---
name: data-processor
description: Process and analyze datasets.
license: MIT
compatibility: Python 3.11
metadata:
  author: somebody
  version: 1.0
allowed-tools: Bash(git:*) Read
---

# Instructions

Do this.
"""

INJECTION = """
from __future__ import annotations

from dataclasses import dataclass, field

from cenote.runtime import Function, Type, Variable

CONFIG = {"threshold": 0.5}

@dataclass
class Result:
    mean: float
    tags: list[str] = field(default_factory=list)

def analyze(data: list[float]) -> Result:
    \"\"\"Analyze data.\"\"\"
    return Result(sum(data) / len(data), [str(CONFIG["threshold"])])

__exports__ = [Function(analyze), Variable("CONFIG", value=CONFIG, description="Settings"), Type(Result)]
"""


def write(folder: Path, skill: str | bytes = SKILL, injection: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_bytes(skill if isinstance(skill, bytes) else skill.encode())
    if injection is not None:
        (folder / "injection.py").write_text(injection)
    return path


def problem(path: Path) -> str:
    """The problem of a skill, without its path."""
    with pytest.raises(SkillError) as caught:
        SkillDiscovery.from_file(path)
    return "\n".join(text.removeprefix(f"{path}: ") for text in caught.value.problems)


def front(text: str, body: str = "body") -> str:
    return f"---\n{text}\n---\n{body}"


def test_a_skill_is_read_with_all_its_fields(tmp_path: Path) -> None:
    """Required and optional fields, and the body without front matter."""
    skill = SkillDiscovery.from_file(write(tmp_path / "s"))
    assert ("data-processor", "Process and analyze datasets.", "# Instructions\n\nDo this.") == (
        skill.name,
        skill.description,
        skill.body_content,
    )
    assert ("MIT", "Python 3.11", {"author": "somebody", "version": "1.0"}, ("Bash(git:*)", "Read")) == (
        skill.license,
        skill.compatibility,
        dict(skill.metadata),
        skill.allowed_tools,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + SKILL.encode(),
        SKILL.replace("\n", "\r\n").encode(),
        SKILL.replace("---\n", "---  \n").encode(),
        SKILL.replace("Do this.", "Do this.\n\n---\n\nAnd that.").encode(),
    ],
)
def test_files_of_all_systems_are_read(tmp_path: Path, data: bytes) -> None:
    """A byte order mark, carriage returns, blanks after the hyphens, a rule in the body."""
    skill = SkillDiscovery.from_file(write(tmp_path, data))
    assert skill.body_content.startswith("# Instructions\n\nDo this.")


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("line 1: No YAML frontmatter found: the file must begin with it, between two lines of '---'", "# none"),
        ("line 1: No YAML frontmatter found: the file must begin with it, between two lines of '---'", ""),
        ("line 1: the front matter has no closing line of '---'", "---\nname: a\n"),
        ("line 3: Invalid YAML: mapping values are not allowed here; put the text in quotes: "
         "description: 'b: it''s c'", front("name: a\ndescription: b: it's c")),
        ("line 3: Invalid YAML: found character '@' that cannot start any token; put the text in quotes: "
         "description: '@mentions'", front("name: a\ndescription: @mentions\nlicense: MIT")),
        ("line 3: Invalid YAML: found unexpected end of stream; put the text in quotes: description: 'b'",
         front("name: a\ndescription: \"b\nlicense: MIT")),
        ("line 2: the front matter must be fields such as `name: my-skill`", front("just text")),
        ("Missing required field 'name'\nMissing required field 'description'", front("other: 1")),
        ("Missing required field 'description'", front("name: a")),
        ("description: must be a text of 1 to 1024 characters, not ['a']; put the text in quotes",
         front("name: a\ndescription: [a]")),
        ("name: must be 1 to 64 lowercase letters, digits and single hyphens, not 'My Skill'; write my-skill",
         front("name: My Skill\ndescription: b")),
    ],
)  # fmt: skip
def test_malformed_files_are_refused(tmp_path: Path, expected: str, text: str) -> None:
    """The error names the line or the field, and all fields at once."""
    assert expected == problem(write(tmp_path, text))


@pytest.mark.parametrize("name", ["Upper", "a--b", "-a", "a-", "a_b", "ä", "a b", "'5\n'"])
def test_names_are_those_of_the_standard(tmp_path: Path, name: str) -> None:
    """Lowercase letters, digits, single hyphens inside, 64 characters."""
    assert problem(write(tmp_path, front(f"name: {name}\ndescription: d"))).startswith(
        "name: must be 1 to 64"
    )
    name = "x" * 65
    found = problem(write(tmp_path, front(f"name: {name}\ndescription: d")))
    assert f"name: 65 characters, which exceeds 64 characters; write {name[:64]}" == found


@pytest.mark.parametrize("name", ["a", "a-b-c", "x" * 64, "pdf2text"])
def test_good_names_are_accepted(tmp_path: Path, name: str) -> None:
    """Up to the limit."""
    assert name == SkillDiscovery.from_file(write(tmp_path, front(f"name: {name}\ndescription: d"))).name


def test_a_skill_made_by_hand_is_checked_too() -> None:
    """The same limits as for files."""
    with pytest.raises(SkillError, match="name: must be"):
        Skill("Not Good", "d")
    assert "x" * 1024 == Skill("s", "x" * 1024).description


def test_files_that_are_too_large_or_no_text_are_refused(tmp_path: Path) -> None:
    """Bounded, and UTF-8."""
    head = front("name: a\ndescription: b", "")
    assert "larger than 256 KiB" == problem(write(tmp_path, head + "x" * (MAX_BYTES - len(head) + 1)))
    SkillDiscovery.from_file(write(tmp_path, head + "x" * (MAX_BYTES - len(head))))
    assert "not a text in UTF-8: byte 4 is 0xff" == problem(write(tmp_path, b"---\n\xff"))
    path = tmp_path / "nowhere" / "SKILL.md"
    with pytest.raises(SkillError, match="Skill file not found") as caught:
        SkillDiscovery.from_file(path)
    assert str(caught.value).endswith(str(path))


@pytest.mark.slow
def test_hostile_yaml_builds_nothing(tmp_path: Path) -> None:
    """Tags that would make objects are refused; deep nesting does not crash."""
    tagged = front("name: !!python/object/apply:os.system ['true']\ndescription: d")
    assert "Invalid YAML" in problem(write(tmp_path, tagged))
    assert "Invalid YAML" in problem(write(tmp_path, front("a: " + "[" * 5000)))


@given(st.text(max_size=80))
def test_any_text_is_a_skill_or_an_error(text: str) -> None:
    """No other exception is raised."""
    with contextlib.suppress(SkillError):
        parse("---\n" + text + "\n---\n")


def test_a_directory_gives_its_skills_in_order(tmp_path: Path) -> None:
    """Its own SKILL.md and those one level down."""
    for folder in ("b", "a"):
        write(tmp_path / folder, front(f"name: {folder}\ndescription: d"))
    write(tmp_path, front("name: root\ndescription: d"))
    write(tmp_path / "a" / "deep", front("name: deep\ndescription: d"))
    assert ["root", "a", "b"] == [skill.name for skill in SkillDiscovery.from_directory(str(tmp_path))]


@pytest.mark.parametrize(
    ("text", "warning", "field", "value"),
    [
        ("description: " + "d" * 1500, "description: 1500 characters, of which 1024 are used", "description",
         "d" * 1023 + "…"),
        ("description: b\ncompatibility: " + "c" * 501, "compatibility: must be a text of 1 to 500", "compatibility",
         None),
        ("description: b\nmetadata: [1]", "metadata: left out", "metadata", {}),
    ],
)  # fmt: skip
def test_what_a_skill_can_do_without_costs_no_skill(
    tmp_path: Path, text: str, warning: str, field: str, value: object
) -> None:
    """A warning names the file and the field."""
    path = write(tmp_path, front(f"name: a\n{text}"))
    with pytest.warns(SkillWarning) as caught:
        skill = SkillDiscovery.from_file(path)
    assert value == getattr(skill, field)
    assert str(caught[0].message).startswith(f"{path}: {warning}")


def test_one_unreadable_skill_costs_no_other(tmp_path: Path) -> None:
    """Each is left out with a warning that names its file, the line and the fix."""
    write(tmp_path / "good", front("name: good\ndescription: d"))
    write(tmp_path / "bad", front("name: Bad Name\ndescription: d"))
    write(tmp_path / "colon", front("name: colon\ndescription: Use when: always"))
    write(tmp_path / "code", front("name: code\ndescription: d"), "import nothing_of_this_name")
    write(tmp_path / "latin", "---\nname: latin\ndescription: é\n---\n".encode("latin-1"))
    write(tmp_path / "zwei", front("name: good\ndescription: d"))
    with pytest.warns(SkillWarning) as caught:
        skills = SkillDiscovery.from_directory(tmp_path)
    assert [tmp_path / "good"] == [skill.directory for skill in skills]
    said = {text.partition(": ")[0]: text for text in (str(each.message) for each in caught)}
    files = [tmp_path / folder / "SKILL.md" for folder in ("bad", "colon", "latin")]
    files += [tmp_path / "code" / "injection.py", tmp_path / "zwei"]
    assert set(map(str, files)) == set(said)
    assert all(text.endswith("; this skill is left out") for text in said.values())
    colon = said[str(tmp_path / "colon" / "SKILL.md")]
    assert "line 3: " in colon
    assert "put the text in quotes: description: 'Use when: always'" in colon


def test_where_no_skill_is_left_all_problems_are_an_error(tmp_path: Path) -> None:
    """All at once, so that they can be fixed together."""
    write(tmp_path / "bad", front("name: Bad"))
    write(tmp_path / "worse", "nothing")
    with pytest.raises(SkillError) as caught:
        SkillDiscovery.from_directory(tmp_path)
    folders = [Path(text.partition(":")[0]) for text in caught.value.problems]
    assert [tmp_path / f / "SKILL.md" for f in ("bad", "bad", "worse")] == folders


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Not an empty list, since the path is probably mistyped."""
    with pytest.raises(SkillDiscovery.Error, match="Skills directory not found"):
        SkillDiscovery.from_directory(tmp_path / "skils")


# -- injection.py -------------------------------------------------------------------------------------------


def test_injection_brings_functions_variables_and_types(tmp_path: Path) -> None:
    """What `__exports__` lists, ready to be sent by value to a process that has no such module."""
    skill = SkillDiscovery.from_file(write(tmp_path / "s", SKILL, INJECTION))
    assert (["analyze"], ["CONFIG"], ["Result"]) == (
        [f.name for f in skill.functions],
        [v.name for v in skill.variables],
        [t.name for t in skill.types],
    )
    assert 2.0 == skill.functions[0].func([1, 3]).mean
    pickled = cloudpickle.dumps(skill.functions[0].func)
    assert b"threshold" in pickled


@pytest.mark.parametrize(
    ("expected", "source"),
    [
        ("Missing __exports__, a list of Function, Variable and Type objects", "x = 1"),
        ("__exports__ must be a list of Function, Variable and Type objects", "__exports__ = 'x'"),
        ("__exports__[1] must be a Function, Variable or Type, not int",
         "from cenote.runtime import Variable\n__exports__ = [Variable('x'), 5]"),
        ("__exports__ has the name 'x' twice",
         "from cenote.runtime import Variable\n__exports__ = [Variable('x'), Variable('x')]"),
        ("Error loading injection module: line 2: ZeroDivisionError: division by zero", "x = 1\nx / 0"),
        ("Error loading injection module: line 2: SystemExit: 1", "import sys\nsys.exit(1)"),
        ("Error loading injection module: line 1: ModuleNotFoundError: No module named 'cave_agent'",
         "from cave_agent.runtime import Function"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_injection_is_said(tmp_path: Path, expected: str, source: str) -> None:
    """File, line, entry."""
    path = write(tmp_path / "s", SKILL, source)
    with pytest.raises(SkillError) as caught:
        SkillDiscovery.from_file(path)
    assert f"{path.parent / 'injection.py'}: {expected}" == str(caught.value)


def test_a_syntax_error_in_an_injection_names_its_line(tmp_path: Path) -> None:
    """As the interpreter reports it."""
    path = write(tmp_path / "s", SKILL, "x = 1\ndef (:")
    with pytest.raises(
        SkillError, match=r"injection\.py: Error loading injection module: line 2: SyntaxError"
    ):
        SkillDiscovery.from_file(path)


def test_skills_of_equal_names_in_two_places_do_not_meet(tmp_path: Path) -> None:
    """Each file is a separate module."""
    skills = [
        SkillDiscovery.from_file(write(tmp_path / place, SKILL, INJECTION.replace("0.5", place)))
        for place in "12"
    ]
    assert [["1"], ["2"]] == [skill.functions[0].func([1]).tags for skill in skills]


def test_exports_come_types_first() -> None:
    """The other exports may be instances of them."""
    skill = Skill("s", "d", variables=[Variable("v", 1)], functions=[Function(len)], types=[Type(Path)])
    assert ["Path", "len", "v"] == [item.name for item in skill.exports]


# -- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def skill_with_files(tmp_path: Path) -> Skill:
    path = write(tmp_path / "skill")
    (path.parent / "references").mkdir()
    (path.parent / "references" / "forms.md").write_text("# Forms")
    (path.parent / "image.png").write_bytes(b"\x89PNG\xff")
    (path.parent / "big.txt").write_text("x" * (MAX_BYTES + 1))
    (tmp_path / "secret.txt").write_text("secret")
    os.symlink(tmp_path / "secret.txt", path.parent / "link.txt")
    os.symlink(tmp_path, path.parent / "parent")
    return SkillDiscovery.from_file(path)


def test_files_of_a_skill_can_be_read(skill_with_files: Skill) -> None:
    """Those that its instructions refer to."""
    assert skill_with_files.has_files
    assert "# Forms" == skill_with_files.read_file("references/forms.md")
    assert "# Forms" == skill_with_files.read_file("references/../references/forms.md")


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "link.txt", "parent/secret.txt", "references/../../secret.txt", "~/x"],
)
def test_nothing_outside_of_the_directory_is_read(skill_with_files: Skill, path: str) -> None:
    """Neither through `..`, nor by an absolute path, nor through a symbolic link."""
    with pytest.raises(SkillError, match=r"outside of the skill's directory|has no file"):
        skill_with_files.read_file(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope.md", "there are: big.txt, image.png, link.txt, references/forms.md"),
        ("references", "has no file 'references'"),
        ("image.png", "image.png: not a text in UTF-8"),
        ("big.txt", "big.txt: larger than 256 KiB"),
        ("a\0b", "not a path"),
        ("x" * 5000, "not a path"),
    ],
)
def test_what_can_not_be_read_is_said(skill_with_files: Skill, path: str, message: str) -> None:
    """In words that a model can act on."""
    with pytest.raises(SkillError) as caught:
        skill_with_files.read_file(path)
    assert message in str(caught.value)


def test_files_that_go_along_are_all_but_what_leads_out(skill_with_files: Skill) -> None:
    """Binary files, files that a package needs, and the executable bits."""
    assert skill_with_files.directory is not None
    folder = skill_with_files.directory
    for name in ("core/__init__.py", "core/__pycache__/x.pyc", ".git/config", "run.sh", ".rc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "run.sh").chmod(0o755)
    found = {file.path: file for file in skill_with_files.files_along()}
    assert {".rc", "big.txt", "core/__init__.py", "image.png", "references/forms.md", "run.sh"} == set(found)
    assert (b"\x89PNG\xff", False) == found["image.png"][1:]
    assert (b"run.sh", True) == found["run.sh"][1:]


def test_too_many_files_do_not_go_along(skill_with_files: Skill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder next to a skill is a mistake."""
    monkeypatch.setattr(skill_files, "MAX_FILES", 2)
    with pytest.raises(SkillError, match="has more than 2 files"):
        skill_with_files.files_along()


def test_a_skill_without_further_files_has_none(tmp_path: Path) -> None:
    """Its two own files and caches do not count."""
    path = write(tmp_path / "s", SKILL, INJECTION)
    skill = SkillDiscovery.from_file(path)
    (path.parent / "__pycache__").mkdir(exist_ok=True)
    (path.parent / "__pycache__" / "injection.pyc").write_bytes(b"x")
    assert not skill.has_files
    with pytest.raises(SkillError, match="has no files"):
        Skill("s", "d").read_file("x")
