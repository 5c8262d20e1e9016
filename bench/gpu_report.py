#!/usr/bin/env python3
"""Puts what bench/gpu_report.sh has left in OUT/steps together: OUT/report.json and OUT/report.txt."""

import argparse
import datetime
import glob
import json
import os
import statistics


def read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def text_of(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def steps_of(folder):
    steps = []
    for line in text_of(os.path.join(folder, "steps.tsv")).splitlines():
        name, ended, seconds, command = line.split("\t", 3)
        steps.append({"name": name, "ended": ended, "seconds": int(seconds), "command": command})
    return steps


def gpu_of(folder):
    keys = ("name", "driver", "compute_capability", "memory", "pcie_generation", "pcie_width")
    lines = text_of(os.path.join(folder, "gpu.csv")).splitlines()
    return dict(zip(keys, (x.strip() for x in lines[0].split(",")))) if lines else {}


def mlp_rows(results):
    """One line a mode of every run of the MLP."""
    yield f"{'run':14} {'mode':11} {'workers':>7} {'batch':>6} {'total s':>9} {'us/batch':>9} {'fed/resident':>12} {'accuracy':>9}"
    for name, found in results.items():
        options = found["options"]
        batches = options["epochs"] * found["batches_per_epoch"]
        for mode in found["modes"]:
            fed = mode.get("fed_over_resident")
            yield (
                f"{name:14} {mode['technique']:11} {options['workers']:7} {options['batch']:6} {mode['seconds']:9.3f} "
                f"{1e6 * mode['seconds'] / batches:9.1f} {'-' if fed is None else format(fed, '.3f'):>12} "
                f"{100 * mode['test_accuracy']:8.2f}%"
            )


def targets_of(report):
    """What is asked of an H200, and what was found: (text, value, target, met)."""
    rows = (report.get("transfer") or {}).get("rows", [])
    large = [
        r["ratio"]
        for r in rows
        if r["group"] == "bandwidth" and r["name"] == "transfer, pinned" and r["bytes"] >= 1 << 20
    ]
    if large:
        yield "pinned transfer over plain loop, 1 MB and above, worst", min(large), 0.97, min(large) >= 0.97
    host = [r["value"] for r in rows if r["group"] == "tiny" and r["name"] == "transfer, batches ready"]
    if host:
        yield "host time per batch, us, worst", max(host), 10.0, max(host) < 10.0
    runs = report["mlp"]
    modes = {m["technique"]: m for m in runs.get("modes", {}).get("modes", [])}
    if "overlapped" in modes:
        fed = modes["overlapped"].get("fed_over_resident")
        if fed is not None:
            yield "fed / resident", fed, 1.02, fed <= 1.02
        seconds = modes["overlapped"]["seconds"]
        yield "MNIST, 5 epochs, batch 64, s", seconds, 0.20, seconds <= 0.20
    seeds = [
        m["test_accuracy"]
        for name, found in runs.items()
        if name.startswith("seed-")
        for m in found["modes"]
        if m["technique"] == "overlapped"
    ]
    if seeds:
        median = statistics.median(seeds)
        yield f"accuracy, median of {len(seeds)} seeds", median, 0.97, median >= 0.97


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--command", default="")
    chosen = parser.parse_args()
    folder = os.path.join(chosen.out, "steps")

    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": chosen.commit,
        "command": chosen.command,
        "gpu": gpu_of(folder),
        "steps": steps_of(folder),
        "transfer": read(os.path.join(folder, "transfer.json")),
        "on_device": read(os.path.join(folder, "on-device.json")),
        "mlp": {},
        "pytorch": read(os.path.join(folder, "pytorch.json")),
    }
    for path in sorted(glob.glob(os.path.join(folder, "mlp-*.json"))):
        found = read(path)
        if found:
            report["mlp"][os.path.basename(path)[len("mlp-") : -len(".json")]] = found
    cuda = [
        f"{name} {value // 1000}.{value % 1000 // 10}"
        for name, value in (
            ("driver for CUDA", (report["transfer"] or {}).get("driver_cuda")),
            ("runtime", (report["transfer"] or {}).get("runtime")),
        )
        if value
    ]
    report["targets"] = [
        {"what": what, "value": value, "target": target, "met": met}
        for what, value, target, met in targets_of(report)
    ]
    with open(os.path.join(chosen.out, "report.json"), "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")

    lines = [
        f"{report['gpu'].get('name', 'GPU unknown')}, driver {report['gpu'].get('driver', 'unknown')}, {', '.join(cuda)}",
        f"{report['date']}, commit {report['commit']}: {report['command']}",
        "",
    ]
    for target in report["targets"]:
        lines.append(
            f"{'met   ' if target['met'] else 'MISSED'}  {target['what']}: {target['value']:.4g} (target {target['target']:g})"
        )
    lines += ["", f"{'step':34} {'ended':14} {'s':>4}"]
    lines += [f"{s['name']:34} {s['ended']:14} {s['seconds']:4}" for s in report["steps"]]
    for key in ("transfer", "on_device"):
        if report[key]:
            lines += ["", f"{key:10} {'way':34} {'bytes':>12} {'value':>12} {'unit':8} {'floor':>10} {'ratio':>7}"]
            for r in report[key]["rows"]:
                held = f"{r['floor']:10.3f} {r['ratio']:7.3f}" if "ratio" in r else ""
                lines.append(
                    f"{r['group']:10} {r['name']:34} {r['bytes']:12.0f} {r['value']:12.3f} {r['unit']:8} {held}".rstrip()
                )
    if report["mlp"]:
        lines += ["", *mlp_rows(report["mlp"])]
    table = text_of(os.path.join(folder, "mlp-steps-table.log"))
    if any(s["name"] == "mlp-steps-table" and s["ended"] == "passed" for s in report["steps"]):
        lines += ["", table]
    if report["pytorch"]:
        lines += ["", f"PyTorch {report['pytorch']['torch']}, data {report['pytorch']['data']}"]
        lines += [
            f"{r['name']:40} {r['seconds_per_epoch']:8.3f} s/epoch {100 * r['accuracy']:7.2f}%"
            for r in report["pytorch"]["rows"]
        ]
    with open(os.path.join(chosen.out, "report.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
