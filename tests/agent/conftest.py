"""Makes the fakes and this folder's test language importable."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).resolve().parents[1], Path(__file__).resolve().parent):
    if str(folder) not in sys.path:
        sys.path.append(
            str(folder)
        )  # for `fakes` and `playbook`, which are not tests and so are not collected
