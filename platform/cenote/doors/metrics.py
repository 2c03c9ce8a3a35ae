"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cenote.connection import PlatformInfo, RuntimeInfo

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_STATES: Final = ("starting", "ready", "lost", "hibernated")


@dataclass(frozen=True, slots=True)
class Sample:
    """A gauge's value. name: without `cenote_`. help: the same for all samples of the name."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def of_platform(info: PlatformInfo, runtimes: Sequence[RuntimeInfo]) -> Iterator[Sample]:
    """What `cenote status` and `cenote runtime ls` say to the same token: of its tenant, and for one that may see
    them, of the machines.
    """
    states = Counter(runtime.state for runtime in runtimes)
    for state in _STATES:
        yield Sample("runtimes", "Runtimes of the tenant.", states[state], {"state": state})
    yield Sample("clients", "Clients of these runtimes.", sum(runtime.clients for runtime in runtimes))
    for node in info.nodes:
        labels = {"node": node.id}
        yield Sample("node_up", "Whether a machine answers.", not node.silent, labels)
        yield Sample("node_runtimes", "Runtimes on a machine, of all tenants.", node.runtimes, labels)
        yield Sample("node_references", "Shared values on a machine.", node.references, labels)
        yield Sample("node_reference_bytes", "Size of these values.", node.reference_bytes, labels)


def exposition(samples: Iterable[Sample]) -> str:
    """Samples of one name have to stand together: they are put in order."""
    lines = list[str]()
    last = ""
    for sample in sorted(samples, key=lambda sample: sample.name):
        name = f"cenote_{sample.name}"
        if name != last:
            lines += [f"# HELP {name} {sample.help}", f"# TYPE {name} gauge"]
            last = name
        labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in sample.labels.items())
        lines.append(
            f"{name}{{{labels}}} {sample.value:g}" if labels else f"{name} {float(sample.value):.17g}"
        )
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
