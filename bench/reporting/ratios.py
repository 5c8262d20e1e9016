# SPDX-License-Identifier: BSL-1.0
"""Plot: each goal against its floor, one picture a program."""

import math
from collections import OrderedDict

from .drawing import Drawing, wrapped
from .results import Name, bound_of, number, verdict_of


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


def labels_of(key, goals):
    """What a bar is of, and over what."""
    _, function, floor, (what, _) = key
    worst = min if what == "at least" else max
    goal = worst(goals, key=lambda one: one["ratio"])
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
    return first, second


def draw_ratios(programs):
    """One picture for each program that has goals: ("ratios-<program>", drawing)."""
    drawn = ((f"ratios-{name}", draw_program(name, found)) for name, found in programs.items())
    return [(plot, drawing) for plot, drawing in drawn if drawing]


def draw_program(program, found):
    panels = [(compares, goal_groups({program: found}, compares)) for compares in ("speed", "time")]
    panels = [(compares, groups) for compares, groups in panels if groups]
    if not panels:
        return None
    out = Drawing(
        f"{program}: against the floor",
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
        places, labels = [], []
        for key, goals in groups.items():
            first, second = labels_of(key, goals)
            labels.append((wrapped(first, left - 44), wrapped(second, left - 44, 12)))
            places.append(rows)
            rows += max(42, 16 * sum(map(len, labels[-1])) + 10)
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
        for (key, goals), top, (first, second) in zip(groups.items(), places, labels):
            what, bound = key[3]
            worst, best = (min, max) if what == "at least" else (max, min)
            goal = worst(goals, key=lambda one: one["ratio"])
            others = best(goals, key=lambda one: one["ratio"])["ratio"]
            for i, line in enumerate(first + second):
                kind = "ink" if i < len(first) else "soft small"
                out.text(36, top + 16 * (i + 1), line, kind)
            ratio = goal["ratio"]
            kind = "good" if goal.get("met") else "bad"
            bar = f"{kind} pale" if goal.get("noisy") else kind
            if len(goals) > 1:
                out.line(at(ratio), top + 20, at(others), top + 20, kind, 2)
                out.line(at(others), top + 15, at(others), top + 25, kind, 2)
            out.rect(min(at(1), at(ratio)), top + 11, abs(at(ratio) - at(1)), 18, bar, 2)
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
        "The thick tick is the target; a bar with a gap goes on beyond the axis. Pale and noisy: "
        "the floor moved by more than 20 % within the run, so the machine was too busy to judge."
    )
    return out
