#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Turns what bench/run.sh has measured into a Markdown table and SVG plots next to it.

  python3 bench/report.py FILE.json            writes FILE.md and FILE.<plot>.svg
  python3 bench/report.py --merge FOLDER OUT   bench/run.sh's own: one file out of its programs'

Needs Python 3.9 and nothing else. A plot whose rows are not in the file is left out, and the table
says so.
"""

import json
import sys
from collections import OrderedDict
from pathlib import Path

from reporting.loaders import draw_loaders
from reporting.merging import merge
from reporting.overlap import draw_overlap
from reporting.queue import draw_queue
from reporting.ratios import draw_ratios
from reporting.results import programs_of
from reporting.table import markdown


def write_report(file):
    report = json.loads(file.read_text())
    if not isinstance(report, dict) or not isinstance(report.get("programs"), dict):
        raise ValueError('no results of bench/run.sh: it has no key "programs"')
    programs = programs_of(report)
    plots = OrderedDict(draw_ratios(programs) or (("ratios", None),))
    plots.update(
        (
            ("queue", draw_queue(programs, (report.get("machine") or {}).get("cores"))),
            ("overlap", draw_overlap(programs)),
            ("loaders", draw_loaders(programs)),
        )
    )
    stem = file.with_suffix("")
    machine = report.get("machine") or {}
    where = (
        f"{machine.get('cpu', 'machine unknown')}, {machine.get('cores', '?')} cores, "
        f"{report.get('date', '')[:10]}, commit {report.get('commit', 'unknown')}"
        f"{'+' if report.get('dirty') else ''}"
    )
    for plot, drawing in plots.items():
        path = Path(f"{stem}.{plot}.svg")
        if drawing:
            drawing.footer(where)
            path.write_text(drawing.svg())
            print(f"wrote {path}")
        else:
            path.unlink(missing_ok=True)
            print(f"no plot {plot}: its rows were not measured in this run")
    path = Path(f"{stem}.md")
    path.write_text("\n".join(markdown(report, programs, stem.name, plots)))
    print(f"wrote {path}")


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--merge":
        merge(Path(arguments[1]), Path(arguments[2]))
        return 0
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-") or not arguments[0].endswith(".json"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        write_report(Path(arguments[0]))
    except (OSError, ValueError) as error:
        print(f"report.py: {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
