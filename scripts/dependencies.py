"""Prints what `pyproject.toml` here asks for, one requirement a line; the arguments are its extras, with commas between.

Of the Dockerfile, which installs it before the code: pip can install a project's dependencies only with the project.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [extra.strip() for extra in sys.argv[1].split(",") if extra.strip()]
print(*project["dependencies"], sep="\n")
for extra in extras:
    print(*project["optional-dependencies"][extra], sep="\n")
