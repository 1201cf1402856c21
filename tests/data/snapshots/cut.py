#!/usr/bin/env python3
"""Cuts a snapshot down to its last events and the segments they touch, as a ring buffer would have left them.

    cut.py RECORDING.pickle EVENTS OUT.pickle
"""
import bisect
import pickle
import sys


def cut(snapshot, count):
    trace = snapshot["device_traces"][0][-count:]
    segments = sorted(snapshot["segments"], key=lambda segment: segment["address"])
    begins = [segment["address"] for segment in segments]
    touched = set()
    kept = []
    for event in trace:
        at = bisect.bisect(begins, event["addr"]) - 1
        if at >= 0 and event["addr"] < begins[at] + segments[at]["total_size"]:
            touched.add(at)
            kept.append(event)
    return {**snapshot, "segments": [segments[at] for at in sorted(touched)], "device_traces": [kept]}


def main():
    source, count, out = sys.argv[1:]
    with open(source, "rb") as file:
        snapshot = pickle.load(file)
    with open(out, "wb") as file:
        pickle.dump(cut(snapshot, int(count)), file)


if __name__ == "__main__":
    main()
