"""One command for all benchmarks: `python -m benchmarks [runtime|tokens] [--help]`."""

from __future__ import annotations

import argparse

from benchmarks.runtime import command as runtime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    runtime.add_arguments(
        kinds.add_parser("runtime", help="speed, memory, responsiveness against other runtimes")
    )
    runtime.run(parser.parse_args())


if __name__ == "__main__":
    main()
