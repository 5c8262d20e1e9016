# SPDX-License-Identifier: BSL-1.0
"""Plot: tickets a second over numbers of threads."""

import math
from collections import OrderedDict

from .drawing import SERIES, Drawing, nice_ticks, shortened, spread_labels
from .results import Name, median_of, number


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
        "On the right: the value of each line's last shape. batch_queue is bounded, keeps one order "
        "over all its producers, and its consumers sleep when it is empty; moodycamel's queues keep "
        "an order for each producer alone, and boost_spsc_queue has one thread at either end."
        + (f" {left_over} more sets of shapes are in the table." if left_over > 0 else "")
    )
    return out
