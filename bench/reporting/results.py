# SPDX-License-Identifier: BSL-1.0
"""Reads the results of all programs: names, figures, goals and verdicts. Merges them to one file.
"""

import json
import math
import os
import re
from collections import OrderedDict
from pathlib import Path


class Name:
    """The parts of a benchmark name "function/axis:value/axis:value"."""

    def __init__(self, text):
        self.text = text
        function, self.axes = [], OrderedDict()
        for part in text.split("/"):
            axis, colon, value = part.partition(":")
            if colon:
                self.axes[axis] = float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value) else value
            else:
                function.append(part)
        self.function = "/".join(function)


def number(value, digits=3):
    """Formats a number briefly: 1234567 -> 1,234,567; 0.98765 -> 0.988; 65536.0 -> 65,536."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.{digits}g}" if abs(value) >= 100 else f"{value:.{digits - 1}f}"
    return f"{value:.{digits}f}" if abs(value) >= 0.01 else f"{value:.{digits}g}"


def of_unit(value, units):
    """Returns the value in the largest unit for which it is at least 1."""
    for size, unit in units:
        if abs(value) >= size:
            return f"{number(value / size)} {unit}".rstrip()
    size, unit = units[-1]
    return f"{number(value / size)} {unit}".rstrip()


def time_of(nanoseconds):
    return of_unit(nanoseconds, ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")))


def rate_of(per_second):
    return of_unit(per_second, ((1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1, "/s")))


def median_of(row, key):
    """Returns a row's median of nanoseconds, items_per_second or a counter, or None if it is
    missing."""
    found = row.get(key, (row.get("counters") or {}).get(key))
    if isinstance(found, dict):
        found = found.get("median")
    return found if isinstance(found, (int, float)) and math.isfinite(found) else None


def is_program(found):
    return isinstance(found, dict) and isinstance(found.get("rows"), list)


def training_rows(program, found):
    """Returns the four loops of the MLP as rows and goals, so that they are judged like all others.
    """
    label = f"an epoch of {found.get('data', {}).get('name', 'unnamed data')}"
    by_name, goals = {}, []
    for mode in found.get("modes", []):
        per_epoch = 1e9 / found["options"]["epochs"]
        of_runs = {**spread(mode["seconds_of_runs"]), "median": mode["seconds"]}
        by_name[mode["technique"]] = {key: value * per_epoch for key, value in of_runs.items()}

    def judge(name, floor, over, noisy_if, bound=None):
        goal = {"name": name, "floor": floor, "compares": "time"}
        goal.update(ratio=by_name[name]["median"] / over, noisy=noisy_if["max"] > 1.2 * noisy_if["min"])
        if bound is not None:
            goal.update(at_most=bound, met=goal["ratio"] <= bound)
        goals.append(goal)

    if floor := by_name.get("resident"):
        for name, bound in (("overlapped", 1.02), ("serial", None)):
            if name in by_name:
                judge(name, "resident", floor["median"], floor, bound)
    costs = found.get("batch_microseconds") or {}
    if costs.get("bound") and "overlapped" in by_name:
        epoch = costs["bound"] * 1e3 * found["batches_per_epoch"]
        judge("overlapped", f"bound by {costs['bound_by']}", epoch, by_name["overlapped"])
    rows = [
        {"name": name, "repetitions": len(mode["seconds_of_runs"]), "nanoseconds": nanoseconds, "label": label}
        for (name, nanoseconds), mode in zip(by_name.items(), found.get("modes", []))
    ]
    return {"program": program, "rows": rows, "goals": goals}


def programs_of(report):
    programs = OrderedDict()
    for name, found in report.get("programs", {}).items():
        if isinstance(found, dict) and isinstance(found.get("modes"), list):
            programs[name] = training_rows(name, found)
        elif is_program(found):
            programs[name] = found
    return programs


def bound_of(goal):
    """Returns ("at least" or "at most", bound), or None for a ratio without a goal."""
    for key in ("at_least", "at_most"):
        if goal.get(key) is not None:
            return key.replace("_", " "), goal[key]
    return None


def value_of(goal):
    value = goal.get("ratio", goal.get("difference"))
    return value if isinstance(value, (int, float)) else None


def verdict_of(goal):
    if value_of(goal) is None:
        return "not measured"
    word = "" if goal.get("met") is None else "met" if goal["met"] else "missed"
    if goal.get("noisy"):
        return f"{word}, noisy" if word else "noisy"
    return word


# The six loaders in README: the function at the start of a row's name, and the label in the
# chart.
LOADERS = {
    "plain_loop": "plain C++ loop, no loader",
    "penstock": "penstock",
    "libtorch_batched": "libtorch, batched",
    "DataLoader_batched": "PyTorch DataLoader, batched",
    "DALI_cpu": "NVIDIA DALI, CPU pipeline",
    "DataLoader": "PyTorch DataLoader, per sample",
}


def fastest_loaders(report):
    """Returns (name, samples per second, the same as text) for each loader with its fastest
    setting."""
    for function, name in LOADERS.items():
        speed = max(
            median_of(row, "items_per_second") or 0
            for row in report["programs"]["compare"]["rows"]
            if row["name"].split("/")[0] == function
        )
        yield name, speed, f"{speed / 1e6:.1f} M" if speed >= 1e6 else f"{speed / 1e6:.2f} M"


def text_of(value, indent=0):
    """Returns JSON text with one line per row, goal and step."""

    def has_rows(value):
        inner = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (dict, list)):
            return False
        return any(map(has_rows, inner)) or (
            isinstance(value, list) and any(isinstance(one, (dict, list)) for one in inner)
        )

    if not has_rows(value):
        return json.dumps(value)
    if isinstance(value, dict):
        inner = [f"{json.dumps(key)}: {text_of(one, indent + 1)}" for key, one in value.items()]
    else:
        inner = [text_of(one, indent + 1) for one in value]
    line = "\n" + " " * indent
    first, last = "{}" if isinstance(value, dict) else "[]"
    return first + f"{line} " + f",{line} ".join(inner) + line + last


def spread(values):
    values = sorted(values)
    half = len(values) // 2
    middle = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    return {"median": middle, "min": values[0], "max": values[-1]}


def first_match(path, pattern):
    try:
        return re.search(pattern, Path(path).read_text(), re.M)[1]
    except (OSError, TypeError):
        return "unknown"


def machine():
    governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return {
        "cpu": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$"),
        "cores": len(os.sched_getaffinity(0)),
        "governor": first_match(governor, r"^(.+)$"),
        "load_before": os.getloadavg()[0],
    }


def merge(folder, out):
    """Writes the merged file and prints its name. bench/run.sh passes its information in the
    environment."""
    steps, programs = [], OrderedDict()
    for line in (folder / "steps.tsv").read_text().splitlines():
        name, ended, seconds, command = line.split("\t", 3)
        steps.append({"name": name, "ended": ended, "seconds": int(seconds), "command": command})
        try:
            programs[name] = json.loads((folder / f"{name}.json").read_text())
        except FileNotFoundError:
            pass
        except ValueError as error:
            if ended == "passed":
                steps[-1]["ended"] = f"failed: its JSON can't be read: {error}"
    known, here = os.environ, machine()
    system = first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)')
    report = {
        "date": known["began"],
        "commit": known["commit"],
        "dirty": json.loads(known["dirty"]),
        "command": known["command_line"].strip(),
        "machine": {
            **here,
            "load_before": float(known["load_before"]),  # before the build
            "compiler": known["compiler"],
            "os": f"{system} {os.uname().sysname} {'.'.join(os.uname().release.split('.')[:2])}",
        },
        "steps": steps,
        "programs": programs,
    }
    plain = re.sub(r"\((R|TM|tm)\)|\bCPU\b|@.*|\bProcessor\b|\b\d+-Core\b", " ", here["cpu"])
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    stem = f"{known['began'][:10]}-{slug}-{known['commit']}"
    file, again = out / f"{stem}.json", 1
    while file.exists():  # a run never replaces another run's file
        again += 1
        file = out / f"{stem}-{again}.json"
    file.write_text(text_of(report) + "\n")
    print(file)
