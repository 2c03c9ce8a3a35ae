"""An auditor runs a share of patched histories in full, and says what differs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.harness.laboratory import Laboratory

from cenote.harness.apply import apply_plan
from cenote.harness.apply_auditor import Auditor, UnsoundError
from cenote.harness.patch import Patch
from cenote.harness.plan_forecast import make_plan


class Shown(Laboratory):
    def __init__(self) -> None:
        super().__init__(by_name=True)
        self.answers_only = True

    def values(self) -> Mapping[str, object]:
        return self.state.names()

    def files(self) -> Mapping[str, bytes]:
        return {path: text.encode() for path, text in self.state.files.items()}


def audited(chance: float, spoil: str = "") -> bool:
    """A patch of a small history; then something happens to the state that no record tells of."""
    ground = Shown()
    for code in ("a = 1", "b = [2]", "write('p', a)", "show(b)"):
        ground.execute(None, code)
    patch = Patch.replace_step(1, "a = 5")
    plan = make_plan(patch, ground.line(), ground.kept())
    result = apply_plan(plan, ground)
    exec(spoil, {"ground": ground})
    auditor = Auditor(share=0.5, fresh=Shown, chance=lambda: chance)
    return auditor.audit(plan.course.line, ground, result.records)


def test_a_sound_history_passes() -> None:
    """It was checked."""
    assert audited(0.4)


def test_only_a_share_is_checked() -> None:
    """The rest costs nothing."""
    assert not audited(0.5, "ground.state.namespace['b'] = 0")


@pytest.mark.parametrize(
    ("spoil", "names", "files"),
    [
        ("ground.state.namespace['b'].append(1)", ("b",), ()),
        ("ground.state.namespace['c'] = 1", ("c",), ()),
        ("ground.state.files['p'] = '1'", (), ("p",)),
    ],
)
def test_a_difference_raises_an_alarm(spoil: str, names: tuple[str, ...], files: tuple[str, ...]) -> None:
    """With the names."""
    with pytest.raises(UnsoundError, match="gives something else") as raised:
        audited(0.0, spoil)
    assert (names, files) == (raised.value.names, raised.value.files)


def test_a_history_whose_effects_would_be_repeated_is_not_run() -> None:
    """An auditor calls nothing."""
    ground = Shown()
    ground.answers_only = False
    ground.execute(None, "a = external(1)")
    line = make_plan(Patch.insert_step(1, "b = external(2)"), ground.line(), ground.kept()).course.line
    assert not Auditor(share=1, fresh=Shown, chance=lambda: 0.0).audit(line, ground, ground.line())
