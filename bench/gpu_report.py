#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Judges what bench/gpu_report.sh has left in OUT/gpu_report_steps, and puts it together:
OUT/report.json, OUT/report.txt and OUT/logs.txt. Exit status: 0 if every step ran and passed and
every target was measured, else 1."""

import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import sys

# The steps of benchmarks that write rows, in the order of the report.
BENCHES = ("results", "graph-wait", "bulk", "registered", "transfer")
ACCEPTED = ("passed", "absent", "left out")  # absent: a peer; left out: on request
SAME = "All loops had the same losses and parameters"  # the main example's line if its results agree


def read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def text_of(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def tests_of(log):
    """How many tests a log says were run: Catch2's, or comparisons of the MLP's kernels."""
    found = re.findall(
        r"^(?:.*\bin (\d+) test cases?\)|test cases:\s*(\d+)\b.*|(\d+) comparisons, .*)$",
        log,
        re.MULTILINE,
    )
    return sum(int(number) for match in found for number in match if number)


def wrong_with_json(name, found):
    """Why a program's JSON is not what its step was run for; nothing if it is."""
    if found is None:
        return "no JSON"
    if not name.startswith("mlp-"):
        return None if isinstance(found, dict) and found.get("rows") else "no rows in its JSON"
    runs = found if isinstance(found, list) else [found]
    if not runs or not all(isinstance(run, dict) and run.get("modes") for run in runs):
        return "no modes in its JSON"
    if any(run["device"]["kind"] != "cuda" for run in runs):
        return "not run on the GPU"
    return None


def wrong_with_sanitizer(log):
    summaries = re.findall(r"((?:ERROR|RACECHECK) SUMMARY: .*)", log)
    if not summaries:
        return "no summary of the tool"
    wrong = [s for s in summaries if not re.search(r": 0 (errors|hazards)", s)]
    return wrong[0] if wrong else None


def found_by(found):
    """What a program has written, as a list: of one experiment, or of several."""
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def judged(step, log, found):
    """How a step has ended."""
    status = step["status"]
    if not re.fullmatch(r"\d+", status):
        return status
    if status == "77":
        return "failed: skipped beside a GPU"
    if status in ("124", "137"):
        return "failed: time limit"
    lost = [one["lost"] for one in found_by(found) if one.get("lost")]
    if lost:
        return f"failed: the GPU's context was lost at {lost[0]}"
    if status != "0":
        return f"failed: status {status}"
    if "tests" in step["expects"] and not step["tests"]:
        return "failed: no test ran"
    if "example" in step["expects"] and SAME not in log:
        return "failed: its loops were not compared"
    wrong = None
    if "sanitized" in step["expects"]:
        wrong = wrong_with_sanitizer(log)
    if not wrong and "json" in step["expects"]:
        wrong = wrong_with_json(step["name"], found)
    return f"failed: {wrong}" if wrong else "passed"


def rows_of(found):
    """How many rows there are in what a program has written, finished or not."""
    if isinstance(found, list):
        return sum(rows_of(one) for one in found)
    return len(found.get("rows") or found.get("modes") or []) if isinstance(found, dict) else 0


def steps_of(folder):
    """The steps in their order, and what their programs have written, by name: all of it, also of
    a step that was cut or has failed, which is "partial" then."""
    steps, results = [], {}
    for line in text_of(os.path.join(folder, "steps.tsv")).splitlines():
        name, status, seconds, share, expects, command = line.split("\t", 5)
        log = text_of(os.path.join(folder, name + ".log"))
        found = read(os.path.join(folder, name + ".json"))
        step = {
            "name": name,
            "status": status,
            "seconds": int(seconds),
            "share": int(share),
            "expects": expects.split(","),
            "tests": tests_of(log) if "tests" in expects else None,
            "command": command,
        }
        step["ended"] = judged(step, log, found)
        step["said"] = log.splitlines()[-1][:200] if log else ""
        steps.append(step)
        if step["ended"] == "passed" and "json" in step["expects"]:
            results[name] = found
        elif step["ended"].startswith("failed: ") and rows_of(found) and name != "smoke":
            if wrong_with_json(name, found) is None:
                step["ended"] = step["ended"].replace("failed: ", "partial: ", 1)
                results[name] = found
    return steps, results


def rows_in(report, step):
    """The rows of a benchmark, or none if it was not measured."""
    return (report.get(step.replace("-", "_")) or {}).get("rows", [])


def failed_rows(report):
    """Yields the failed rows of each program: step, name and reason."""
    for step in BENCHES:
        for row in rows_in(report, step):
            if "failed" in row:
                yield step, f"{row['group']}: {row['name']}", row["failed"]
    for name, found in report.get("mlp", {}).items():
        for one in (one for run in found_by(found) for one in run.get("failed", [])):
            yield f"mlp-{name}", one["what"], one["why"]


def gpu_of(folder):
    keys = ("name", "driver", "compute_capability", "memory", "pcie_generation_max")
    keys += ("pcie_width_max", "pcie_generation_idle")
    lines = text_of(os.path.join(folder, "gpu.csv")).splitlines()
    found = dict(zip(keys, (x.strip() for x in lines[0].split(",")))) if lines else {}
    watched = watched_of(folder)
    if "pcie_generation" in watched:
        found["pcie_generation_busy"] = format(watched["pcie_generation"][2], "g")
    return {**found, "watched": watched}


def watched_of(folder):
    """Least, median and most of what nvidia-smi has said twice a second during the run."""
    keys = ("sm_mhz", "memory_mhz", "pcie_generation", "pcie_width", "busy_percent", "celsius")
    columns = {key: [] for key in (*keys, "watts")}
    for line in text_of(os.path.join(folder, "watched.csv")).splitlines():
        for key, word in zip(columns, line.split(",")[1:]):
            number = re.match(r"\s*(\d+(?:\.\d+)?)", word)
            if number:
                columns[key].append(float(number[1]))
    return {
        key: (min(all_), statistics.median(all_), max(all_)) for key, all_ in columns.items() if all_
    }


def mlp_runs(results):
    """Every run of the MLP, and what to call it: a step may have made several, one for each seed."""
    for name, found in results.items():
        if isinstance(found, dict):
            yield name, found
            continue
        for one in found:
            yield f"seed {one['options']['seed']}", one


def mlp_rows(results):
    """One line a mode of every run of the MLP."""
    yield (
        f"{'run':14} {'mode':11} {'workers':>7} {'batch':>6} {'total s':>9} {'us/batch':>9} "
        f"{'fed/resident':>12} {'fed/one batch':>13} {'accuracy':>9}"
    )
    for name, found in mlp_runs(results):
        options = found["options"]
        batches = options["epochs"] * found["batches_per_epoch"]

        def ratio(value):
            return "-" if value is None else format(value, ".3f")

        for mode in found["modes"]:
            yield (
                f"{name:14} {mode['technique']:11} {options['workers']:7} {options['batch']:6} "
                f"{mode['seconds']:9.3f} {1e6 * mode['seconds'] / batches:9.1f} "
                f"{ratio(mode.get('fed_over_resident')):>12} "
                f"{ratio(mode.get('fed_over_one_batch')):>13} {100 * mode['test_accuracy']:8.2f}%"
            )


def column(rows, name, key="ratio", least=0):
    """A value of all rows of that name and of at least so many bytes."""
    return [r[key] for r in rows if r["name"] == name and r["bytes"] >= least and key in r]


def over(rows, name, other, least):
    """The values of the rows of one name, divided by those of the other at the same bytes."""
    found = {r["bytes"]: r["value"] for r in rows if r["name"] == other and r.get("value")}
    return [
        r["value"] / found[r["bytes"]]
        for r in rows
        if r["name"] == name and r["bytes"] >= least and "value" in r and r["bytes"] in found
    ]


def gains_of_example(lines):
    """How many times as fast as the serial loop the example's overlapped loop was: one or none."""
    found = (re.match(r"overlapped +[\d.]+ +([\d.]+)x", line) for line in lines)
    return [float(gain[1]) for gain in found if gain]


def targets_of(report):
    """What is asked of an H200, and what was found: text, value or None, target, more is better."""
    results, registered = rows_in(report, "results"), rows_in(report, "registered")
    tiny = rows_in(report, "transfer")
    modes = {m["technique"]: m for m in report["mlp"].get("modes", {}).get("modes", [])}
    fed = modes.get("overlapped", {})
    floors = [fed.get("fed_over_resident"), fed.get("fed_over_one_batch")]
    seeds = [
        m["test_accuracy"]
        for found in report["mlp"].get("seeds", [])
        for m in found["modes"]
        if m["technique"] == "overlapped"
    ]

    def at_least(target, what, values):
        return what, min(values, default=None), target, True

    def at_most(target, what, values):
        return what, max(values, default=None), target, False

    returned = column([r for r in results if r["bytes"] == 1 << 16], "results")
    yield at_least(0.95, "results of 64 KiB over plain copies to the host", returned)
    graph = column(rows_in(report, "graph-wait"), "penstock, depth 4")
    yield at_most(1.02, "graph of 19 us, fed / resident, depth 4", graph)
    bulk = column(rows_in(report, "bulk"), "upload, 8 workers")
    yield at_least(0.95, "upload with 8 workers over one pinned copy", bulk)
    ratios = over(registered, "transfer, registered", "transfer, pinned", 1 << 20)
    yield at_least(0.98, "registered_memory over a pinned slab, 1 MB and above, worst", ratios)
    example = gains_of_example(report["example"].get("example", []))
    yield at_least(1.5, "the example on plain MNIST, serial / overlapped", example)
    pinned = column(registered, "transfer, pinned", "ratio", 1 << 20)
    yield at_least(0.97, "pinned transfer over plain loop, 1 MB and above, worst", pinned)
    ready = column(tiny, "transfer, batches ready", "value")
    yield at_most(10.0, "host time per batch, batches ready, us, worst", ready)
    what = "host time per batch, loader with 8 workers, processor time of the thread, us"
    yield at_most(10.0, what, column(tiny, "loader, 8 workers, thread's CPU", "value"))
    yield "fed / the smaller floor of the two", None if None in floors else max(floors), 1.02, False
    yield "MNIST, 5 epochs, batch 64, s", fed.get("seconds"), 0.20, False
    accuracy = statistics.median(seeds) if len(seeds) == 5 else None
    yield "accuracy, median of five seeds", accuracy, 0.97, True


def is_met(value, target, more_is_better):
    if value is None:
        return None
    return value >= target if more_is_better else value <= target


def claims_of(report):
    """What the run was to show, and whether it did: True, False, or None where it was not measured.
    Claims are the targets, and each step that tests something."""
    for target in report["targets"]:
        yield target["what"], target["met"]
    for s in report["steps"]:
        if "tests" in s["expects"] or "example" in s["expects"]:
            refuted = re.fullmatch(r"failed: (status \d+|.*SUMMARY.*)", s["ended"])
            yield s["name"], s["ended"] == "passed" or (False if refuted else None)


def lines_of(report):
    """The report as text."""
    gpu = report["gpu"]
    versions = [
        f"{name} {value // 1000}.{value % 1000 // 10}"
        for name, value in (
            ("driver for CUDA", (report["transfer"] or {}).get("driver_cuda")),
            ("runtime", (report["transfer"] or {}).get("runtime")),
        )
        if value
    ]
    yield ", ".join(
        [gpu.get("name", "GPU unknown"), f"driver {gpu.get('driver', 'unknown')}", *versions]
    )
    yield (
        f"PCIe generation {gpu.get('pcie_generation_max', 'unknown')} at most, "
        f"{gpu.get('pcie_generation_busy') or 'unknown'} while transferring, "
        f"{gpu.get('pcie_generation_idle', 'unknown')} before, "
        f"width {gpu.get('pcie_width_max', 'unknown')}"
    )
    yield f"{report['date']}, commit {report['commit']}: {report['command']}"
    if report["pack"]:
        yield "packed: " + "; ".join(f"{key} {value}" for key, value in report["pack"].items())
    yield ""
    for line in report["machine"]:
        yield "  " + line
    for key, values in gpu.get("watched", {}).items():
        yield f"  {key}: least {values[0]:g}, median {values[1]:g}, most {values[2]:g}"
    yield ""
    claims = [shown for _, shown in claims_of(report)]
    yield (
        f"CLAIMS: {claims.count(True)} shown, {claims.count(False)} refuted, "
        f"{claims.count(None)} not measured"
    )
    ended = [s["ended"] for s in report["steps"]]
    yield (
        f"STEPS: {ended.count('passed')} passed, "
        f"{sum(e.startswith('partial: ') for e in ended)} partial, "
        f"{sum(e in ('absent', 'left out') for e in ended)} left out, "
        f"{sum(e not in ACCEPTED and not e.startswith('partial: ') for e in ended)} not"
    )
    not_run = [s["name"] for s in report["steps"] if s["ended"] in ("absent", "left out")]
    if not_run:
        yield "LEFT OUT: " + ", ".join(not_run)
    for what, shown in claims_of(report):
        if shown is False:
            yield f"REFUTED: {what}"
    for s in report["steps"]:
        if "the GPU's context was lost" in s["ended"]:
            yield f"LOST CONTEXT: {s['name']}, {s['ended'].rpartition(' at ')[2]}"
    for step, what, why in failed_rows(report):
        yield f"FAILED: {step}, {what}: {why[:100]}"
    yield ""
    for target in report["targets"]:
        if target["value"] is None:
            yield f"NOT MEASURED  {target['what']} (target {target['target']:g})"
        else:
            yield (
                f"{'reached' if target['met'] else 'MISSED':13} {target['what']}: "
                f"{target['value']:.4g} (target {target['target']:g})"
            )
    yield ""
    yield f"{'step':20} {'s':>4} {'tests':>6}  ended"
    for s in report["steps"]:
        tests = "" if s["tests"] is None else s["tests"]
        yield f"{s['name']:20} {s['seconds']:4} {tests:>6}  {s['ended']}"
        if s["ended"] not in ACCEPTED and s["said"]:
            yield f"{'':33}{s['said'][:100]}"
    for key in BENCHES:
        if rows_in(report, key):
            yield ""
            yield (
                f"{key:10} {'way':34} {'bytes':>12} {'value':>12} {'unit':8} "
                f"{'floor':>10} {'ratio':>7}"
            )
            for r in rows_in(report, key):
                if "failed" in r:
                    yield f"{r['group']:10} {r['name']:34} {r['bytes']:12.0f} failed: {r['failed']}"
                    continue
                held = f"{r['floor']:10.3f} {r['ratio']:7.3f}" if "ratio" in r else ""
                yield (
                    f"{r['group']:10} {r['name']:34} {r['bytes']:12.0f} {r['value']:12.3f} "
                    f"{r['unit']:8} {held}"
                ).rstrip()
    for lines in report["example"].values():
        yield ""
        yield from lines
    if report["mlp"]:
        yield ""
        yield from mlp_rows(report["mlp"])
    if report["pytorch"]:
        yield ""
        yield f"PyTorch {report['pytorch']['torch']}, data {report['pytorch']['data']}"
        for r in report["pytorch"]["rows"]:
            yield (
                f"{r['name']:40} {r['seconds_per_epoch']:8.3f} s/epoch {100 * r['accuracy']:7.2f}%"
            )


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--command", default="")
    parser.add_argument("--pack", default="", help="the folder that bench/gpu_pack.sh has made")
    chosen = parser.parse_args(arguments)
    folder = os.path.join(chosen.out, "gpu_report_steps")

    steps, results = steps_of(folder)
    facts = text_of(os.path.join(chosen.pack, "pack.txt")) if chosen.pack else ""
    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": chosen.commit,
        "command": chosen.command,
        "pack": dict(line.split(" ", 1) for line in facts.splitlines() if " " in line),
        "gpu": gpu_of(folder),
        "machine": text_of(os.path.join(folder, "machine.txt")).splitlines(),
        "steps": steps,
        **{name.replace("-", "_"): results.get(name) for name in BENCHES},
        "example": {
            s["name"]: text_of(os.path.join(folder, s["name"] + ".log")).splitlines()
            for s in steps
            if "example" in s["expects"]
        },
        "mlp": {
            name[len("mlp-") :]: found
            for name, found in results.items()
            if name.startswith("mlp-")
        },
        "pytorch": results.get("pytorch"),
    }
    report["targets"] = [
        {"what": what, "value": value, "target": target, "met": is_met(value, target, more)}
        for what, value, target, more in targets_of(report)
    ]
    report["passed"] = all(s["ended"] in ACCEPTED for s in steps) and all(
        t["value"] is not None for t in report["targets"]
    )

    with open(os.path.join(chosen.out, "report.json"), "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    with open(os.path.join(chosen.out, "report.txt"), "w") as file:
        file.writelines(line + "\n" for line in lines_of(report))
    with open(os.path.join(chosen.out, "logs.txt"), "w") as file:
        for name, ended in [("nvidia-smi", "")] + [(s["name"], s["ended"]) for s in steps]:
            log = text_of(os.path.join(folder, name + ".log"))
            file.write(f"==== {name}: {ended}\n{log}\n\n")
    shutil.rmtree(folder)
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
