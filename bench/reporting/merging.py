# SPDX-License-Identifier: BSL-1.0
"""One file out of those of the programs."""

import json
import os
import re
from collections import OrderedDict
from pathlib import Path


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
