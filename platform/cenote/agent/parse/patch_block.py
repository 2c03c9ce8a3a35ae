"""What a model writes to change steps that have run: a line that says where, then edits or the whole new code.

Edits are lines of a diff (`-old`, `+new`), which take the fewest tokens, or SEARCH/REPLACE parts, which many models
have learnt. Code may follow the edits. It runs as a step of its own once the patch is applied, so that a model can
go on, or answer, in the same turn: each further turn costs the whole conversation.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from cenote.harness.patching.patch import Patch
from cenote.harness.patching.text_edits import TextEdit
from cenote_security.errors import UsageError

LANGUAGE = "patch"
"""Info string of such blocks."""

_STEP = re.compile(r"step\s+#?(?P<number>\d{1,9})\s*(?:[:#-]\s*(?P<reason>.*))?", re.IGNORECASE)
_DEFINITION = re.compile(
    r"(?:function|class|method)\s+`?(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)`?(?:\(\))?\s*(?:[:#-]\s*(?P<reason>.*))?",
    re.IGNORECASE,
)
_ARTIFACT = re.compile(
    r"(?:artifact|file|module|tests|document)\s+`?(?P<name>\w[\w./-]*)`?(?:\s*[:#]\s*(?P<reason>.*)|\s+-\s+(?P<why>.*))?",
    re.IGNORECASE,
)
# Models vary the length of these and their words; conflict markers of version control are what they have learnt.
_SEARCH = re.compile(r"<{5,9}(?:\s*\w+)?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_REPLACE = re.compile(r">{5,9}(?:\s*\w+)?\s*")
# Of a diff: what begins a part, and what says nothing about lines.
_PART = re.compile(r"@@.*")
_NO_LINE = re.compile(r"(?:---|\+\+\+|diff|index) .*|\\ No newline.*")


class MalformedPatchError(UsageError):
    """A patch block that cannot be read. reason: what is wrong, and what would be right."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchBlock:
    """A change of one step, or of one definition. Either edits, or the source that takes the place of all.

    artifact: the target is a file or a definition, in its newest version, and what it concerns is brought up to date.
    then: code to run when the patch has been applied; only after edits.
    """

    target: int | str
    artifact: bool = False
    edits: tuple[TextEdit, ...] = ()
    source: str = ""
    then: str = ""
    reason: str = ""

    def patch(self, cause: str) -> Patch:
        """As a change of the history. cause: the model call that wrote it."""
        patch = self._patch()
        return Patch(changes=patch.changes, reason=self.reason, cause=cause)

    def _patch(self) -> Patch:
        if self.artifact:
            name = str(self.target)
            if self.edits:
                return Patch.edit_artifact(name, self.edits)
            return Patch.replace_artifact(name, f"{self.source}\n")
        if self.edits:
            return Patch.edit_text(self.target, self.edits)
        if isinstance(self.target, int):
            return Patch.replace_step(self.target, self.source)
        return Patch.replace_function(self.target, self.source)


def read_patch(text: str) -> PatchBlock:
    """A block's text, without fences. Raises MalformedPatchError."""
    first, _, rest = text.strip("\n").partition("\n")
    block = _headed(first.strip())
    if not rest.strip():
        raise MalformedPatchError(
            "lines `-old`, `+new`, or the whole new code, have to follow the first line"
        )
    lines = rest.split("\n")
    if any(map(_SEARCH.fullmatch, lines)):
        edits, then = _edits(lines)
        return replace(block, edits=edits, then=then)
    if _is_diff(lines, artifact=block.artifact):
        edits, then = _diff(lines)
        return replace(block, edits=edits, then=then)
    return replace(block, source=rest.strip("\n"))


def _headed(first: str) -> PatchBlock:
    """What the first line says."""
    if step := _STEP.fullmatch(first):
        return PatchBlock(target=int(step["number"]), reason=(step["reason"] or "").strip())
    if found := _DEFINITION.fullmatch(first):
        return PatchBlock(target=found["name"], reason=(found["reason"] or "").strip())
    if found := _ARTIFACT.fullmatch(first):
        reason = found["reason"] or found["why"] or ""
        return PatchBlock(target=found["name"], artifact=True, reason=reason.strip())
    raise MalformedPatchError(
        f"the first line of a patch is `step N`, `function NAME` or `artifact NAME`, not {first[:80]!r}"
    )


def _edits(lines: list[str]) -> tuple[tuple[TextEdit, ...], str]:
    """The parts, and the code after the last one."""
    edits: list[TextEdit] = []
    rest = lines
    while any(map(_SEARCH.fullmatch, rest)):
        search, rest = _until(_opened(rest), _DIVIDER, "=======")
        replacement, rest = _until(rest, _REPLACE, ">>>>>>> REPLACE")
        if not search.strip():
            raise MalformedPatchError("a SEARCH part is empty: it quotes whole lines of the code")
        edits.append(TextEdit(search=search, replacement=replacement))
    return tuple(edits), _checked_code("\n".join(rest))


def _is_diff(lines: list[str], *, artifact: bool) -> bool:
    """Whether lines with signs are those of a diff, and not of whole new code or of a document with a list."""
    signed = [line for line in lines if line[:1] in ("-", "+")]
    first = next(line for line in lines if line.strip())
    if _PART.fullmatch(first):
        return True
    if artifact:
        return first[0] in " -+" and {"-", "+"} == {line[0] for line in signed}
    if not signed or first[0] in "-+":
        return bool(signed)
    try:
        body = ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    # A sign in front of a whole statement is of no use in code.
    return any(isinstance(one, ast.Expr) and isinstance(one.value, ast.UnaryOp) for one in body)


def _diff(lines: list[str]) -> tuple[tuple[TextEdit, ...], str]:
    """The edits of a diff, and the code after it: that begins with the first line after the last change that has no
    blank in front of it. Before, the blank of an unchanged line may be missing.
    """
    last = max((at for at, line in enumerate(lines) if line[:1] in ("-", "+")), default=-1)
    end = next((at for at in range(last + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    edits: list[TextEdit] = []
    old, new = list[str](), list[str]()
    before = ""  # the sign of the line before
    for line in [*lines[:end], "@@"]:
        if _NO_LINE.fullmatch(line):
            continue
        sign = line[:1] if line[:1] in ("-", "+") else " "
        if _PART.fullmatch(line) or (sign == "-" and before == "+"):
            edits += _edit(old, new)
            old, new = [], []
        if not _PART.fullmatch(line):
            text = line[1:] if line[:1] in ("-", "+", " ") else line
            old += [text] if sign != "+" else []
            new += [text] if sign != "-" else []
        before = sign
    if not edits:
        raise MalformedPatchError("no line is changed: old lines begin with `-`, new ones with `+`")
    return tuple(edits), _checked_code("\n".join(lines[end:]))


def _edit(old: list[str], new: list[str]) -> list[TextEdit]:
    """One part of a diff; none where it changes nothing."""
    if old == new:
        return []
    if not "".join(old).strip():
        raise MalformedPatchError(
            f"where does {new[0][:80]!r} go? A line that stays, with a blank in front of it, has to stand beside it"
        )
    return [TextEdit(search="\n".join(old), replacement="\n".join(new))]


def _checked_code(text: str) -> str:
    """What follows the last part: code, and not words about the patch, which would fail once it is applied."""
    try:
        compile(text, "<patch>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        first = text.strip().partition("\n")[0]
        raise MalformedPatchError(
            f"what follows the last part runs as Python, and {first[:80]!r} is not; another part begins with "
            f"`<<<<<<< SEARCH`, or is lines with `-` and `+`"
        ) from None
    return text.strip("\n") if text.strip() else ""


def _opened(lines: list[str]) -> list[str]:
    """What follows the marker of a SEARCH part, before which there may be blanks only."""
    first = next(index for index, line in enumerate(lines) if line.strip())
    if not _SEARCH.fullmatch(lines[first]):
        raise MalformedPatchError(f"`<<<<<<< SEARCH` has to stand before {lines[first][:80]!r}")
    return lines[first + 1 :]


def _until(lines: list[str], closing: re.Pattern[str], closes: str) -> tuple[str, list[str]]:
    for index, line in enumerate(lines):
        if closing.fullmatch(line):
            return "\n".join(lines[:index]), lines[index + 1 :]
    raise MalformedPatchError(f"a part has no `{closes}`")
