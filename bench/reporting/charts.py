# SPDX-License-Identifier: BSL-1.0
"""Draws charts of the results with matplotlib. Each function returns a figure or None."""

import itertools
import math
from collections import OrderedDict

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from .results import Name, bound_of, fastest_loaders, median_of, number, verdict_of

INK, SOFT, GOOD, BAD, OURS, OTHERS = "#1f2328 #59636e #1a7f37 #cf222e #0b62d6 #64748b".split()
MARKERS = "osD^vP*X"
matplotlib.rcParams.update(
    {
        "axes.prop_cycle": matplotlib.cycler(
            color=f"{OURS} #c2410c #15803d #7e22ce #0e7490 #a16207 #be185d {OTHERS}".split()
        ),
        "axes.axisbelow": True,
        "axes.edgecolor": "#d1d9e0",
        "axes.grid": True,
        "axes.labelcolor": SOFT,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "font.size": 9,
        "grid.color": "#d1d9e0",
        "svg.fonttype": "none",
        "svg.hashsalt": "penstock",
        "text.color": INK,
        "xtick.color": SOFT,
        "ytick.color": INK,
    }
)


def new_figure(title, about, height, **panels):
    """Returns a figure with a width of 9 inches, a title, a caption, and panels arranged row by
    row."""
    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots(squeeze=False, **panels)
    figure.suptitle(title, x=0.01, ha="left", size=12, weight="bold")
    figure.set_label(about)
    return figure, axes.flat


def save(figure, file, footer):
    """Writes the figure with the machine in its footer. Equal results give equal files."""
    figure.supxlabel(f"{figure.get_label()}\n{footer}", x=0.01, ha="left", size=9, color=SOFT)
    figure.savefig(file, metadata={"Date": None} if str(file).endswith(".svg") else None)


def bars(panel, labels, lengths, colours, said):
    """Draws horizontal bars from the top down, each followed by its text."""
    panel.barh(range(len(labels)), lengths, 0.7, color=colours)
    panel.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
    panel.set(xticks=[], xlim=(0, max(lengths)))
    panel.spines["bottom"].set_visible(False)
    panel.grid(visible=False)
    for place, (length, text) in enumerate(zip(lengths, said)):
        panel.annotate(text, (length, place), (6, 0), textcoords="offset points", va="center")


def fastest(report):
    """Returns the chart of six loaders in docs/benchmarks.md."""
    figure, (panel,) = new_figure(
        "Samples per second",
        f"MNIST to normalised float32 in shuffled batches of 64; {report['machine']['cores']} CPU "
        "cores, no GPU.\nEach loader with its fastest number of workers. Longer is better.",
        3.5,
    )
    names, speeds, said = zip(*fastest_loaders(report))
    colours = [OURS if name == "penstock" else OTHERS for name in names]
    bars(panel, names, speeds, colours, said)
    return figure


def loaders(programs, _cores):
    rows = [row for row in (programs.get("compare") or {}).get("rows", [])]
    groups = OrderedDict()
    for row in rows:
        if median_of(row, "items_per_second"):
            groups.setdefault(row.get("group") or "", []).append(row)
    if not groups:
        return None
    counts = [len(group) for group in groups.values()]
    figure, panels = new_figure(
        "Loaders compared",
        "One workload in one run: bytes to normalised float32, batches of 64, shuffled.\n"
        "Million samples a second, medians; longer is better.",
        1.5 + 0.25 * sum(counts) + 0.3 * len(counts),
        nrows=len(groups),
        gridspec_kw={"height_ratios": counts},
    )
    for panel, (title, group) in zip(panels, groups.items()):
        group.sort(key=lambda row: -median_of(row, "items_per_second"))
        speeds = [median_of(row, "items_per_second") / 1e6 for row in group]
        said = []
        for row, speed in zip(group, speeds):
            costs = {"CPU s": median_of(row, "cpu_seconds"), "MiB": median_of(row, "peak_mib")}
            known = [f"{number(cost)} {unit}" for unit, cost in costs.items() if cost is not None]
            said.append(", ".join([number(speed), *known]))
        names = [Name(row["name"]).in_words() for row in group]
        colours = [OURS if "penstock" in name else OTHERS for name in names]
        bars(panel, names, speeds, colours, said)
        panel.set_title(title)
    return figure


# ---- goals against their floors

SHORTEST, LONGEST = 0.125, 16
TICKS = (0.125, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 8, 16)


def goal_groups(found, compares):
    """Returns groups of goals that differ only in their axes. Each group becomes one bar."""
    groups = OrderedDict()
    for goal in found.get("goals") or []:
        bound = bound_of(goal)
        if goal.get("compares") == compares and goal.get("ratio") is not None and bound:
            key = (Name(goal["name"]).function, Name(goal["floor"]).function, bound)
            groups.setdefault(key, []).append(goal)
    return groups


def label_of(function, floor, goals, worst):
    """Returns the label of a bar: the measured function and its floor."""
    name, same = Name(worst["name"]), function.partition("/")[0] + "/"
    second = "over " + floor.removeprefix(same)
    if len(goals) > 1:
        missed = sum(one.get("met") is False for one in goals)
        noisy = sum(bool(one.get("noisy")) for one in goals)
        second += f", worst of {len(goals)}" + (f", {missed} missed" if missed else "")
        return f"{function}\n{second}" + (f", {noisy} noisy" if noisy else "")
    for axis, value in Name(worst["floor"]).axes.items():
        if name.axes.get(axis) != value:
            second += f", {axis} {number(value) if isinstance(value, float) else value}"
    axes = name.axes_in_words()
    return f"{function}, {axes}\n{second}" if axes else f"{function}\n{second}"


def ratios(name, found):
    """Returns a chart of one program's goals. A bar begins at the floor and ends at the worst of
    its shapes."""
    kinds = [(compares, goal_groups(found, compares)) for compares in ("speed", "time")]
    kinds = [(compares, groups) for compares, groups in kinds if groups]
    if not kinds:
        return None
    counts = [len(groups) for _, groups in kinds]
    figure, panels = new_figure(
        f"{name}: against the floor",
        "The ratio to the floor of the same run; the thin line reaches to the best shape, the\n"
        "tick is the target. Pale and noisy: the floor moved by more than 20 % within the run.",
        1.6 + 0.45 * sum(counts) + 0.6 * len(counts),
        nrows=len(kinds),
        gridspec_kw={"height_ratios": counts},
    )
    inside = lambda value: min(max(value, SHORTEST), LONGEST)
    for panel, (compares, groups) in zip(panels, kinds):
        labels, ends = [], [0.8, 1.25]
        for place, ((function, floor, (what, bound)), goals) in enumerate(groups.items()):
            goals = sorted(goals, key=lambda one: one["ratio"], reverse=what == "at most")
            worst, ratio = goals[0], goals[0]["ratio"]
            colour = GOOD if worst.get("met") else BAD
            alpha = 0.4 if worst.get("noisy") else 1
            end, best = inside(ratio), inside(goals[-1]["ratio"])
            panel.barh(place, end - 1, 0.45, 1, color=colour, alpha=alpha)
            panel.plot([end, best], [place, place], color=colour)
            if SHORTEST <= bound <= LONGEST:
                panel.plot([bound, bound], [place - 0.35, place + 0.35], color=INK, linewidth=2.5)
            said = "< 0.01" if 0 < ratio < 0.01 else number(ratio)
            panel.text(
                1.02,
                place,
                f"{said}x {verdict_of(worst)}\n{what} {bound:.2f}x",
                color=colour,
                transform=panel.get_yaxis_transform(),
                va="center",
            )
            labels.append(label_of(function, floor, goals, worst))
            ends += [end, best, inside(bound)]
        panel.axvline(1, color=SOFT)
        panel.set_xscale("log", base=2)
        near = 1.3 if max(ends) > 6 * min(ends) else 1  # leaves no space next to the floor
        ticks = [tick for tick in TICKS if tick == 1 or not 1 / near < tick < near]
        panel.set_xticks([tick for tick in ticks if min(ends) <= tick <= max(ends)])
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        panel.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        panel.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
        panel.set_xlim(min(ends) / 1.1, max(ends) * 1.1)
        better = "longer" if compares == "speed" else "shorter"
        panel.set_title(f"{compares.capitalize()} over the floor's: {better} is better")
        panel.grid(axis="y", visible=False)
    return figure


# ---- queues by number of threads


def queue(programs, cores):
    panels = OrderedDict()
    for row in itertools.chain(*(found["rows"] for found in programs.values())):
        name, speed = Name(row["name"]), median_of(row, "items_per_second")
        if speed is not None and {"producers", "consumers"} <= set(name.axes):
            shape = (int(name.axes["producers"]), int(name.axes["consumers"]))
            panel = name.axes_in_words(without=("producers", "consumers"))
            series = panels.setdefault(panel, OrderedDict()).setdefault(name.function, {})
            series[shape] = row["items_per_second"]
    shapes = {
        panel: sorted({*itertools.chain(*series.values())}, key=lambda shape: (sum(shape), shape))
        for panel, series in panels.items()
    }
    panels = [(panel, series) for panel, series in panels.items() if len(shapes[panel]) > 1][:4]
    if not panels:
        return None
    figure, axes = new_figure(
        "Queue throughput over thread counts",
        "Million tickets a second through one queue, medians; bars from the slowest to the\n"
        "fastest repetition. On the right: the value of a line's last shape. Grey: more threads than\n"
        "cores.",
        1 + 3 * len(panels),
        nrows=len(panels),
    )
    functions = list(OrderedDict.fromkeys(itertools.chain(*(series for _, series in panels))))
    functions.sort(key=lambda name: not name.startswith("batch_queue"))
    for axis, (panel, series) in zip(axes, panels):
        places = {shape: place for place, shape in enumerate(shapes[panel])}
        for function in sorted(series, key=lambda name: -last_of(series[name], places)):
            points = sorted(series[function].items(), key=lambda point: places[point[0]])
            index = functions.index(function)
            middle, low, high = (
                [found.get(key, found["median"]) / 1e6 for _, found in points]
                for key in ("median", "min", "max")
            )
            axis.errorbar(
                [places[shape] for shape, _ in points],
                middle,
                [[m - l for m, l in zip(middle, low)], [h - m for m, h in zip(middle, high)]],
                color=f"C{index % 8}",
                linewidth=2.5 if index == 0 else 1.5,
                marker=MARKERS[index % 8],
                label=f"{function}  {number(middle[-1])}",
            )
        crowded = [place for shape, place in places.items() if cores and sum(shape) > cores]
        if crowded:
            axis.axvspan(crowded[0] - 0.5, len(places) - 0.5, color="#f3f5f7", zorder=0)
        axis.set(yscale="log", xlabel="producers : consumers", title=panel or "all shapes")
        axis.set_xticks(range(len(places)), [f"{p} : {c}" for p, c in places])
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def last_of(points, places):
    return points[max(points, key=places.get)]["median"]


# ---- time per batch by load : copy : compute


def overlap_points(programs):
    needed = ("load_us", "copy_us", "compute_us", "bound_us", "achieved_us")
    for row in itertools.chain(*(found["rows"] for found in programs.values())):
        point = {key: median_of(row, key) for key in (*needed, "workers")}
        if all(point[key] for key in needed):
            point["sum_us"] = point["load_us"] + point["copy_us"] + point["compute_us"]
            point["workers"] = int(point["workers"] or Name(row["name"]).axes.get("workers", 1))
            point["x"] = point["load_us"] / point["compute_us"]
            point["copies"] = point["copy_us"] / point["compute_us"]
            yield point


def in_ratio(value):
    """Expresses a ratio in small integers, exactly or to within 6 %: 0.1 -> "1 : 10", 0.32 -> "1 :
    3"."""
    smallest_first = sorted(itertools.product(range(1, 11), repeat=2), key=max)
    for error in (0.01, 0.06):
        for above, below in smallest_first:
            if abs(value - above / below) < error * value:
                return f"{above} : {below}"
    return f"{number(value)} : 1"


def overlap(programs, _cores):
    points = sorted(overlap_points(programs), key=lambda point: point["copies"])
    if not points:
        return None
    groups = []  # 3 : 10 and 1 : 3 share a panel
    for point in points:
        if not groups or point["copies"] > groups[-1][0]["copies"] * 1.12:
            groups.append([])
        groups[-1].append(point)
    if len(groups) > 6:
        groups = [groups[round(i * (len(groups) - 1) / 5)] for i in range(6)]
    figure, axes = new_figure(
        "Overlap, against what theory allows",
        "A batch's time as a share of load + copy + compute, which is what one after the other\n"
        "takes, over load : compute. The line is the bound max(load / workers, copy, compute).",
        2 + 2.4 * math.ceil((len(groups) + 1) / 3),
        nrows=math.ceil((len(groups) + 1) / 3),
        ncols=3,
        sharex=True,
    )
    workers = sorted({point["workers"] for point in points})
    for axis, group in zip(axes, groups):
        copies = math.sqrt(group[0]["copies"] * group[-1]["copies"])
        for index, count in enumerate(workers):
            here = sorted((p for p in group if p["workers"] == count), key=lambda p: p["x"])
            if not here:
                continue
            low, high = here[0]["x"], here[-1]["x"]
            curve = [low * (high / low) ** (step / 60) for step in range(61)]
            bound = [max(x / max(count, 1), copies, 1) / (x + copies + 1) for x in curve]
            axis.plot(curve, bound, color=f"C{index}")
            shares = [min(p["achieved_us"] / p["sum_us"], 1.1) for p in here]
            said = f"{count} worker" + ("s" if count != 1 else "")
            axis.plot([p["x"] for p in here], shares, f"C{index}{MARKERS[index]}", label=said)
        axis.set(title=f"copy : compute = {in_ratio(copies)}", xscale="log", ylim=(0, 1.1))
        axis.yaxis.set_major_formatter(PercentFormatter(1))
    axes[0].legend(loc="lower right", frameon=False)
    last = axes[len(groups)]
    for index, count in enumerate(workers):
        here = [p for p in points if p["workers"] == count]
        over = [p["achieved_us"] / p["bound_us"] for p in here]
        last.plot([p["x"] for p in here], over, f"C{index}{MARKERS[index]}", alpha=0.6)
    every = [p["achieved_us"] / p["bound_us"] for p in points]
    last.axhline(1.02, color=INK, linestyle="--")
    above = sum(ratio > 1.02 for ratio in every)
    last.set(title=f"{above} of {len(every)} above 1.02 x bound", xscale="log")
    last.set_xlabel("load : compute")
    last.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_ratio(value)))
    last.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    for axis in axes[len(groups) + 1 :]:
        axis.set_visible(False)
    return figure


def charts_of(programs, cores):
    """Returns the (name, figure or None) of each chart."""
    goals = [(f"ratios-{name}", ratios(name, found)) for name, found in programs.items()]
    yield from [(name, figure) for name, figure in goals if figure] or [("ratios", None)]
    for draw in (queue, overlap, loaders):
        yield draw.__name__, draw(programs, cores)
