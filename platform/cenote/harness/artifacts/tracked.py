"""Artifacts as users see them: what each is made of, its versions, and why it is out of date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cenote.harness.artifacts.artifact import Artifact, ArtifactKind
from cenote.harness.artifacts.declaring import depending_last
from cenote.harness.artifacts.sightings import ArtifactVersion
from cenote.harness.artifacts.staleness import Survey
from cenote_worker.history.events import RanTest, SuiteOutcome
from cenote_worker.trace import Location, Version, key_of, kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedArtifact:
    """An artifact on the line to the head.

    depends_on: as declared. uses: other artifacts that were seen to be used in making it, directly or through steps
    between; those that tests ran. versions: oldest first. stale: why it is out of date, a sentence each; `build`
    brings it up to date. tests: of a suite, as they came out last.
    """

    name: str
    kind: ArtifactKind
    depends_on: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    versions: tuple[ArtifactVersion, ...] = ()
    stale: tuple[str, ...] = ()
    tests: tuple[RanTest, ...] = ()

    @property
    def step(self) -> int:
        """The step that has made it as it is; 0 where none of the line has."""
        return self.versions[-1].step if self.versions else 0


def tracked(survey: Survey, suites: Mapping[str, SuiteOutcome]) -> tuple[TrackedArtifact, ...]:
    """All of them, in the order of their names."""
    stale = _stale(survey, suites)
    return tuple(
        _tracked(survey, artifact, stale[name], suites.get(name))
        for name, artifact in sorted(survey.artifacts.items())
    )


def _tracked(
    survey: Survey, artifact: Artifact, stale: tuple[str, ...], suite: SuiteOutcome | None
) -> TrackedArtifact:
    maker = survey.maker(artifact.name)
    seen = survey.uses[maker] if maker is not None else frozenset[str]()
    tested = frozenset(suite.units) if suite is not None and artifact.kind == "tests" else frozenset[str]()
    return TrackedArtifact(
        name=artifact.name,
        kind=artifact.kind,
        depends_on=artifact.depends_on,
        uses=tuple(sorted((seen | tested) - {artifact.name})),
        versions=tuple(survey.versions[artifact.name]),
        stale=stale,
        tests=suite.tests if suite is not None and artifact.kind == "tests" else (),
    )


def _reasons(survey: Survey, name: str, suites: Mapping[str, SuiteOutcome]) -> Iterator[str]:
    """Of an artifact by itself."""
    artifact, maker = survey.artifacts[name], survey.maker(name)
    if maker is not None and (outdated := survey.outdated.get(maker)):
        yield outdated.reason(survey.line[maker].number)
    if artifact.kind == "module" and (
        loaders := [each for each in survey.users(name) if _reads(survey, each, name)]
    ):
        step, change = survey.line[loaders[0]].number, survey.late[loaders[0]][name]
        yield f"step {step} has loaded it as it was before step {change}"
    if artifact.kind == "tests":
        yield from _untested(survey, suites.get(name))


def _reads(survey: Survey, index: int, name: str) -> bool:
    """Whether the step itself has read it, and does not only depend on it by declaration."""
    trace = survey.line[index].trace
    return trace is None or survey.artifacts[name].place in trace.reads


def _untested(survey: Survey, suite: SuiteOutcome | None) -> Iterator[str]:
    if suite is None:
        yield "its tests have not run"
        return
    for unit, version in sorted(suite.units.items()):
        if unit in survey.artifacts and survey.final.get(unit, version) != version:
            yield f"`{unit}` is different since its tests ran"
    if failed := [test.name for test in suite.tests if test.outcome != "passed"]:
        yield f"{', '.join(failed)} did not pass"


def _stale(survey: Survey, suites: Mapping[str, SuiteOutcome]) -> dict[str, tuple[str, ...]]:
    """Why each is out of date. What depends on something out of date is so too."""
    found = dict[str, tuple[str, ...]]()
    for name in depending_last(survey.artifacts):
        depends_on = survey.artifacts[name].depends_on
        theirs = [f"`{each}`, which it depends on, is out of date" for each in depends_on if found[each]]
        found[name] = (*_reasons(survey, name, suites), *theirs)
    return found


def units_of(survey: Survey, tests: tuple[RanTest, ...], suite: str) -> dict[str, Version]:
    """The artifacts that tests have used, the suite's own file among them, with their versions now."""
    places = {one.place: name for name, one in survey.artifacts.items() if one.place is not None}
    used = {_place(item) for test in tests for item in test.used}
    names = {places[place] for place in used if place in places} | ({suite} & set(places.values()))
    return {name: survey.final[name] for name in sorted(names) if name in survey.final}


def _place(item: str) -> Location:
    """Where what a test used belongs: `code:PATH:NAME` to the file."""
    location = Location(item)
    if kind_of(location) == "code":
        return Location(f"file:{key_of(location).rpartition(':')[0]}")
    return location
