"""Prints the requirements in this `pyproject.toml`, one per line. The argument names extras, separated by commas.

An extra that names others of this project stands for them.

The Dockerfile uses it to install dependencies before the code: pip installs a project's dependencies only with the
project.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
wanted = [extra.strip() for extra in sys.argv[1].split(",") if extra.strip()]
requirements = dict.fromkeys(project["dependencies"])  # each once, in order
for extra in wanted:  # it grows during the loop
    for requirement in project["optional-dependencies"][extra]:
        if own := re.fullmatch(rf"{project['name']}\[(.+)\]", requirement):
            wanted += [other for other in own[1].split(",") if other not in wanted]
        else:
            requirements[requirement] = None
print(*requirements, sep="\n")
