"""`python -m cenote`: the command line of this interpreter's Cenote, whether or not its program is on the path."""

from __future__ import annotations

import sys

from cenote.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
