"""Prints what `pyproject.toml` here asks for, one requirement a line. The argument names extras, with commas between.

For the Dockerfile, which installs it before the code: pip installs a project's dependencies only with the project.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [extra.strip() for extra in sys.argv[1].split(",") if extra.strip()]
print(*project["dependencies"], sep="\n")
for extra in extras:
    print(*project["optional-dependencies"][extra], sep="\n")
