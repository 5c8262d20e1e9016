# SPDX-License-Identifier: BSL-1.0
"""Plot: the time of a batch over load : copy : compute."""

import itertools
import math

from .drawing import SERIES, WIDTH, Drawing, text_width, wrapped
from .results import Name, median_of, number


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


HOW_TO_READ = (
    "How to read this: the more a line lies below 100 %, the more time the overlap saves. Most is "
    "saved where no stage is much longer than the others. A second worker lowers the bound only "
    "where loading is the longest stage."
)


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
        out.text(x0, bottom + 36, "load : compute", "soft small")
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
    if len(panels) % columns:  # a free place
        x0 = left + len(panels) % columns * (width + gap)
        for i, line in enumerate(wrapped(HOW_TO_READ, width, 12)):
            out.text(x0, y + 34 + 16 * i, line, "soft small")
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
