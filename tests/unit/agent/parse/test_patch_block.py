"""The language of patch blocks: what models write, and the errors for blocks that cannot be parsed."""

from __future__ import annotations

import pytest

from cenote.agent.parse.block_parser import BlockParser
from cenote.agent.parse.patch_block import MalformedPatchError, PatchBlock, read_patch
from cenote.harness import TextEdit

EDIT = """\
<<<<<<< SEARCH
a = 1
=======
a = 2
>>>>>>> REPLACE"""
TWICE = f"""\
{EDIT}

<<<<<
    b

=====
>>>>>
"""


@pytest.mark.parametrize("header", ["step 3", "Step #3", "  step 3: off by one", "step 3 - off by one"])
def test_a_step_is_named_by_its_number(header: str) -> None:
    """With or without a reason."""
    found = read_patch(f"{header}\n{EDIT}")
    assert (3, (TextEdit(search="a = 1", replacement="a = 2"),)) == (found.target, found.edits)
    assert ("off by one" if "off" in header else "") == found.reason


@pytest.mark.parametrize(
    "header", ["function Row.clean", "method `Row.clean`()", "class Row.clean: a reason"]
)
def test_a_definition_is_named_by_its_path(header: str) -> None:
    """Any kind of definition."""
    assert "Row.clean" == read_patch(f"{header}\ndef clean(self): ...").target


@pytest.mark.parametrize(
    ("header", "name", "reason"),
    [
        ("artifact shop.py", "shop.py", ""),
        ("File `data/my-table.csv`: a column", "data/my-table.csv", "a column"),
        ("tests test_shop.py - one more", "test_shop.py", "one more"),
        ("document report.md # shorter", "report.md", "shorter"),
    ],
)
def test_an_artifact_is_named_by_its_file(header: str, name: str, reason: str) -> None:
    """Or by its name; a dash that is part of it does not begin a reason."""
    found = read_patch(f"{header}\n{EDIT}")
    assert (name, True, reason, 1) == (found.target, found.artifact, found.reason, len(found.edits))
    assert not read_patch(f"function shop\n{EDIT}").artifact


def test_without_markers_the_rest_is_the_whole_code() -> None:
    """Blank lines around it are ignored, those inside are not."""
    assert PatchBlock(target=2, source="x = 1\n\ny = '='") == read_patch("\nstep 2\n\nx = 1\n\ny = '='\n\n")


def test_edits_follow_each_other() -> None:
    """Markers of five and more signs, an empty replacement."""
    expected = (TextEdit(search="a = 1", replacement="a = 2"), TextEdit(search="    b\n", replacement=""))
    assert expected == read_patch(f"step 1\n{TWICE}").edits


@pytest.mark.parametrize(
    ("text", "edits", "then"),
    [
        ("-a = 1\n+a = 2", [("a = 1", "a = 2")], ""),
        ("-a = 1\n+a = 2\n-b\n+c\n", [("a = 1", "a = 2"), ("b", "c")], ""),
        (
            " def f():\n-    return 1\n+    return 2",
            [("def f():\n    return 1", "def f():\n    return 2")],
            "",
        ),
        (
            "def f():\n-    return 1\n+    return 2",
            [("def f():\n    return 1", "def f():\n    return 2")],
            "",
        ),
        ("x = 1\n-show(a)\n+show(b)", [("x = 1\nshow(a)", "x = 1\nshow(b)")], ""),
        ("-x\n+y\n a = 1", [("x\na = 1", "y\na = 1")], ""),
        ("-x\n+y\n\nreply('Done.')", [("x\n", "y\n")], "reply('Done.')"),
        ("-x\n+y\nif y:\n    show(y)", [("x", "y")], "if y:\n    show(y)"),
        ("--- a\n+++ b\n@@ -1,2 +1 @@\n a\n-b\n@@\n-c\n+d", [("a\nb", "a"), ("c", "d")], ""),
    ],
)
def test_a_diff_names_old_and_new_lines(text: str, edits: list[tuple[str, str]], then: str) -> None:
    """The blank before an unchanged line may be missing; code may follow, as after other edits."""
    found = read_patch(f"step 1\n{text}")
    assert (edits, then) == ([(edit.search, edit.replacement) for edit in found.edits], found.then)


@pytest.mark.parametrize(
    "text",
    [
        "step 1\nx = (1\n- 2)",
        'step 1\nx = """\n- a\n"""',
        "document r.md\n- a\n- b",
        "file r.md\n# a\n- b\n+ c",
    ],
)
def test_signs_in_whole_new_text_make_no_diff_of_it(text: str) -> None:
    """Continued expressions, texts, lists of a document."""
    assert ((), text.partition("\n")[2]) == (read_patch(text).edits, read_patch(text).source)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        (EDIT, ""),
        (f"{EDIT}\n\n  \n", ""),
        (f"{EDIT}\nreply('Done.')", "reply('Done.')"),
        (f"{TWICE}\nx = await f()\nif x:\n    show(x)\n", "x = await f()\nif x:\n    show(x)"),
    ],
)
def test_code_may_follow_the_last_edit(text: str, then: str) -> None:
    """As it is written, without blank lines around it."""
    assert then == read_patch(f"step 1\n{text}").then


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step 1\n" + EDIT + "\nThis mends it.", "runs as Python, and 'This mends it.' is not"),
        ("step 1\n" + EDIT + "\nx = 1\n" + EDIT, "has to stand before 'x = 1'"),
        ("", "the first line"),
        ("a = 1", "a patch is `step N`, `function NAME` or `artifact NAME`, not 'a = 1'"),
        ("step x\n1", "the first line"),
        ("step 99999999999\n1", "the first line"),
        ("step 1\n\n", "have to follow"),
        ("step 1\n<<<<<<< SEARCH\na\n>>>>>>> REPLACE", "no `=======`"),
        ("step 1\n<<<<<<< SEARCH\na\n=======\nb", "no `>>>>>>> REPLACE`"),
        ("step 1\nb\n" + EDIT, "has to stand before 'b'"),
        ("step 1\n" + EDIT.replace("a = 1", ""), "is empty"),
        ("step 1\n+x = 1", "where does 'x = 1' go?"),
        ("step 1\n-x\n+x", "no line is changed"),
        ("step 1\n-x\n+y\nThis mends it.", "runs as Python, and 'This mends it.' is not"),
    ],
)
def test_what_cannot_be_read_says_what_is_missing(text: str, says: str) -> None:
    """The model reads the error and corrects the block."""
    with pytest.raises(MalformedPatchError) as caught:
        read_patch(text)
    assert says in str(caught.value)


def test_a_patch_block_is_found_like_code() -> None:
    """Whichever block comes first; an unclosed quote in a search part does not open a string."""
    answer = f"So:\n```patch\nstep 1\n{EDIT.replace('a = 1', 'it = 5  # it')}\n'''\n```\nand more"
    parser = BlockParser("python", "patch")
    assert "So:\n" == parser.feed(answer)
    assert ("patch", True) == (parser.other, parser.closed)
    assert "step 1\n<<<" == (parser.code or "")[:10]


def test_without_patches_such_a_block_is_text() -> None:
    """Nothing changes for agents without patches."""
    parser = BlockParser("python")
    assert "```patch\nstep 1\n```\n" == parser.feed("```patch\nstep 1\n```\n") + parser.finish()
    assert (None, "") == (parser.code, parser.other)
