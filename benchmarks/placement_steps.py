#!/usr/bin/env python3
"""Buffers of many training steps from a recorded one, for `placement`.

    placement_steps.py SNAPSHOT.pickle [--buffers 100000] [--vary 0.3] > steps.csv
    placement steps.csv --no-offsets

SNAPSHOT is what torch.cuda.memory._dump_snapshot wrote over one training step, with stacks; only load files you trust.
Time counts events. The step is repeated until there are enough buffers: what autograd left behind (gradients) lives until
the next step begins, what else the step left behind (optimizer states) and what was there before live to the end and are
allocated once. --vary F draws a length of the sequence for each step, from 1 - F to 1 of the recorded one: sizes that no
survivor has (activations and temporaries, not what is shaped like a parameter) scale with it.
"""
import argparse
import pickle
import random
import sys


def lifetimes(snapshot):
    """(lower, upper or None, size, whether autograd allocated it) of one step, None for survivors; its length."""
    trace = max(snapshot["device_traces"], key=len)
    live, buffers, time = {}, [], 0
    for event in trace:
        time += 1
        if event["action"] == "alloc":
            autograd = any("Engine" in frame["name"] for frame in event["frames"])
            live[event["addr"]] = (time, event["size"], autograd)
        elif event["action"] == "free_completed":
            lower, size, autograd = live.pop(event["addr"], (0, event["size"], False))
            buffers.append((lower, time, size, autograd))
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                lower, size, autograd = live.pop(address, (0, block.get("requested_size", block["size"]), False))
                buffers.append((lower, None, size, autograd))
            address += block["size"]
    return buffers, time + 1


def repeated(step, length, count, vary, draw):
    """At most `count` rows (lower, upper, size) of as many steps as that takes; those that fill it up end the last."""
    fixed = {size for _, upper, size, _ in step if upper is None}
    rows, start = [], 0
    while len(rows) < count:
        scale = 1 - vary * draw.random()
        for lower, upper, size, autograd in step:
            if start and (lower == 0 or (upper is None and not autograd)):
                continue
            if size not in fixed:
                size = max(1, int(size * scale))
            end = start + upper if upper is not None else start + length + 1 if autograd else None
            rows.append((start + lower, end, size))
        start += length
    rows = rows[:count]
    return [(lower, start + 1 if upper is None else upper, size) for lower, upper, size in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot")
    parser.add_argument("--buffers", type=int, default=100000)
    parser.add_argument("--vary", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.snapshot, "rb") as file:
        step, length = lifetimes(pickle.load(file))
    rows = repeated(step, length, arguments.buffers, arguments.vary, random.Random(arguments.seed))
    print("id,lower,upper,size")
    sys.stdout.writelines(f"{i},{lower},{upper},{size}\n" for i, (lower, upper, size) in enumerate(rows))


if __name__ == "__main__":
    main()
