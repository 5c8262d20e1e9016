# SPDX-License-Identifier: BSL-1.0
"""Formats the results as Markdown."""

from .results import Name, bound_of, median_of, number, rate_of, time_of, value_of, verdict_of


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
    """Sorts rows by function and then by the values of the axes, because programs run in random
    order."""

    def key(row):
        name = Name(row["name"])
        values = [(isinstance(one, str), one) for one in name.axes.values()]
        return name.function, list(name.axes), values

    return sorted(rows, key=key)


def row_cells(row):
    if row.get("skipped"):
        return (row["name"], "-", "-", "-", f"left out: {row['skipped']}")
    spread, rate = row.get("nanoseconds"), median_of(row, "items_per_second")
    more = [
        f"{key} {number(median_of(row, key))}"
        for key in row.get("counters") or {}
        if median_of(row, key) is not None
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


def markdown(report, programs):
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
