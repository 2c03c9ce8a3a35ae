"""Runs public notebooks, unchanged, by nbclient with the kernel `cenote`.

    python -m tests.peers.notebooks [FOLDER [NOTEBOOK...]]

Without a folder these are twenty notebooks of statsmodels, which pip fetches with its sources (in minutes, once).
They need no network. The environment `.venv-peers-notebooks` is made by the first run. A notebook has run if no cell
failed but those that have an error in the notebook itself. Exit status 1: one has not run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".venv-peers-notebooks"
STATSMODELS: Final = "0.14.5"
PACKAGES: Final = (
    "matplotlib<3.11",
    "nbclient>=0.10",
    "nbformat>=5.10",
    "numpy<2.4",
    "pandas<3",
    "patsy",
    "scipy<1.17",
    "seaborn",
    f"statsmodels=={STATSMODELS}",
)
NOTEBOOKS: Final = (
    "categorical_interaction_plot",
    "chi2_fitting",
    "copula",
    "count_hurdle",
    "deterministics",
    "discrete_choice_example",
    "discrete_choice_overview",
    "glm",
    "glm_formula",
    "gls",
    "lowess",
    "metaanalysis1",
    "ols",
    "plots_boxplots",
    "predict",
    "quasibinomial",
    "robust_models_0",
    "tsa_dates",
    "tsa_filters",
    "wls",
)

RUN: Final = """
import sys, nbclient, nbformat
made = nbformat.read(sys.argv[1], 4)
expected = {i for i, cell in enumerate(made.cells) if any(o.output_type == "error" for o in cell.get("outputs", ()))}
nbclient.NotebookClient(made, kernel_name="cenote", timeout=600, allow_errors=True).execute()
failed = False
for index, cell in enumerate(made.cells):
    for output in cell.get("outputs", ()):
        if output.output_type == "error" and index not in expected:
            print(f"cell {index}: {output.ename}: {output.evalue[:300]}", file=sys.stderr)
            failed = True
sys.exit(failed)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("notebooks", nargs="*", help="by default all of the folder")
    options = parser.parse_args()
    python = environment()
    if options.folder is None:
        folder, names = of_statsmodels(python), NOTEBOOKS
    else:
        folder = options.folder.resolve()
        names = tuple(options.notebooks or sorted(each.stem for each in folder.glob("*.ipynb")))
    with TemporaryDirectory() as data:
        environ = {**os.environ, "JUPYTER_DATA_DIR": data, "IPYTHONDIR": data}
        install = [python, "-m", "cenote.cli.main", "jupyter", "install", "--memory", "2GiB"]
        subprocess.run(install, env=environ, check=True)
        failed = [name for name in names if not runs(python, folder / f"{name}.ipynb", environ)]
    print(f"{len(names) - len(failed)} of {len(names)} notebooks have run")
    return 1 if failed else 0


def environment() -> Path:
    """Its Python. The environment is made again when its packages change."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".packages"
    if not stamp.exists() or stamp.read_text() != repr(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        install = [python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[jupyter]", *PACKAGES]
        subprocess.run(install, check=True)
        stamp.write_text(repr(PACKAGES))
    return python


def of_statsmodels(python: Path) -> Path:
    """The folder of its notebooks, which only its sources have."""
    archive = FOLDER / f"statsmodels-{STATSMODELS}.tar.gz"
    if not archive.exists():
        sources = ["--no-deps", "--no-binary", "statsmodels", f"statsmodels=={STATSMODELS}"]
        subprocess.run([python, "-m", "pip", "download", "-q", *sources, "-d", FOLDER], check=True)
    notebooks = FOLDER / archive.name.removesuffix(".tar.gz") / "examples" / "notebooks"
    if not notebooks.is_dir():
        with tarfile.open(archive) as opened:
            opened.extractall(FOLDER, filter="data")
    return notebooks


def runs(python: Path, notebook: Path, environ: dict[str, str]) -> bool:
    """Whether it does; prints which cell has failed."""
    command = [python, "-c", RUN, notebook]
    ended = subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, check=False)
    print(f"{notebook.stem}: {'has run' if not ended.returncode else ended.stderr[-1000:]}", flush=True)
    return not ended.returncode


if __name__ == "__main__":
    sys.exit(main())
