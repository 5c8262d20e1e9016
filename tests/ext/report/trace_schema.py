#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Reads traces by parsers that are not ours: trace_schema.py PROGRAM FOLDER has the observe tests
write two files to FOLDER. The JSON one is read by Python's own parser; the other one by Perfetto's
schema, where the packages `perfetto` and `protobuf` are installed, else it says so and is skipped."""
import json
import os
import pathlib
import subprocess
import sys

SKIPPED = 77


def require(holds, what):
    if not holds:
        sys.exit(f"trace_schema: {what}")


def slices_of_chrome(path):
    """The slices of a file for Chrome, as (track, stage, epoch, batch, samples)."""
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


def slices_of_perfetto(path, schema):
    """The same of a file for Perfetto, every field of which the schema has to know."""
    trace = schema.Trace()
    trace.ParseFromString(path.read_bytes())
    require(trace.SerializeToString() != b"", "nothing was read")
    tracks, states, slices = {}, {}, []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            tracks[track.uuid] = track.name
            if track.HasField("thread"):
                require(track.thread.thread_name == track.name, f"a thread's name: {track}")
        if packet.HasField("clock_snapshot"):
            snapshot = packet.clock_snapshot
            require(snapshot.primary_trace_clock == schema.BUILTIN_CLOCK_MONOTONIC, "the clock")
            require({clock.clock_id for clock in snapshot.clocks} ==
                    {schema.BUILTIN_CLOCK_MONOTONIC, schema.BUILTIN_CLOCK_BOOTTIME}, "the clocks")
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("interned_data"):
            require(packet.sequence_flags & schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED,
                    "a sequence that says its names begins anew")
            data = packet.interned_data
            states[sequence] = ({name.iid: name.name for name in data.event_names},
                                {name.iid: name.name for name in data.debug_annotation_names},
                                packet.trace_packet_defaults, [])
        if not packet.HasField("track_event"):
            continue
        names, notes, defaults, begun = states[sequence]
        require(defaults.timestamp_clock_id == schema.BUILTIN_CLOCK_MONOTONIC, "the clock")
        event = packet.track_event
        if event.type == schema.TrackEvent.TYPE_SLICE_END:
            require(begun and begun.pop() <= packet.timestamp, "a slice ends that has begun")
            continue
        require(event.type == schema.TrackEvent.TYPE_SLICE_BEGIN, f"no type of ours: {event}")
        begun.append(packet.timestamp)
        args = {notes[note.name_iid]: note.uint_value for note in event.debug_annotations}
        require(("batch" in args) == (len(event.flow_ids) == 1), f"a flow is a batch's: {event}")
        slices.append((tracks[defaults.track_event_defaults.track_uuid], names[event.name_iid],
                       args.get("epoch"), args.get("batch"), args.get("samples")))
    require(not any(state[3] for state in states.values()), "a slice has no end")
    unknown = unknown_fields(trace)
    require(not unknown, f"fields that the schema does not know: {unknown}")
    return sorted(slices, key=str)


def unknown_fields(message):
    """The numbers of the fields that a message or one in it has and its schema has not."""
    from google.protobuf import unknown_fields as of
    numbers = [field.field_number for field in of.UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        repeated = not isinstance(value, type(message)) and hasattr(value, "__len__")
        for inner in value if repeated else [value]:
            numbers += unknown_fields(inner)
    return numbers


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "[traces]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_TRACES": str(folder)})
    chrome = slices_of_chrome(folder / "trace.json")
    require(len({(one[2], one[3]) for one in chrome if one[1] == "step"}) == 22, "22 batches")
    print(f"Chrome: {len(chrome)} slices")
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
    except ImportError as missing:
        print(f"skipped: Perfetto's schema is not installed (pip install perfetto): {missing}")
        sys.exit(SKIPPED)
    require(slices_of_perfetto(folder / "trace.pftrace", schema) == chrome, "both have the same")
    print("Perfetto: the same, by its schema")


if __name__ == "__main__":
    main()
