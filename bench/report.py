#!/usr/bin/env python3
"""Turns what bench/run.sh has measured into a Markdown table and SVG plots next to it.

  python3 bench/report.py FILE.json            writes FILE.md and FILE.<plot>.svg
  python3 bench/report.py --merge FOLDER OUT   bench/run.sh's own: one file out of its programs'

Needs Python 3.9 and nothing else. A plot whose rows are not in the file is left out, and the table
says so.
"""

import itertools
import json
import math
import os
import re
import sys
from collections import OrderedDict
from pathlib import Path
from xml.sax.saxutils import escape

# ---- what the programs have written --------------------------------------------------------------


class Name:
    """A benchmark's name taken apart: "function/axis:value/axis:value"."""

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

    def axes_in_words(self, without=()):
        return ", ".join(
            f"{axis} {number(value) if isinstance(value, float) else value}"
            for axis, value in self.axes.items()
            if axis not in without
        )

    def in_words(self):
        axes = self.axes_in_words()
        return self.function + (f" ({axes})" if axes else "")


def number(value, digits=3):
    """Short: 1234567 -> 1,234,567; 0.98765 -> 0.988; 65536.0 -> 65,536."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.{digits}g}" if abs(value) >= 100 else f"{value:.{digits - 1}f}"
    return f"{value:.{digits}f}" if abs(value) >= 0.01 else f"{value:.{digits}g}"


def of_unit(value, units):
    """The value in the largest unit that leaves it at 1 or above."""
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
    """A row's median of nanoseconds, items_per_second or a counter; None where it has none."""
    found = row.get(key, (row.get("counters") or {}).get(key))
    if isinstance(found, dict):
        found = found.get("median")
    return found if isinstance(found, (int, float)) and math.isfinite(found) else None


def is_program(found):
    return isinstance(found, dict) and isinstance(found.get("rows"), list)


def training_rows(program, found):
    """The MLP's four loops as rows and goals, so that they are judged like all others."""
    rows, goals, by_name = [], [], {}
    label = f"an epoch of {found.get('data', {}).get('name', 'unnamed data')}"
    for mode in found.get("modes", []):
        runs = sorted(mode["seconds_of_runs"])
        epochs = found["options"]["epochs"]
        row = {
            "name": mode["technique"],
            "repetitions": len(runs),
            "nanoseconds": {
                "median": mode["seconds"] * 1e9 / epochs,
                "min": runs[0] * 1e9 / epochs,
                "max": runs[-1] * 1e9 / epochs,
            },
            "label": label,
        }
        rows.append(row)
        by_name[mode["technique"]] = row["nanoseconds"]
    floor = by_name.get("resident")
    for name in ("overlapped", "serial"):
        if floor and name in by_name:
            goal = {"name": name, "floor": "resident", "compares": "time"}
            goal["ratio"] = by_name[name]["median"] / floor["median"]
            goal["noisy"] = floor["max"] > 1.2 * floor["min"]
            if name == "overlapped":
                goal["at_most"] = 1.02
                goal["met"] = goal["ratio"] <= goal["at_most"]
            goals.append(goal)
    costs = found.get("batch_microseconds", {})
    overlapped = by_name.get("overlapped")
    if overlapped and costs.get("bound"):
        batch = overlapped["median"] / found["batches_per_epoch"]
        goals.append(
            {
                "name": "overlapped",
                "floor": f"bound by {costs.get('bound_by', 'max()')}",
                "compares": "time",
                "ratio": batch / (costs["bound"] * 1e3),
                "noisy": overlapped["max"] > 1.2 * overlapped["min"],
            }
        )
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
    """("at least" or "at most", bound), or None for a ratio that is only of interest."""
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


# ---- drawing -------------------------------------------------------------------------------------

WIDTH = 880
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "soft": "#59636e",
    "line": "#d1d9e0",
    "faint": "#f3f5f7",
    "good": "#1a7f37",
    "bad": "#cf222e",
    "unsure": "#7d6608",
    "series": ("#0b62d6 #c2410c #15803d #7e22ce #0e7490 #a16207 #be185d #64748b").split(),
}
DARK = {
    "paper": "#0d1117",
    "ink": "#f0f6fc",
    "soft": "#9ba6b2",
    "line": "#3d444d",
    "faint": "#161c24",
    "good": "#3fb950",
    "bad": "#f85149",
    "unsure": "#d9b53f",
    "series": ("#58a6ff #fb923c #4ade80 #c084fc #22d3ee #facc15 #f472b6 #94a3b8").split(),
}
SERIES = len(LIGHT["series"])


def style():
    def rules(colours):
        out = [f".paper{{fill:{colours['paper']}}}"]
        for name in ("ink", "soft", "line", "faint", "good", "bad", "unsure"):
            out.append(f".{name}{{fill:{colours[name]}}} .{name}-line{{stroke:{colours[name]}}}")
        for i, colour in enumerate(colours["series"]):
            out.append(f".s{i}{{fill:{colour}}} .s{i}-line{{stroke:{colour}}}")
        out.append(f".hollow{{fill:{colours['paper']}}}")
        return "\n".join(out)

    return (
        "text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',Arial,sans-serif}"
        " .title{font-size:17px;font-weight:600} .small{font-size:12px} .strong{font-weight:600}"
        " path,line{fill:none}\n"
        + rules(LIGHT)
        + "\n@media (prefers-color-scheme:dark){\n"
        + rules(DARK)
        + "\n}"
    )


def text_width(text, size=13):
    """An estimate for the widest of the fonts above, DejaVu Sans."""

    def em(c):
        if c in "iIjl'|":
            return 0.31
        if c in " ftr()[]:;,./!-":
            return 0.39
        if c in "mwMW@%+":
            return 0.95
        return 0.72 if c.isupper() else 0.63

    return size * sum(map(em, text))


def shortened(text, width, size=13):
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..."


def wrapped(text, width, size=13):
    lines = [""]
    for word in text.split():
        if lines[-1] and text_width(f"{lines[-1]} {word}", size) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


class Drawing:
    """An SVG of 880 px; y grows as it is drawn, the height is known at the end."""

    def __init__(self, title, about):
        self.title, self.about, self.parts, self.height = title, about, [], 0
        self.text(24, 36, title, "ink title")
        y = 58
        for line in wrapped(about, WIDTH - 48):
            self.text(24, y, line, "soft")
            y += 18
        self.top = y

    def _grow(self, y):
        self.height = max(self.height, y)

    def text(self, x, y, text, kind="ink", anchor="start"):
        self._grow(y + 8)
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{where}>{escape(text)}</text>'
        )

    def rect(self, x, y, width, height, kind, radius=0.0):
        self._grow(y + height)
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{max(height, 0):.1f}" rx="{radius}" class="{kind}"/>'
        )

    def line(self, x1, y1, x2, y2, kind, width=1.0, dashes=""):
        self._grow(max(y1, y2))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'class="{kind}-line" stroke-width="{width}"{dashed}/>'
        )

    def path(self, points, kind, width=2.0, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        along = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(
            f'<path d="M{along}" class="{kind}-line" stroke-width="{width}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def marker(self, x, y, shape, size=4.5):
        """One of eight, in the colour of its series: told apart without colour as well."""
        kind, turn = f"s{shape % SERIES}", ""
        if shape % 4 == 0:
            self.parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" '
                f'class="{"hollow" if shape >= 4 else kind} {kind}-line" stroke-width="2"/>'
            )
            return
        if shape % 4 == 2:
            turn = f' transform="rotate(45 {x:.1f} {y:.1f})"'
        fill = "hollow" if shape >= 4 else kind
        if shape % 4 == 3:
            points = " ".join(
                f"{x + dx * size * 1.2:.1f},{y + dy * size * 1.2:.1f}"
                for dx, dy in ((0, -1), (1, 0.85), (-1, 0.85))
            )
            self.parts.append(
                f'<polygon points="{points}" class="{fill} {kind}-line" stroke-width="2"/>'
            )
            return
        self.parts.append(
            f'<rect x="{x - size * 0.85:.1f}" y="{y - size * 0.85:.1f}" '
            f'width="{size * 1.7:.1f}" height="{size * 1.7:.1f}" '
            f'class="{fill} {kind}-line" stroke-width="2"{turn}/>'
        )

    def footer(self, text):
        y = self.height + 26
        for line in wrapped(text, WIDTH - 48, 12):
            self.text(24, y, line, "soft small")
            y += 16

    def svg(self):
        height = math.ceil(self.height + 12)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">\n<title>{escape(self.title)}</title>\n'
            f"<desc>{escape(self.about)}</desc>\n<style>{style()}</style>\n"
            f'<rect width="{WIDTH}" height="{height}" rx="8" class="paper"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def nice_ticks(most, count=4):
    step = 10 ** math.floor(math.log10(most / count))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * count >= most * 0.999)
    return [i * step for i in range(int(math.ceil(most / step - 1e-9)) + 1)]


def spread_labels(wanted, low, high, gap):
    """Labels of given heights moved apart by at least `gap`, in their order, within low..high."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    at = low - gap
    for i in order:
        at = places[i] = max(wanted[i], at + gap)
    at = high + gap
    for i in reversed(order):
        at = places[i] = min(places[i], at - gap)
    return places


# ---- plot: bars with the ratio to the floor ------------------------------------------------------


def goal_groups(programs, compares):
    """Goals that differ by their axes alone, as one bar: the worst of them."""
    groups = OrderedDict()
    for program, found in programs.items():
        for goal in found.get("goals") or []:
            bound = bound_of(goal)
            if goal.get("compares") == compares and goal.get("ratio") is not None and bound:
                key = (program, Name(goal["name"]).function, Name(goal["floor"]).function, bound)
                groups.setdefault(key, []).append(goal)
    return groups


SHORTEST, LONGEST = 0.125, 16


def ratio_scale(values, left, right):
    """Logarithmic, so that half and double are as long; floor at 1. What is beyond the shortest and
    the longest bar lies on the axis's edge."""
    inside = [min(max(value, SHORTEST), LONGEST) for value in values]
    low, high = math.log2(min(inside + [0.8])), math.log2(max(inside + [1.25]))
    pad = (high - low) * 0.05
    low, high = low - pad, high + pad
    candidates = (
        [2.0**i for i in range(-12, 15)]
        if high - low > 2
        else [0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4]
    )

    def at(value):
        place = (math.log2(max(value, 1e-9)) - low) / (high - low)
        return left + min(max(place, 0), 1) * (right - left)

    ticks = [1.0]
    for one in sorted(candidates, key=lambda one: abs(math.log2(one))):
        if low <= math.log2(one) <= high and all(abs(at(one) - at(tick)) >= 46 for tick in ticks):
            ticks.append(one)
    return at, ticks


def draw_ratios(programs):
    panels = [(compares, goal_groups(programs, compares)) for compares in ("speed", "time")]
    panels = [(compares, groups) for compares, groups in panels if groups]
    if not panels:
        return None
    out = Drawing(
        "Against the floor",
        "The ratio to the floor, which is measured in the same run. Where "
        "shapes differ by their numbers alone, the bar is the worst of them and the thin line "
        "reaches to the best.",
    )
    left, right, last = 372, 690, 856
    y = out.top + 22
    for compares, groups in panels:
        longer = "longer is better" if compares == "speed" else "shorter is better"
        out.text(24, y, f"{compares.capitalize()} over the floor's: {longer}", "ink strong")
        y += 16
        at, ticks = ratio_scale(
            [goal["ratio"] for goals in groups.values() for goal in goals]
            + [key[3][1] for key in groups],
            left,
            right,
        )
        rows = y + 22
        program_before, places = None, []
        for key in groups:
            if key[0] != program_before:
                rows += 24
                program_before = key[0]
            places.append(rows)
            rows += 42
        for tick in ticks:
            out.line(
                at(tick),
                y + 20,
                at(tick),
                rows - 4,
                "line" if tick != 1 else "soft",
                1 if tick != 1 else 1.5,
            )
            out.text(at(tick), y + 14, f"{tick:g}x", "soft small", "middle")
        program_before = None
        for (key, goals), top in zip(groups.items(), places):
            program, function, floor, (what, bound) = key
            if program != program_before:
                out.text(24, top - 4, program, "soft strong small")
                program_before = program
            worst, best = (min, max) if what == "at least" else (max, min)
            goal = worst(goals, key=lambda one: one["ratio"])
            others = best(goals, key=lambda one: one["ratio"])["ratio"]
            name = Name(goal["name"])
            axes = name.axes_in_words()
            first = name.function if len(goals) > 1 or not axes else f"{name.function}, {axes}"
            noisy = sum(bool(one.get("noisy")) for one in goals)
            missed = sum(one.get("met") is False for one in goals)
            same = function.partition("/")[0] + "/"
            second = "over " + (floor[len(same) :] if floor.startswith(same) else floor)
            if len(goals) == 1:
                for axis, value in Name(goal["floor"]).axes.items():
                    if name.axes.get(axis) != value:
                        said = number(value) if isinstance(value, float) else value
                        second += f", {axis} {said}"
            if len(goals) > 1:
                second += f", worst of {len(goals)}"
                second += f", {missed} missed" if missed else ""
                second += f", {noisy} noisy" if noisy else ""
            out.text(36, top + 16, shortened(first, left - 44), "ink")
            out.text(36, top + 32, shortened(second, left - 44, 12), "soft small")
            ratio = goal["ratio"]
            kind = "unsure" if goal.get("noisy") else "good" if goal.get("met") else "bad"
            if len(goals) > 1:
                out.line(at(ratio), top + 20, at(others), top + 20, kind, 2)
                out.line(at(others), top + 15, at(others), top + 25, kind, 2)
            out.rect(min(at(1), at(ratio)), top + 11, abs(at(ratio) - at(1)), 18, kind, 2)
            if not SHORTEST <= ratio <= LONGEST:  # it goes on
                out.rect(at(ratio) + (8 if ratio < 1 else -12), top + 9, 4, 22, "paper")
            out.line(at(1), top + 6, at(1), top + 34, "soft", 1.5)
            if SHORTEST <= bound <= LONGEST:
                out.line(at(bound), top + 5, at(bound), top + 35, "ink", 2.5)
            said = "< 0.01" if 0 < ratio < 0.01 else number(ratio)
            out.text(right + 16, top + 16, f"{said}x", "ink strong")
            out.text(right + 78, top + 16, verdict_of(goal), kind)
            out.text(right + 16, top + 32, f"{what} {bound:.2f}x", "soft small")
        out.line(24, rows + 4, last, rows + 4, "line")
        y = rows + 34
    out.footer(
        "The thick tick is the target; a bar with a gap goes on beyond the axis. noisy: the floor "
        "moved by more than 20 % within the run, so the machine was too busy to judge."
    )
    return out


# ---- plot: queue throughput over thread counts ---------------------------------------------------


def draw_queue(programs, cores):
    panels = OrderedDict()
    for found in programs.values():
        for row in found["rows"]:
            name = Name(row["name"])
            speed = median_of(row, "items_per_second")
            if speed is None or not {"producers", "consumers"} <= set(name.axes):
                continue
            shape = (int(name.axes["producers"]), int(name.axes["consumers"]))
            panel = name.axes_in_words(without=("producers", "consumers"))
            panels.setdefault(panel, OrderedDict()).setdefault(name.function, {})[shape] = (
                speed,
                row["items_per_second"].get("min", speed),
                row["items_per_second"].get("max", speed),
            )
    # One shape alone is no curve.
    panels = OrderedDict(
        (key, series)
        for key, series in panels.items()
        if len({shape for points in series.values() for shape in points}) > 1
    )
    if not panels:
        return None
    functions = list(OrderedDict.fromkeys(name for series in panels.values() for name in series))
    functions.sort(key=lambda name: not name.startswith("batch_queue"))
    out = Drawing(
        "Queue throughput over thread counts",
        "Million tickets a second through one queue, medians; the bars reach from the slowest to "
        "the fastest repetition.",
    )
    left, right = 76, 640
    y = out.top + 10
    for panel, series in list(panels.items())[:4]:
        shapes = sorted(
            {shape for points in series.values() for shape in points},
            key=lambda shape: (sum(shape), shape),
        )
        bottom = y + 250
        top = y + 30
        most = max(high for points in series.values() for _, _, high in points.values()) / 1e6
        least = min(median for points in series.values() for median, _, _ in points.values()) / 1e6
        if least * 30 < most:
            low, high = math.floor(math.log10(least)), math.log10(most * 1.1)
            ticks = [10.0**i * m for i in range(low, math.ceil(high) + 1) for m in (1, 3)]
            ticks = [one for one in ticks if low <= math.log10(one) <= high]

            def height(value, low=low, high=high, top=top, bottom=bottom):
                return bottom - (max(math.log10(max(value, 1e-9)), low) - low) / (high - low) * (
                    bottom - top
                )

        else:
            ticks = nice_ticks(most)

            def height(value, most=ticks[-1], top=top, bottom=bottom):
                return bottom - value / most * (bottom - top)

        along = {
            shape: left + 36 + i * (right - left - 72) / max(len(shapes) - 1, 1)
            for i, shape in enumerate(shapes)
        }
        crowded = [shape for shape in shapes if cores and sum(shape) > cores]
        if crowded and crowded == shapes[len(shapes) - len(crowded) :]:
            first = shapes.index(crowded[0])
            from_x = left if first == 0 else (along[shapes[first - 1]] + along[crowded[0]]) / 2
            out.rect(from_x, top - 8, right - from_x, bottom - top + 8, "faint")
            out.text(right - 8, y + 12, f"more threads than the {cores} cores", "soft small", "end")
        out.text(24, y + 10, panel or "all shapes", "ink strong")
        for tick in ticks:
            out.line(left, height(tick), right, height(tick), "line")
            out.text(left - 8, height(tick) + 4, f"{tick:g}", "soft small", "end")
        for shape in shapes:
            out.text(along[shape], bottom + 20, f"{shape[0]} : {shape[1]}", "soft small", "middle")
        ends = []
        for function in sorted(series, key=functions.index, reverse=True):
            points, index = series[function], functions.index(function) % SERIES
            there = [shape for shape in shapes if shape in points]
            out.path(
                [(along[s], height(points[s][0] / 1e6)) for s in there],
                f"s{index}",
                3 if index == 0 else 1.75,
            )
            for shape in there:
                median, slowest, fastest = (value / 1e6 for value in points[shape])
                out.line(
                    along[shape], height(slowest), along[shape], height(fastest), f"s{index}", 1.5
                )
                out.marker(along[shape], height(median), index)
            ends.append(
                (
                    function,
                    index,
                    along[there[-1]],
                    height(points[there[-1]][0] / 1e6),
                    points[there[-1]][0],
                )
            )
        labels = spread_labels([end[3] for end in ends], top, bottom, 17)
        for (function, index, x, at, speed), label in zip(ends, labels):
            out.path([(x + 8, at), (right + 4, label), (right + 12, label)], "line", 1)
            out.marker(right + 20, label, index, 4)
            said = shortened(function, 150)
            out.text(right + 32, label + 4, said, f"ink{' strong' if index == 0 else ''}")
            out.text(856, label + 4, number(speed / 1e6), "soft small", "end")
        y = bottom + 52
    left_over = len(panels) - 4
    out.text(left, y - 12, "producers : consumers", "soft small")
    out.footer(
        "On the right: the value of each line's last shape."
        + (f" {left_over} more sets of shapes are in the table." if left_over > 0 else "")
    )
    return out


# ---- plot: overlap over the ratio load : compute -------------------------------------------------


def overlap_points(programs):
    needed = ("load_us", "copy_us", "compute_us", "bound_us", "achieved_us")
    for found in programs.values():
        for row in found["rows"]:
            point = {key: median_of(row, key) for key in (*needed, "workers")}
            if all(point[key] for key in needed):
                point["sum_us"] = point["load_us"] + point["copy_us"] + point["compute_us"]
                point["workers"] = int(point["workers"] or Name(row["name"]).axes.get("workers", 1))
                yield point


def in_ratio(value):
    """In small numbers, exactly or at least within 6 %: 0.1 -> "1 : 10", 0.32 -> "1 : 3"."""
    smallest_first = sorted(itertools.product(range(1, 11), repeat=2), key=max)
    for error in (0.01, 0.06):
        for above, below in smallest_first:
            if abs(value - above / below) < error * value:
                return f"{above} : {below}"
    return f"{number(value)} : 1"


def draw_overlap(programs):
    points = list(overlap_points(programs))
    if not points:
        return None
    for point in points:
        point["x"] = point["load_us"] / point["compute_us"]
        point["copies"] = point["copy_us"] / point["compute_us"]
    # 3 : 10 and 1 : 3 share a panel.
    panels, smallest = {}, 0.0
    for point in sorted(points, key=lambda point: point["copies"]):
        if point["copies"] > smallest * 1.12:
            smallest = point["copies"]
        panels.setdefault(smallest, []).append(point["copies"])
        point["panel"] = smallest
    middle = {panel: math.sqrt(shares[0] * shares[-1]) for panel, shares in panels.items()}
    panels = list(panels)
    if len(panels) > 6:
        panels = [panels[round(i * (len(panels) - 1) / 5)] for i in range(6)]
    workers = sorted({point["workers"] for point in points})
    out = Drawing(
        "Overlap, against what theory allows",
        "A batch's time as a share of load + copy + compute, which is what one after the other "
        "takes. The line is the bound max(load / workers, copy, compute); dots are measured.",
    )
    low = math.log10(min(point["x"] for point in points))
    high = math.log10(max(point["x"] for point in points))
    if high - low < 0.1:
        low, high = low - 0.5, high + 0.5
    legend = 24.0
    if len(workers) > 1:
        for i, count in enumerate(workers):
            said = f"{count} worker" + ("s" if count != 1 else "")
            out.line(legend, out.top + 4, legend + 28, out.top + 4, f"s{i % SERIES}", 2)
            out.marker(legend + 14, out.top + 4, i % SERIES, 4)
            out.text(legend + 36, out.top + 8, said)
            legend += 60 + text_width(said)
        out.top += 24
    columns = min(3, len(panels))
    gap, left = 28, 70
    width = (WIDTH - left - 24 - gap * (columns - 1)) / columns
    ticks = [
        tick
        for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
        if low - 0.03 <= math.log10(tick) <= high + 0.03
    ]
    words = {
        0.1: "1:10",
        0.3: "1:3",
        1: "1:1",
        3: "3:1",
        10: "10:1",
        0.01: "1:100",
        0.03: "1:30",
        30: "30:1",
        100: "100:1",
    }
    y = out.top + 4
    for place, panel in enumerate(panels):
        column = place % columns
        x0 = left + column * (width + gap)
        if place and column == 0:
            y += 262
        top, bottom = y + 30, y + 212
        at_x = (
            lambda ratio, x0=x0: x0 + 14 + (math.log10(ratio) - low) / (high - low) * (width - 28)
        )
        at_y = lambda share, top=top, bottom=bottom: bottom - share * (bottom - top)
        out.text(x0, y + 12, f"copy : compute = {in_ratio(middle[panel])}", "ink strong")
        for share in (0, 0.25, 0.5, 0.75, 1):
            out.line(
                x0,
                at_y(share),
                x0 + width,
                at_y(share),
                "soft" if share == 1 else "line",
                1,
                "4 3" if share == 1 else "",
            )
            if column == 0:
                out.text(
                    x0 - 8, at_y(share) + 4, f"{share:.0%}".replace("%", " %"), "soft small", "end"
                )
        if column == 0:
            out.text(x0 + 4, at_y(1) + 14, "one after the other", "soft small")
        for tick in ticks:
            out.text(at_x(tick), bottom + 18, words[tick], "soft small", "middle")
        for i, count in enumerate(workers):
            here = sorted(
                (p for p in points if p["panel"] == panel and p["workers"] == count),
                key=lambda p: p["x"],
            )
            if not here:
                continue
            # Between the measured ratios the bound follows from its formula.
            copies = middle[panel]
            curve = []
            for step in range(61):
                x = 10 ** (low + (high - low) * step / 60)
                if here[0]["x"] * 0.999 <= x <= here[-1]["x"] * 1.001:
                    curve.append(
                        (at_x(x), at_y(max(x / max(count, 1), copies, 1) / (x + copies + 1)))
                    )
            if len(curve) > 1:
                out.path(curve, f"s{i % SERIES}", 2)
            for p in here:
                share = min(p["achieved_us"] / p["sum_us"], 1.1)
                out.marker(at_x(p["x"]), at_y(share), i % SERIES, 4)
    out.text(left, y + 250, "load : compute", "soft small")
    y += 282

    out.text(24, y, "Achieved over the bound, all of the grid", "ink strong")
    ratios = [point["achieved_us"] / point["bound_us"] for point in points]
    base, most = min(0.98, min(ratios)), max(1.05, max(ratios))
    top, bottom, x0, x1 = y + 18, y + 170, left, 856
    step = next(
        one
        for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9)
        if (most - base) / one <= 6
    )
    base, most = math.floor(base / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step
    at_y = lambda ratio: bottom - (ratio - base) / (most - base) * (bottom - top)
    at_x = lambda ratio: x0 + 40 + (math.log10(ratio) - low) / (high - low) * (x1 - x0 - 80)
    for i in range(round((most - base) / step) + 1):
        tick = base + i * step
        out.line(x0, at_y(tick), x1, at_y(tick), "line")
        out.text(x0 - 8, at_y(tick) + 4, f"{tick:.2f}", "soft small", "end")
    out.line(x0, at_y(1), x1, at_y(1), "soft", 1.5)
    out.line(x0, at_y(1.02), x1, at_y(1.02), "ink", 2, "6 4")
    # Points of one ratio side by side, in order of their copies.
    stacks = {}
    for point, ratio in sorted(
        zip(points, ratios), key=lambda pair: (pair[0]["panel"], pair[0]["workers"])
    ):
        stacks.setdefault(round(at_x(point["x"])), []).append((point, ratio))
    for x, stack in stacks.items():
        pitch = min(10.0, 56.0 / len(stack))
        for i, (point, ratio) in enumerate(stack):
            out.marker(
                x + (i - (len(stack) - 1) / 2) * pitch,
                at_y(ratio),
                workers.index(point["workers"]) % SERIES,
                3.5,
            )
    for tick in ticks:
        out.text(at_x(tick), bottom + 18, words[tick], "soft small", "middle")
    out.text(left, bottom + 40, "load : compute", "soft small")
    over = sum(ratio > 1.02 for ratio in ratios)
    out.text(
        856,
        bottom + 40,
        f"target, dashed: at most 1.02; above it {over} of {len(ratios)}; "
        f"worst {max(ratios):.3f}",
        "ink small",
        "end",
    )
    return out


# ---- plot: loaders compared ----------------------------------------------------------------------


def draw_loaders(programs):
    found = programs.get("compare")
    groups = OrderedDict()
    for row in (found or {}).get("rows", []):
        speed = median_of(row, "items_per_second")
        if speed:
            groups.setdefault(row.get("group") or "", []).append((speed, row))
    if not groups:
        return None
    out = Drawing(
        "Loaders compared",
        "The same work in one run: bytes to normalised float32, batches of 64, "
        "shuffled. Million samples a second, medians; longer is better.",
    )
    left, right = 330, 610
    columns = [
        (key, head, unit)
        for key, head, unit in (("cpu_seconds", "CPU s", 1), ("peak_mib", "peak MiB", 1))
        if any(median_of(row, key) is not None for rows in groups.values() for _, row in rows)
    ]
    y = out.top + 18
    for group, rows in groups.items():
        rows.sort(key=lambda pair: -pair[0])
        if group:
            out.text(24, y, group, "ink strong")
        for i, (_, head, _) in enumerate(columns):
            out.text(778 + i * 78, y, head, "soft small", "end")
        y += 12
        most = rows[0][0]
        for speed, row in rows:
            name = Name(row["name"])
            ours = "penstock" in row["name"]
            out.text(
                36, y + 17, shortened(name.in_words(), left - 48), f"ink{' strong' if ours else ''}"
            )
            length = max((right - left) * speed / most, 1.5)
            out.rect(left, y + 4, length, 18, "s0" if ours else "s7", 2)
            out.text(left + length + 8, y + 17, number(speed / 1e6), "ink strong small")
            for i, (key, _, unit) in enumerate(columns):
                value = median_of(row, key)
                out.text(
                    778 + i * 78,
                    y + 17,
                    "-" if value is None else number(value / unit),
                    "soft small",
                    "end",
                )
            y += 27
        y += 26
    absent = [row for row in found["rows"] if row.get("left_out")]
    if absent:
        out.footer("Left out: " + "; ".join(f"{row['name']}: {row['left_out']}" for row in absent))
    return out


# ---- the table -----------------------------------------------------------------------------------


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell(one) for one in row) + " |"
    yield ""


def goal_rows(goals):
    for goal in goals:
        value, bound = value_of(goal), bound_of(goal)
        verdict = verdict_of(goal)
        yield (
            goal["name"],
            goal["floor"],
            goal.get("compares", ""),
            "-" if value is None else f"{value:.3f}" if "ratio" in goal else number(value),
            f"{bound[0]} {bound[1]:g}" if bound else "-",
            f"**{verdict}**" if "missed" in verdict or "noisy" in verdict else verdict,
        )


def in_order(rows):
    """The programs run in random order: here by function, then by the numbers of the axes."""

    def key(row):
        name = Name(row["name"])
        values = [(isinstance(one, str), one) for one in name.axes.values()]
        return name.function, list(name.axes), values

    return sorted(rows, key=key)


def row_cells(row):
    if row.get("left_out"):
        return (row["name"], "-", "-", "-", f"left out: {row['left_out']}")
    spread, rate = row.get("nanoseconds"), median_of(row, "items_per_second")
    more = [
        f"{key} {number(median_of(row, key))}"
        for key in row.get("counters") or {}
        if median_of(row, key) is not None
    ]
    more += [
        f"{key.replace('_', ' ')} {number(value)}"
        for key, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and key != "repetitions"
    ]
    more += [
        f"{key} {number(value)}"
        for key, value in (row.get("threads") or {}).items()
        if isinstance(value, (int, float))
    ]
    return (
        row["name"],
        time_of(spread["median"]) if spread else "-",
        f"{time_of(spread['min'])} - {time_of(spread['max'])}" if spread else "-",
        "-" if rate is None else rate_of(rate),
        "; ".join([*more, *filter(None, [row.get("label")])]),
    )


def summary(report, programs):
    goals = [
        goal for found in programs.values() for goal in found.get("goals") or [] if bound_of(goal)
    ]
    judged = [goal for goal in goals if value_of(goal) is not None]
    noisy = sum(bool(goal.get("noisy")) for goal in judged)
    missed = sum(goal.get("met") is False for goal in judged)
    said = f"{len(judged) - missed} of {len(goals)} targets met, {missed} missed"
    said += f", {len(goals) - len(judged)} not measured" if len(judged) < len(goals) else ""
    said += f"; {noisy} of these verdicts are noisy" if noisy else ""
    bad = [step for step in report.get("steps") or [] if step["ended"] != "passed"]
    return f"**{said}.**" + "".join(f" `{step['name']}` {step['ended']}." for step in bad)


def markdown(report, programs, stem, plots):
    machine = report.get("machine") or {}
    dirty = {True: ", with changes that are not committed", False: ""}.get(report.get("dirty"), "")
    yield f"# Benchmarks, {report.get('date', 'no date')[:10]}, {machine.get('cpu', 'unknown')}"
    yield ""
    yield (
        f"Commit {report.get('commit', 'unknown')}{dirty}. "
        f"{machine.get('cores', '?')} cores, governor "
        f"{machine.get('governor', 'unknown')}, load {machine.get('load_before', '?')} before, "
        f"{machine.get('compiler', 'compiler unknown')}, {machine.get('os', 'system unknown')}."
    )
    yield ""
    yield f"    {report.get('command', 'bash bench/run.sh')}"
    yield ""
    yield summary(report, programs)
    yield ""
    for plot, drawing in plots.items():
        if drawing:
            yield f"![{drawing.title}]({stem}.{plot}.svg)"
        else:
            yield f"No plot `{plot}`: its rows were not measured in this run."
        yield ""
    yield "## Targets"
    yield ""
    yield (
        "Ratios of medians over the floor's, in one run. noisy: the floor moved by more than 20 % "
        "within the run, so the machine was too busy to judge."
    )
    yield ""
    for name, found in programs.items():
        if found.get("goals"):
            yield f"### {name}"
            yield ""
            yield from table(
                ("benchmark", "floor", "compares", "ratio", "target", ""), goal_rows(found["goals"])
            )
    yield "## All rows"
    yield ""
    for name, found in programs.items():
        yield f"<details><summary>{name}: {len(found['rows'])} rows</summary>"
        yield ""
        yield from table(
            ("benchmark", "median", "min - max", "items", ""),
            map(row_cells, in_order(found["rows"])),
        )
        yield "</details>"
        yield ""
    if report.get("steps"):
        yield "## How each program ended"
        yield ""
        yield from table(
            ("program", "ended", "s", "command"),
            (
                (step["name"], step["ended"], step["seconds"], f"`{step['command']}`")
                for step in report["steps"]
            ),
        )


def write_report(file):
    report = json.loads(file.read_text())
    if not isinstance(report, dict) or not isinstance(report.get("programs"), dict):
        raise ValueError('no results of bench/run.sh: it has no key "programs"')
    programs = programs_of(report)
    plots = OrderedDict(
        (
            ("ratios", draw_ratios(programs)),
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


# ---- one file out of the programs' ---------------------------------------------------------------


def first_match(path, pattern):
    try:
        return re.search(pattern, Path(path).read_text(), re.M)[1]
    except (OSError, TypeError):
        return None


def merge(folder, out):
    """Prints the new file's name. The environment has what bench/run.sh knows."""
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
    cpu = first_match("/proc/cpuinfo", r"^model name\s*: (.*)$") or "unknown cpu"
    known = os.environ
    report = {
        "date": known["began"],
        "commit": known["commit"],
        "dirty": json.loads(known["dirty"]),
        "command": known["command_line"].strip(),
        "machine": {
            "cpu": cpu,
            "cores": os.cpu_count(),
            "governor": (
                first_match("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", r"^(.+)$")
                or "unknown"
            ),
            "load_before": float(known["load_before"]),
            "compiler": known["compiler"],
            "os": " ".join(
                (
                    first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)') or "",
                    os.uname().sysname,
                    ".".join(os.uname().release.split(".")[:2]),
                )
            ).strip(),
        },
        "steps": steps,
        "programs": programs,
    }
    plain = re.sub(r"\((R|TM|tm)\)|\bCPU\b|@.*|\bProcessor\b|\b\d+-Core\b", " ", cpu)
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    stem = f"{known['began'][:10]}-{slug}-{known['commit']}"
    file, again = out / f"{stem}.json", 1
    while file.exists():  # a run never takes another one's place
        again += 1
        file = out / f"{stem}-{again}.json"
    file.write_text(json.dumps(report, indent=1) + "\n")
    print(file)


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
