# SPDX-License-Identifier: BSL-1.0
"""Runs every row of every side in turn, round after round, and writes the results to a JSON file
and a table.

    python3 rounds.py --rounds N --data FOLDER --json FILE [--side NAME COMMAND]... [--without NAME REASON]...

bench/compare.sh calls this script after it has built and installed the sides. README.md describes
the file.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path

MEASURED = (
    "items_per_second",
    "nanoseconds",
    "cpu_seconds",
    "peak_mib",
    "first_batch_cold_ms",
)
ROW_SECONDS = 120
PIXELS = 28 * 28
HEADS = {
    "load": "Loading: bytes to normalised float32, batches of 64, shuffled, every value read",
    "train": "Training: 784-128-64-10, Adam, batches of 64, five epochs",
}


def first_line(path):
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""


def machine():
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "load_before": os.getloadavg()[0],
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
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


def spread(values):
    values = sorted(values)
    half = len(values) // 2
    middle = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    return {"median": middle, "min": values[0], "max": values[-1]}


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


def plan_of(sides):
    """Returns (side, command, row) for all rows, and (side, reason) for the sides that cannot list
    their rows."""
    plan, absent = [], []
    for side, command in sides.items():
        try:
            names = output_of([*command, "--list"], ROW_SECONDS).split()
            plan += [(side, command, name) for name in names]
        except (RuntimeError, OSError) as error:
            absent.append((side, str(error)))
    return plan, absent


def measure(plan, title, data, rows, versions):
    """Runs each row of `plan` once. Adds the results to `rows`, by name, and to `versions`."""
    for side, command, name in plan:
        print(f"\r{title}: {name:48}", end="", file=sys.stderr, flush=True)
        try:
            found = json.loads(output_of([*command, "--data", data, "--row", name], ROW_SECONDS))
            versions.update(found["versions"])
            for run in found["rows"]:
                rows.setdefault(run["name"], Row(side, run["name"], run["group"])).runs.append(run)
        except (RuntimeError, OSError, ValueError) as error:
            group = "train" if name.startswith("train") else "load"
            rows.setdefault(name, Row(side, name, group)).failed = str(error)
    print("\r" + " " * 72 + "\r", end="", file=sys.stderr)


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
        ours = self.best("penstock")
        self.add(ours, self.best("libtorch"), "speed", 10)
        self.add(ours, self.best("libtorch_batched"), "speed", 10)
        self.add(ours, self.best("DataLoader"), "speed", 50)
        for peer in (
            "libtorch_by_hand",
            "DataLoader_TensorDataset",
            "DataLoader_batched",
            "PyTorch_no_loader",
            "SPDL",
            "DALI_cpu",
        ):
            self.add(ours, self.best(peer), "speed")
        self.add(ours, self.best("plain_loop"), "speed")

        fed = self.best("train_penstock_overlapped")
        self.add(fed, self.best("train_penstock_resident"), "time", 1.02, "nanoseconds")
        self.add(fed, self.best("train_DataLoader"), "speed", 4)
        self.add(fed, self.best("train_DataLoader_batched"), "speed")
        self.add(fed, self.best("train_PyTorch_resident"), "speed")
        return self.goals


def shown(value, digits=3):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def table(rows, group):
    ranked = sorted(
        (row for row in rows if row.group == group and row.speed()), key=lambda row: -row.speed()
    )
    if not ranked:
        return
    ours = max((row.speed() for row in ranked if "penstock" in row.name), default=None)
    print(f"\n{HEADS[group]}\n")
    print(
        f"{'':38}{'samples/s':>12}{'min':>12}{'max':>12}{'ours / it':>10}{'CPU s/epoch':>12}"
        f"{'peak MiB':>9}{'first batch, ms':>17}"
    )
    for row in ranked:
        speeds = spread([run["items_per_second"] for run in row.runs])
        print(
            f"{row.name:38}{speeds['median']:12,.0f}{speeds['min']:12,.0f}{speeds['max']:12,.0f}"
            f"{shown(ours / speeds['median'] if ours else None):>10}"
            f"{shown(row.median('cpu_seconds')):>12}{shown(row.median('peak_mib')):>9}"
            f"{shown(row.median('first_batch_cold_ms')):>17}"
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
    sides = OrderedDict((name, shlex.split(command)) for name, command in chosen.side)
    where = machine()
    began = time.time()
    plan, absent = plan_of(sides)
    skipped = [*map(tuple, chosen.without), *absent]
    by_name, versions = OrderedDict(), {}
    for number in range(1, chosen.rounds + 1):
        measure(plan, f"round {number} of {chosen.rounds}", chosen.data, by_name, versions)
        rows = list(by_name.values())
        check(rows)
        goals = Judge(rows).all()
        result = {
            "program": "compare",
            "machine": where,
            "data": chosen.data_name,
            "versions": versions,
            "rounds": number,
            "seconds": round(time.time() - began),
            "rows": [row.result() for row in rows]
            + [
                {"name": name, "group": "load", "peer": name, "skipped": why}
                for name, why in skipped
            ],
            "goals": goals,
        }
        # The file is written after each round, so that a time limit does not discard all results.
        part = f"{chosen.json}.part"
        with open(part, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
        os.replace(part, chosen.json)

    print(
        f"{where['cpu']}, {where['cores']} cores, governor {where['governor']}, load before "
        f"{where['load_before']:.2f}; {chosen.data_name}; medians of {chosen.rounds} rounds\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    for group in HEADS:
        table(rows, group)
    if goals:
        print(f"\n{'ours':36}{'beside':38}{'':7}{'ratio':>8}  target")
    for goal in goals:
        bound = goal.get("at_least", goal.get("at_most"))
        target = "-" if bound is None else f"{'at least' if 'at_least' in goal else 'at most'} {bound:g}"
        verdict = {True: "met", False: "MISSED", None: ""}[goal.get("met")]
        noisy = "noisy: the other side moved by more than 20 %" if goal["noisy"] else ""
        print(
            f"{goal['name']:36}{goal['floor']:38}{goal['compares']:7}{shown(goal['ratio']):>8}  "
            f"{target:14}{verdict:8}{goal.get('label', '')} {noisy}".rstrip()
        )
    failed = [(row.name, row.failed) for row in rows if row.failed]
    if skipped or failed:
        print("\nleft out:")
    for name, why in (*skipped, *failed):
        print(f"  {name}: {why}")
    print(f"\n{chosen.json}, {result['seconds']} s")
    # A missing side is not a failure. An installed side that does not run, or reads other data, is
    # a failure.
    sys.exit(1 if failed or absent else 0)


if __name__ == "__main__":
    main()
