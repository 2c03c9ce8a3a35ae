"""Writes the tables of options in `docs/options.md` from their definitions, or checks them.

    python scripts/option_tables.py            writes them
    python scripts/option_tables.py --check    exit status 1 when one differs

Each stands between two comments, `<!-- options NAME -->` and `<!-- end -->`; the rest of the page is written by hand.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from cenote.gateway.jobs.rules import JobRules
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.values.quota import TenantLimits
from cenote.team.budget import Budget
from cenote_security.environment import Environment
from cenote_security.network import Allow, Secret
from cenote_security.options import Definition, Options, definitions
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.retention import Retention

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "options.md"
KINDS: Final[dict[str, type[Options]]] = {
    kind.__name__: kind
    for kind in (
        SandboxPolicy,
        Allow,
        Secret,
        Mount,
        Environment,
        Retention,
        JobRules,
        Budget,
        PlatformOptions,
        TenantLimits,
    )
}
PLACE: Final = re.compile(r"(<!-- options (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fresh(text: str) -> str:
    """The page with each table as its definitions give it now."""
    return PLACE.sub(lambda place: f"{place[1]}{table(KINDS[place[2]])}{place[3]}", text)


def table(kind: type[Options]) -> str:
    rows = ["| option | default | what it is to be | what it does |", "|---|---|---|---|"]
    rows += [f"| {' | '.join(_row(known))} |" for known in definitions(kind)]
    return "\n".join(rows) + "\n"


def _row(known: Definition) -> tuple[str, ...]:
    flag = f"<br>`--{known.option.flag}`" if known.option.flag else ""
    cells = (f"`{known.name}`{flag}", _default(known), known.described, known.option.help)
    return tuple(cell.replace("|", "\\|") for cell in cells)


def _default(known: Definition) -> str:
    return "" if known.is_required else f"`{known.default!r}`"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    found = PAGE.read_text(encoding="utf-8")
    if found == fresh(found):
        return 0
    if check:
        print(f"{PAGE.name} differs from the definitions: run python scripts/option_tables.py")
        return 1
    PAGE.write_text(fresh(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
