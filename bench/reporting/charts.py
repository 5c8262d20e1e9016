# SPDX-License-Identifier: BSL-1.0
"""Draws the chart of docs/benchmarks.md with matplotlib."""

import matplotlib
from matplotlib.figure import Figure

from .results import fastest_loaders

INK, SOFT, OURS, OTHERS = "#1f2328 #59636e #0b62d6 #64748b".split()
matplotlib.rcParams.update(
    {
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


def draw(report, file, footer):
    """Draws the six loaders with horizontal bars from the top down, each followed by its text.
    Equal results give equal files."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panel = figure.subplots()
    figure.suptitle("Samples per second", x=0.01, ha="left", size=12, weight="bold")
    names, speeds, said = zip(*fastest_loaders(report))
    colours = [OURS if name == "penstock" else OTHERS for name in names]
    panel.barh(range(len(names)), speeds, 0.7, color=colours)
    panel.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    panel.set(xticks=[], xlim=(0, max(speeds)))
    panel.spines["bottom"].set_visible(False)
    panel.grid(visible=False)
    for place, (length, text) in enumerate(zip(speeds, said)):
        panel.annotate(text, (length, place), (6, 0), textcoords="offset points", va="center")
    about = (
        f"MNIST to normalised float32 in shuffled batches of 64; {report['machine']['cores']} CPU "
        "cores, no GPU.\nEach loader with its fastest number of workers. Longer is better."
    )
    figure.supxlabel(f"{about}\n{footer}", x=0.01, ha="left", size=9, color=SOFT)
    figure.savefig(file, metadata={"Date": None})
