# SPDX-License-Identifier: BSL-1.0
"""Compares loaders of images from a folder: penstock, Pillow, torchvision, DALI, OpenCV, SPDL.

    python3 images.py --ours PROGRAM --python PYTHON [--kind photos|large] [--rounds N]
                      [--folder FOLDER] [--json FILE] [--only ROW]...

PROGRAM is penstock_images_peer. PYTHON is an interpreter with the peers' packages: pillow, numpy,
torch, torchvision, spdl (which needs FFmpeg's libraries), nvidia-dali-cuda130,
opencv-python-headless. Peers that cannot be imported are skipped, and the output names them.
README.md describes the rows and the measurements.
"""

import math
from pathlib import Path

import rounds
from rounds import PER_CPU

HERE = Path(__file__).resolve().parent
PEERS = ("pillow", "pytorch", "dali", "opencv", "spdl")
STEP = 64  # as in image_peers.py: the consumer reads every 64th value
# The peers, and the goals for the ratio of images per second of processor time.
GOALS = {
    "photos": {
        "Pillow/threads:1": 3.5,
        "DataLoader_Pillow/workers:1": 3.5,
        "DataLoader_tensor/workers:1": None,
        "DALI_cpu/threads:1": 2.2,
        "OpenCV_area/threads:1": 1.8,
        "SPDL/threads:1": 1.5,
    }
}
GOALS["large"] = dict.fromkeys(GOALS["photos"])


def check(rows, side):
    """Checks that all sides have read the same labels, and pixels with nearly the same mean. The
    crops differ, but their means hardly do."""
    reference = next((row.runs[0]["checked"] for row in rows if row.runs), None)
    for row in rows:
        for run in row.runs:
            found = run["checked"]
            looked_at = found["samples"] * math.ceil(side * side * 3 / STEP)
            far = abs(found["values"] - reference["values"]) / looked_at
            # The mean of few crops varies more: by 24 levels for 4 images, and by 6 for 512.
            most = 4 + 40 / math.sqrt(found["samples"])
            if any(found[key] != reference[key] for key in ("samples", "labels")) or far > most:
                row.failed = f"failed: read {found}, others {reference}"


def judge(rows, kind):
    judged = rounds.Judge(rows)
    named = {row.name: row for row in rows if row.runs and not row.failed}
    ours = named.get("penstock/workers:1")
    for name, bound in GOALS[kind].items():
        judged.add(ours, named.get(name), "speed", bound, PER_CPU, "a second of processor time")
    two = named.get("penstock/workers:2")
    judged.add(two, ours, "speed", 1.9, label="a second")
    bound = 3 if kind == "photos" else None
    beside = named.get("DataLoader_Pillow/workers:2")
    judged.add(two, beside, "speed", bound, label="a second, two each")
    return judged.goals


def main():
    parser = rounds.Peers.parser()
    parser.add_argument("--kind", choices=GOALS, default="photos")
    chosen = parser.parse_args()
    folder = chosen.folder or str(HERE.parent.parent / "build" / "compare" / chosen.kind)
    compared = rounds.Peers(
        chosen,
        HERE / "image_peers.py",
        PEERS,
        [HERE / "image_folders.py", chosen.kind],
        folder,
    )
    check(compared.rows, int(Path(folder, "task").read_text().split()[0]))
    print(compared.head(compared.data))
    rounds.print_rows(compared.ranked())
    compared.end("compare_images", judge(compared.rows, chosen.kind))


if __name__ == "__main__":
    main()
