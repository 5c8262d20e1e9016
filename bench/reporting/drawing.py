# SPDX-License-Identifier: BSL-1.0
"""SVG drawings of 880 px, in the light or dark colours that the viewer prefers."""

import math
from xml.sax.saxutils import escape


WIDTH = 880
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "soft": "#59636e",
    "line": "#d1d9e0",
    "faint": "#f3f5f7",
    "good": "#1a7f37",
    "bad": "#cf222e",
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
    "series": ("#58a6ff #fb923c #4ade80 #c084fc #22d3ee #facc15 #f472b6 #94a3b8").split(),
}
SERIES = len(LIGHT["series"])


def style():
    def rules(colours):
        out = [f".paper{{fill:{colours['paper']}}}"]
        for name in ("ink", "soft", "line", "faint", "good", "bad"):
            out.append(f".{name}{{fill:{colours[name]}}} .{name}-line{{stroke:{colours[name]}}}")
        for i, colour in enumerate(colours["series"]):
            out.append(f".s{i}{{fill:{colour}}} .s{i}-line{{stroke:{colour}}}")
        out.append(f".hollow{{fill:{colours['paper']}}} .pale{{fill-opacity:.4}}")
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
