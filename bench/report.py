#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Converts the results of bench/run.sh to a Markdown table.

  python3 bench/report.py FILE.json                 writes FILE.md
  python3 bench/report.py --loaders FILE.json OUT   draws docs/images/loaders.svg: six loaders
  python3 bench/report.py --merge FOLDER OUT        for bench/run.sh: merges all results to one file

Needs Python 3.9. The chart needs matplotlib (Debian: python3-matplotlib); tables do not.
"""

import json
import sys
from pathlib import Path

from reporting.results import merge, programs_of
from reporting.table import markdown

try:
    from reporting import charts
except ModuleNotFoundError as absent:
    if not (absent.name or "").startswith("matplotlib"):
        raise
    charts = None


def result_of(file):
    report = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(report, dict) or not isinstance(report.get("programs"), dict):
        raise ValueError('no results of bench/run.sh: it has no key "programs"')
    return report


def place_of(report):
    machine = report.get("machine") or {}
    return (
        f"{machine.get('cpu', 'machine unknown')}, {machine.get('cores', '?')} cores, "
        f"{report.get('date', '')[:10]}, commit {report.get('commit', 'unknown')}"
        f"{'+' if report.get('dirty') else ''}"
    )


def write_report(file):
    report = result_of(file)
    table = file.with_suffix(".md")
    table.write_text("\n".join(markdown(report, programs_of(report))))
    print(f"wrote {table}")


def draw_loaders(file, out):
    if charts is None:
        raise ValueError("a chart needs matplotlib (Debian: python3-matplotlib)")
    report = result_of(file)
    charts.draw(report, out, f"{place_of(report)}: bench/run.sh --compare")


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    try:
        if len(arguments) == 3 and arguments[0] == "--merge":
            merge(Path(arguments[1]), Path(arguments[2]))
        elif len(arguments) == 3 and arguments[0] == "--loaders":
            draw_loaders(Path(arguments[1]), Path(arguments[2]))
        elif len(arguments) == 1 and arguments[0].endswith(".json"):
            write_report(Path(arguments[0]))
        else:
            print(__doc__.strip(), file=sys.stderr)
            return 2
    except (OSError, ValueError) as error:
        print(f"report.py: {arguments[-1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
