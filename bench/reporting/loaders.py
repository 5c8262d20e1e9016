# SPDX-License-Identifier: BSL-1.0
"""Plot: loaders side by side."""

from collections import OrderedDict

from .drawing import Drawing, shortened
from .results import Name, median_of, number


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
        "One workload in one run: bytes to normalised float32, batches of 64, "
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
