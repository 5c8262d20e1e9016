#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Draws some batches of the serial loop and of the overlapped one out of what `--trace FILE` has
written, and prints how long both take from step to step.

    python3 timeline.py FILE CHART.svg [--ms 4] [--title TEXT]        (needs matplotlib)
"""
import argparse
import bisect
import json
import statistics

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

COLOURS = {"read": "#4c78a8", "copy": "#e45756", "step": "#59a14f"}


def lanes_of(path):
    """Of each loop, its threads: their names, and what they did as (stage, begin, end, batch)."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X" and e["name"] in COLOURS:
            begin = e["ts"] / 1e3
            batch = e.get("args", {}).get("batch")
            spans[names[e["tid"]]].append((e["name"], begin, begin + e["dur"] / 1e3, batch))
    workers = [name for name in spans if "worker" in name]
    loops = {"serial": [("one thread", spans["serial loop"])]}
    loops["overlapped"] = [(name.removeprefix("penstock "), spans[name]) for name in workers]
    loops["overlapped"] += [("main thread", spans["penstock transfer"])]
    return loops


def between_steps(lanes):
    """The median time from step to step, in microseconds, and of how many."""
    begins = sorted(begin for stage, begin, _, _ in lanes[-1][1] if stage == "step")
    times = [1e3 * (after - before) for before, after in zip(begins, begins[1:])]
    return f"{statistics.median(times):.0f} us from step to step, the median of {len(times)}"


def draw(axes, lanes, name, length):
    """The `length` ms in which most reads and steps begin: other programs disturb least there."""
    steps = sorted(begin for stage, begin, _, _ in lanes[-1][1] if stage == "step")
    begins = sorted(begin for _, spans in lanes for stage, begin, _, _ in spans if stage != "copy")

    def count(times, start):
        return bisect.bisect_left(times, start + length) - bisect.bisect_left(times, start)

    start = max(steps, key=lambda begin: count(begins, begin))
    done = count(steps, start)
    for row, (_, spans) in enumerate(lanes):
        for stage, begin, end, batch in spans:
            left, right = max(begin - start, 0), min(end - start, length)
            if right <= left:
                continue
            axes.broken_barh([(left, right - left)], (row - 0.4, 0.8), facecolor=COLOURS[stage],
                             edgecolor="white", linewidth=0.5)
            if right - left > length / 40 and batch is not None:
                axes.text((left + right) / 2, row, batch, ha="center", va="center", fontsize=6,
                          color="white")
    axes.set_yticks(range(len(lanes)), [thread for thread, _ in lanes])
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlim(0, length)
    axes.set_title(f"{name}: {done} steps", loc="left", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("image")
    parser.add_argument("--ms", type=float, default=4, help="so much of each loop (4)")
    parser.add_argument("--title", default="")
    chosen = parser.parse_args()
    loops = lanes_of(chosen.trace)
    rows = [len(lanes) for lanes in loops.values()]
    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "penstock", "svg.fonttype": "none"})
    figure, panels = plt.subplots(len(loops), sharex=True, layout="constrained",
                                  figsize=(8.8, 0.9 + 0.5 * sum(rows)),
                                  gridspec_kw={"height_ratios": rows})
    for axes, (name, lanes) in zip(panels, loops.items()):
        draw(axes, lanes, name, chosen.ms)
        print(f"{name}: {between_steps(lanes)}")
    panels[-1].set_xlabel("ms; numbers are batches")
    figure.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=c) for c in COLOURS.values()],
                  labels=list(COLOURS), loc="outside upper right", ncols=3, frameon=False)
    figure.suptitle(chosen.title, x=0.01, ha="left", fontsize=10)
    figure.savefig(chosen.image, metadata={"Date": None})


if __name__ == "__main__":
    main()
