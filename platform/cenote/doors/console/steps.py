"""Pages of one step: what it did, its outputs, what an edit of it would run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from cenote.doors.console.session import DOOR, HEADERS, PageRoute, Visit, address, redirect, value_address
from cenote.harness.patching.patch import Patch
from cenote_security.printable import printable
from cenote_worker.execution.results import Span

JAIL_HEADERS: Final = HEADERS | {
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'",
}
"""Headers for output of a jail, whatever it claims to be."""

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_FRAMES: Final = ("text/html",)
_FRAME: Final = re.compile("<(?=i?frame|fencedframe|portal)", re.IGNORECASE)
_TEXTS: Final = ("text/markdown", "text/latex", "application/json", "text/plain")
"""The first type that an output has is shown, images before frames before texts."""


MOST_OUTPUTS: Final = 50

MOST_TARGETS: Final = 100
"""Steps that a page names as having taken something from its step."""


MOST_WRITES: Final = 100

MOST_PLANNED: Final = 150
"""Steps that a plan lists as run again, and as many that it reuses."""

MOST_CODE: Final = 20_000
"""Characters of code that is edited on a page."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One output of a step on its page: as an `image`, a `frame` or a `text`. types: all that it has, with the
    addresses of their downloads.
    """

    kind: str
    url: str
    types: tuple[tuple[str, str], ...]
    text: str = ""


async def _step(visit: Visit) -> Response:
    state, step = await visit.step()
    takers = state.takers(step.number)
    shown = takers[:MOST_TARGETS]
    edges = [edge for edge in state.graph([step.number, *shown])["edges"] if edge["kind"] != "parent"]
    return visit.page(
        "step",
        title=f"{visit.name}, step {step.number}",
        name=visit.name,
        step=step,
        code=marked(step.code, step.error.span if step.error is not None else None),
        usage=step.record.usage,
        outputs=[_shown(visit, index, output) for index, output in enumerate(step.outputs[:MOST_OUTPUTS])],
        sources=[edge for edge in edges if edge["target"] == step.number],
        targets=[edge for edge in edges if edge["source"] == step.number],
        writes=[
            (symbol, value_address(visit.name, step.number, symbol)) for symbol in step.writes[:MOST_WRITES]
        ],
        more=len(takers) - len(shown),
        edited=step.code if is_editable(step.code) else None,
    )


async def _output(visit: Visit) -> Response:
    """An output in the form that its page shows; or one of its types, as a download."""
    _, step = await visit.step()
    index = visit.request.path_params["output"]
    output = step.outputs[index] if index < len(step.outputs) else {}
    wanted = visit.request.query_params.get("type", "")
    if wanted in output:
        stored = {"content-disposition": "attachment", "content-type": "application/octet-stream"}
        return Response(output[wanted], headers=JAIL_HEADERS | stored)
    kind = next((each for each in (*_IMAGES, *_FRAMES) if each in output and not wanted), None)
    if kind is None:
        return visit.page("failed", 404, title="Not found", message="there is no such output")
    if kind in _FRAMES:
        return Response(unframed(str(output[kind])), headers=JAIL_HEADERS, media_type=kind)
    stored = {"content-disposition": "attachment"} if kind == "image/svg+xml" else {}
    return Response(output[kind], headers=JAIL_HEADERS | stored, media_type=kind)


def unframed(html: str) -> str:
    """The document with no frames in it.

    Chromium looks a frame's host up, and connects to it, before it heeds the policy that refuses the frame: a jail
    without a network could tell anything in the names of hosts. SVG can have such frames in other spellings, so its
    pictures are shown by pages, where they load nothing, and stored when they are opened by themselves.
    """
    return _FRAME.sub("<x-", html)


async def _plan(visit: Visit) -> Response:
    """What an edit would run again; or runs it, where the form says so and the state is still the one it was."""
    form = await visit.form()
    state = await (await visit.runtime()).state()
    step = state.step(visit.request.path_params["step"])
    code, head = form.get("code", ""), state.head
    plan = await state.plan(Patch.replace_step(step.number, code, author=DOOR))
    wanted = bool(form.get("apply"))
    stale = wanted and form.get("head") != str(head)
    result = await state.apply(plan) if wanted and not stale else None
    stays = [one for one in plan.reused if one.position > plan.course.fork]
    return visit.page(
        "plan",
        title=f"{visit.name}, an edit of step {step.number}",
        name=visit.name,
        step=step,
        edited=code,
        change=[*unified_diff(step.code.splitlines(), code.splitlines(), lineterm="", n=3)][2:],
        plan=plan,
        rerun=plan.rerun[:MOST_PLANNED],
        stays=stays[:MOST_PLANNED],
        before=len(plan.reused) - len(stays),
        more=len(plan.rerun) + len(stays) - len(plan.rerun[:MOST_PLANNED]) - len(stays[:MOST_PLANNED]),
        head=head,
        stale=stale,
        result=result,
    )


async def _roll_back(visit: Visit) -> Response:
    await visit.form()
    await (await visit.runtime()).owner.rollback(visit.request.path_params["step"])
    return redirect(address(visit.name))


def is_editable(code: str) -> bool:
    """Whether a browser shows all of it, and sends it back as it was."""
    return len(code) <= MOST_CODE and printable(code, lines=True) == code


def _shown(visit: Visit, index: int, output: Mapping[str, str | bytes]) -> Shown:
    url = f"{visit.request.url.path}/outputs/{index}"
    kinds = tuple((kind, f"{url}?{urlencode({'type': kind})}") for kind in output)
    for kind, types in (("image", _IMAGES), ("frame", _FRAMES)):
        if any(each in output for each in types):
            return Shown(kind, url, kinds)
    found = next((output[each] for each in (*_TEXTS, *output) if isinstance(output.get(each), str)), "")
    return Shown("text", url, kinds, str(found))


def marked(code: str, span: Span | None) -> tuple[str, str, str]:
    """The code before the failing expression, that, and the code after it."""
    if span is None:
        return code, "", ""
    lines = code.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column

    begin, end = offset(span.line, span.column), offset(span.end_line, span.end_column)
    return code[:begin], code[begin:end], code[end:]


_STEP: Final = "/runtimes/{runtime}/steps/{step:int}"

ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", _STEP, _step),
    ("GET", f"{_STEP}/outputs/{{output:int}}", _output),
    ("POST", f"{_STEP}/plan", _plan),
    ("POST", f"{_STEP}/rollback", _roll_back),
)
