# SPDX-License-Identifier: BSL-1.0
"""The common parts of images.py and formats.py. Runs all rows of all sides in turn, round after
round, reports samples per second of processor time, and writes the JSON file."""

import argparse
import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import rounds

PER_CPU = "items_per_cpu_second"


def parser():
    """Returns a parser with the options common to all scripts."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--ours", required=True)
    made.add_argument("--python", default=sys.executable)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--json")
    made.add_argument("--only", action="append", default=[])
    return made


def made(chosen, script, *words):
    """Creates the files with a script and returns its description of them."""
    command = [chosen.python, str(script), *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]


def require_equal(rows):
    """Marks each row as failed that has not read the same data as the first row."""
    reference = next((row.runs[0]["checked"] for row in rows if row.runs), None)
    for row in rows:
        for run in row.runs:
            if run["checked"] != reference:
                row.failed = f"failed: read {run['checked']}, others {reference}"


class Comparison:
    """The selected rows of penstock and of `peers`, arguments of `script`. `wanted(row)` selects
    the measured rows if `chosen` selects none."""

    def __init__(self, chosen, script, peers, wanted=lambda name: True):
        self.chosen, self.where, self.versions = chosen, rounds.machine(), {}
        sides = {"penstock": [os.path.abspath(chosen.ours)]}
        sides.update((name, [chosen.python, str(script), name]) for name in peers)
        plan, self.absent = rounds.plan_of(sides)
        self.plan = [one for one in plan if (one[2] in chosen.only if chosen.only else wanted(one[2]))]
        self.rows = []

    def measure(self, folder):
        by_name = OrderedDict()
        for number in range(1, self.chosen.rounds + 1):
            title = f"round {number} of {self.chosen.rounds}"
            rounds.measure(self.plan, title, folder, by_name, self.versions)
        self.rows = list(by_name.values())
        for row in self.rows:
            for run in row.runs:
                run[PER_CPU] = run["items_per_second"] * run["nanoseconds"] / 1e9 / run["cpu_seconds"]

    def ranked(self):
        """Returns the rows that have not failed, sorted by processor time."""
        return sorted(
            (row for row in self.rows if row.runs and not row.failed), key=lambda row: -row.median(PER_CPU)
        )

    def show_head(self, data):
        print(
            f"{data}; {self.where['cpu']}, {self.where['cores']} cores, load before "
            f"{self.where['load_before']:.2f}; medians of {self.chosen.rounds} rounds\n"
            + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        )

    def finish(self, program, data, **more):
        """Prints the skipped sides, writes the JSON file, and exits, with 1 if a row has failed."""
        failed = [(row.name, row.failed) for row in self.rows if row.failed]
        for name, why in (*self.absent, *failed):
            print(f"left out: {name}: {why}")
        if self.chosen.json:
            result = {
                "program": program,
                "machine": self.where,
                "data": data,
                "versions": self.versions,
                "rounds": self.chosen.rounds,
                "rows": [self.result(row) for row in self.rows],
                "skipped": self.absent,
                **more,
            }
            Path(self.chosen.json).write_text(json.dumps(result, indent=1) + "\n")
        sys.exit(1 if failed else 0)

    @staticmethod
    def result(row):
        if not row.runs:
            return row.result()
        return {**row.result(), PER_CPU: rounds.spread([run[PER_CPU] for run in row.runs])}
