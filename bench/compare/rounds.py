# SPDX-License-Identifier: BSL-1.0
"""Runs every row of every side in turn, round after round, and writes the results to a JSON file
and a table. images.py and formats.py use the parts of this module, with their own sides.

    python3 rounds.py --rounds N --data FOLDER --json FILE [--side NAME COMMAND]... [--without NAME REASON]...

bench/compare.sh calls this script after it has built and installed the sides. README.md describes
the file.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reporting.results import machine, spread  # noqa: E402

PER_CPU = "items_per_cpu_second"
MEASURED = (
    "items_per_second",
    "nanoseconds",
    "cpu_seconds",
    PER_CPU,
    "peak_mib",
    "first_batch_cold_ms",
)
ROW_SECONDS = 120
PIXELS = 28 * 28
HEADS = {
    "load": "Loading: bytes to normalised float32, batches of 64, shuffled, every value read",
    "train": "Training: 784-128-64-10, Adam, batches of 64, five epochs",
}
# The minimum ratios of samples a second to each peer; None: no target.
BOUNDS = {
    "penstock": {
        **{"libtorch": 10, "libtorch_batched": 10, "DataLoader": 50},
        **dict.fromkeys(("libtorch_by_hand", "DataLoader_TensorDataset", "DataLoader_batched")),
        **dict.fromkeys(("PyTorch_no_loader", "SPDL", "DALI_cpu", "plain_loop")),
    },
    "train_penstock_overlapped": {
        **{"train_DataLoader": 4, "train_DataLoader_batched": None, "train_PyTorch_resident": None},
    },
}


def output_of(command, seconds):
    """Returns the standard output of a command. Raises RuntimeError with the reason if there is
    none. Also ends worker processes."""
    # Uses one thread per operation, unless a row sets the number itself.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise RuntimeError(f"failed: not done in {seconds} s") from None
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"failed: status {process.returncode}: {last}")
    return out


class Row:
    def __init__(self, side, name, group):
        self.side, self.name, self.group = side, name, group
        self.runs = []
        self.failed = None

    def median(self, key):
        values = [run[key] for run in self.runs if run.get(key) is not None]
        return spread(values)["median"] if values and not self.failed else None

    def speed(self):
        return self.median("items_per_second")

    def result(self):
        made = {"name": self.name, "group": self.group, "peer": self.side}
        if self.failed:
            return {**made, "skipped": self.failed}
        made["repetitions"] = len(self.runs)
        for key in MEASURED:
            values = [run[key] for run in self.runs if run.get(key) is not None]
            if values:
                made[key] = spread(values)
        made["checked"] = self.runs[0]["checked"]
        return made


class Comparison:
    """The rows of `sides`, which maps the name of each side to its command. `wanted(row)` selects
    the measured rows."""

    def __init__(self, sides, wanted=lambda row: True):
        self.where, self.began = machine(), time.time()
        self.plan, self.absent = [], []  # rows, and sides that cannot list their rows
        for side, command in sides.items():
            try:
                names = output_of([*command, "--list"], ROW_SECONDS).split()
                self.plan += [(side, command, name) for name in names if wanted(name)]
            except (RuntimeError, OSError) as error:
                self.absent.append((side, str(error)))
        self.by_name, self.versions, self.rounds = {}, {}, 0

    @property
    def rows(self):
        return list(self.by_name.values())

    def row(self, side, name):
        return self.by_name.setdefault(name, Row(side, name, "train" if name.startswith("train") else "load"))

    def measure(self, data, rounds):
        """Runs each row once in each of the rounds that are left of `rounds`. Yields after each."""
        while self.rounds < rounds:
            self.rounds += 1
            for side, command, name in self.plan:
                title = f"round {self.rounds} of {rounds}: {name}"
                print(f"\r{title:72}", end="", file=sys.stderr, flush=True)
                try:
                    found = json.loads(output_of([*command, "--data", data, "--row", name], ROW_SECONDS))
                    self.versions.update(found["versions"])
                    for run in found["rows"]:
                        run[PER_CPU] = run["items_per_second"] * run["nanoseconds"] / 1e9 / run["cpu_seconds"]
                        self.row(side, run["name"]).runs.append(run)
                except (RuntimeError, OSError, ValueError) as error:
                    self.row(side, name).failed = str(error)
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
            yield

    def ranked(self, key=PER_CPU):
        """Returns the rows that have not failed, sorted by a median."""
        good = [row for row in self.rows if row.runs and not row.failed]
        return sorted(good, key=lambda row: -row.median(key))

    def head(self, data):
        where = self.where
        return (
            f"{data}; {where['cpu']}, {where['cores']} cores, governor {where['governor']}, load before "
            f"{where['load_before']:.2f}; medians of {self.rounds} rounds\n"
            + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        )

    def write(self, file, program, data, goals, skipped):
        """Writes the results. Replaces the file as a whole, because a time limit may end the
        process."""
        result = {
            "program": program,
            "machine": self.where,
            "data": data,
            "versions": self.versions,
            "rounds": self.rounds,
            "seconds": round(time.time() - self.began),
            "rows": [row.result() for row in self.rows]
            + [{"name": name, "group": "load", "peer": name, "skipped": why} for name, why in skipped],
            "goals": goals,
        }
        part = Path(f"{file}.part")
        part.write_text(json.dumps(result, indent=1) + "\n")
        part.replace(file)

    def finish(self, skipped, requires_all):
        """Prints what was left out, and exits, with 1 if a row has failed, or a side is absent that
        is required."""
        failed = [(row.name, row.failed) for row in self.rows if row.failed]
        for name, why in (*skipped, *failed):
            print(f"left out: {name}: {why}")
        sys.exit(1 if failed or (requires_all and self.absent) else 0)


class Peers(Comparison):
    """penstock and `peers`, arguments of `script`, as images.py and formats.py compare them. `data`
    describes the files, which `maker`, a script and its arguments, creates in `folder`."""

    def __init__(self, chosen, script, peers, maker, folder):
        done = subprocess.run([chosen.python, *maker, folder], check=True, stdout=subprocess.PIPE, text=True)
        self.chosen, self.data = chosen, done.stdout.splitlines()[-1]
        sides = {"penstock": [os.path.abspath(chosen.ours)]}
        sides.update((name, [chosen.python, str(script), name]) for name in peers)
        super().__init__(sides, lambda row: not chosen.only or row in chosen.only)
        for _ in self.measure(folder, chosen.rounds):
            pass

    @staticmethod
    def parser():
        made = argparse.ArgumentParser(allow_abbrev=False)
        made.add_argument("--ours", required=True)
        made.add_argument("--python", default=sys.executable)
        made.add_argument("--rounds", type=int, default=5)
        made.add_argument("--json")
        made.add_argument("--only", action="append", default=[])
        made.add_argument("--folder")
        return made

    def end(self, program, goals):
        print_goals(goals)
        if self.chosen.json:
            self.write(self.chosen.json, program, self.data, goals, self.absent)
        self.finish(self.absent, requires_all=False)


def print_rows(ranked, heading=""):
    """Prints the speeds of rows, without the part of their names that is the heading."""
    print(
        f"\n{heading:36}{'a CPU second':>14}{'min':>11}{'max':>11}{'a second':>12}{'min':>11}{'max':>11}"
        f"{'peak MiB':>10}"
    )
    for row in ranked:
        cells = ""
        for key, width in ((PER_CPU, 14), ("items_per_second", 12)):
            found = spread([run[key] for run in row.runs])
            for part, wide in (("median", width), ("min", 11), ("max", 11)):
                cells += f"{found[part]:{wide},.{0 if found[part] >= 1000 else 1}f}"
        print(f"{row.name.removeprefix(heading):36}{cells}{row.median('peak_mib'):10,.0f}")


def check(rows):
    """Checks that all sides have read the same samples and reached the same accuracy. Others are
    marked as failed."""
    trained = [r["checked"]["accuracy"] for row in rows if row.group == "train" for r in row.runs]
    reference = next((row.runs[0]["checked"] for row in rows if row.group == "load" and row.runs), None)
    for row in rows:
        for run in row.runs:
            found = run["checked"]
            if row.group == "train":
                if found["accuracy"] < max(trained) - 0.02:
                    row.failed = f"failed: accuracy {found['accuracy']:.3f}, others {max(trained):.3f}"
            elif (
                found["samples"] != reference["samples"]
                or found["labels"] != reference["labels"]
                or abs(found["values"] - reference["values"]) > 1e-6 * found["samples"] * PIXELS
            ):
                row.failed = f"failed: read {found}, others {reference}"


class Judge:
    """The goals: the ratio of penstock to a peer's best variant, by medians."""

    def __init__(self, rows):
        self.rows, self.goals = rows, []

    def best(self, start):
        """Returns the fastest row whose name without its axes is `start`."""
        found = [row for row in self.rows if row.name.partition("/")[0] == start and row.speed()]
        return max(found, key=Row.speed, default=None)

    def add(self, ours, theirs, compares, bound=None, key="items_per_second", label=""):
        if ours is None or theirs is None:
            return
        goal = {"name": ours.name, "floor": theirs.name, "compares": compares, "measure": key}
        goal["ratio"] = ours.median(key) / theirs.median(key)
        runs = [run[key] for run in theirs.runs]
        goal["noisy"] = max(runs) > 1.2 * min(runs)
        if bound is not None:
            goal["at_least" if compares == "speed" else "at_most"] = bound
            goal["met"] = goal["ratio"] >= bound if compares == "speed" else goal["ratio"] <= bound
        if label:
            goal["label"] = label
        self.goals.append(goal)

    def all(self):
        """Compares penstock with the fastest variant of each peer."""
        for ours, peers in BOUNDS.items():
            for peer, bound in peers.items():
                self.add(self.best(ours), self.best(peer), "speed", bound)
        fed, floor = self.best("train_penstock_overlapped"), self.best("train_penstock_resident")
        self.add(fed, floor, "time", 1.02, "nanoseconds")
        return self.goals


def print_goals(goals):
    if goals:
        print(f"\n{'ours':36}{'beside':38}{'':7}{'ratio':>8}  target")
    for goal in goals:
        bound = goal.get("at_least", goal.get("at_most"))
        target = "-" if bound is None else f"{'at least' if 'at_least' in goal else 'at most'} {bound:g}"
        verdict = {True: "met", False: "MISSED", None: ""}[goal.get("met")]
        noisy = "noisy: the other side moved by more than 20 %" if goal["noisy"] else ""
        print(
            f"{goal['name']:36}{goal['floor']:38}{goal['compares']:7}{goal['ratio']:8.3g}  "
            f"{target:14}{verdict:8}{goal.get('label', '')} {noisy}".rstrip()
        )


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-name", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--side", nargs=2, action="append", default=[])
    parser.add_argument("--without", nargs=2, action="append", default=[])
    chosen = parser.parse_args()
    compared = Comparison({name: shlex.split(command) for name, command in chosen.side})
    skipped = [*map(tuple, chosen.without), *compared.absent]
    goals = []
    for _ in compared.measure(chosen.data, chosen.rounds):
        # The file is written after each round, so that a time limit does not discard all results.
        check(compared.rows)
        goals = Judge(compared.rows).all()
        compared.write(chosen.json, "compare", chosen.data_name, goals, skipped)

    print(compared.head(chosen.data_name))
    for group in HEADS:
        ranked = [row for row in compared.ranked("items_per_second") if row.group == group]
        if ranked:
            print(f"\n{HEADS[group]}")
            print_rows(ranked)
    print_goals(goals)
    print(f"\n{chosen.json}, {time.time() - compared.began:.0f} s")
    compared.finish(skipped, requires_all=True)


if __name__ == "__main__":
    main()
