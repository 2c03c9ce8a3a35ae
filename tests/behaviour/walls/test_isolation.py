"""The level in force: the requested one, or the best available; never less than requested, nor `none` by itself."""

from __future__ import annotations

import pytest

from cenote_security.errors import IsolationUnavailableError
from cenote_security.walls.facilities import NEEDS, Facilities, Facility, resolve_isolation

EVERYTHING = ("namespaces", "landlock", "landlock scopes", "seccomp", "runsc")


def having(*names: str) -> Facilities:
    return Facilities(
        found=tuple(
            Facility(name=name, available=name in names, detail="the kernel's words", remedy=f"enable {name}")
            for name in EVERYTHING
        )
    )


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (EVERYTHING, "strict"),
        (EVERYTHING[1:4], "landlock"),
        (("namespaces", "landlock", "seccomp"), "strict"),
    ],
)
def test_auto_is_the_best_there_is(names: tuple[str, ...], level: str) -> None:
    """Namespaces first; Landlock alone where it has scopes."""
    assert level == resolve_isolation("auto", having(*names))


@pytest.mark.parametrize("missing", EVERYTHING)
@pytest.mark.parametrize("level", ["strict", "landlock", "gvisor", "none"])
def test_a_missing_facility_is_an_error_where_it_is_needed(level: str, missing: str) -> None:
    """Named with the kernel's message and how to enable it; at other levels it does not matter."""
    facilities = having(*(name for name in EVERYTHING if name != missing))
    if missing not in NEEDS[level]:  # type: ignore[index]
        assert level == resolve_isolation(level, facilities)  # type: ignore[arg-type]
        return
    with pytest.raises(IsolationUnavailableError) as caught:
        resolve_isolation(level, facilities)  # type: ignore[arg-type]
    assert (level, (f"{missing}: the kernel's words",)) == (caught.value.level, caught.value.missing)
    assert f"enable {missing}" == caught.value.remedy


def test_auto_is_never_none() -> None:
    """Where no level works, auto fails; `none` must be requested by name."""
    with pytest.raises(IsolationUnavailableError, match="namespaces"):
        resolve_isolation("auto", having())
    assert "none" == resolve_isolation("none", having())


def test_what_was_not_tried_is_missing() -> None:
    """A level is never granted on a guess."""
    with pytest.raises(IsolationUnavailableError, match="not tried"):
        resolve_isolation("strict", Facilities(found=()))
