#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Reads a trace with Python's JSON parser: trace_schema.py PROGRAM FOLDER. The report tests write
the trace to FOLDER."""
import json
import os
import pathlib
import subprocess
import sys



def require(holds, what):
    if not holds:
        sys.exit(f"trace_schema: {what}")


def slices_of_chrome(path):
    """Returns the slices of a Chrome trace as (track, stage, epoch, batch, samples)."""
    trace = json.loads(path.read_text())
    names = {}
    slices = []
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["tid"]] = event["args"]["name"]
            continue
        require(event["ph"] == "X", f"no phase of ours: {event}")
        require(event["dur"] >= 0, f"ends before it begins: {event}")
        args = event.get("args", {})
        require(("batch" in args) == ("bind_id" in event), f"a flow is a batch's: {event}")
        slices.append((names[event["tid"]], event["name"], args.get("epoch"), args.get("batch"),
                       args.get("samples")))
    return sorted(slices, key=str)


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "[traces]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_TRACES": str(folder)})
    chrome = slices_of_chrome(folder / "trace.json")
    require(len({(one[2], one[3]) for one in chrome if one[1] == "step"}) == 22, "22 batches")
    print(f"Chrome: {len(chrome)} slices")


if __name__ == "__main__":
    main()
