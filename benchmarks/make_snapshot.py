#!/usr/bin/env python3
"""Makes a large memory snapshot of a small one by repeating what it recorded.

    make_snapshot.py SIZE OUT.pickle [RECORDING.pickle[.zst|.gz]]     SIZE: 1GB, 400MB, 64kB

The recorded step runs again and again. In between all that it left is freed and given back to the driver, so that every
repetition begins in the state the recording began in: addresses, streams, segments and times are those of one possible run.
Written as torch.cuda.memory._dump_snapshot() writes: pickle protocol 4, frames of 64 KiB, an entry of the memo for each dict.
"""
import gzip
import pathlib
import pickle
import struct
import subprocess
import sys

RECORDING = pathlib.Path(__file__).parent.parent / "tests/data/snapshots/gpt2.7b-b4-s128-fp32-step.pickle.zst"
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1}


def size_of(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def load(path):
    if path.suffix == ".zst":
        return pickle.loads(subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        return pickle.load(file)


def way_back(snapshot):
    """The events that lead from the end of the recording to its start."""
    end = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    live = {address: block["requested_size"] for address, block in end.items()}
    segments = {s["address"]: s["total_size"] for s in snapshot["segments"]}
    streams = {s["address"]: s["stream"] for s in snapshot["segments"]}
    for event in reversed(snapshot["device_traces"][0]):
        action, address, size = event["action"], event["addr"], event["size"]
        if action == "alloc":
            del live[address]
        elif action == "free_completed":
            live[address] = size
        elif action == "segment_alloc":
            del segments[address]
        elif action == "segment_free":
            segments[address] = size
            streams[address] = event["stream"]
    events = []

    def add(action, address, size, stream=0, frames=None):
        event = {"action": action, "addr": address, "size": size, "stream": stream, "time_us": 0}
        events.append(event if frames is None else {**event, "frames": frames})

    for address, block in end.items():
        if address not in live:
            for action in ("free_requested", "free_completed"):
                add(action, address, block["requested_size"], frames=block["frames"])
    for segment in snapshot["segments"]:
        if segment["address"] not in segments:
            add("segment_free", segment["address"], segment["total_size"], segment["stream"], segment["frames"])
    recorded = {segment["address"] for segment in snapshot["segments"]}
    for address, size in segments.items():
        if address not in recorded:
            add("segment_alloc", address, size, streams[address])
    for address, size in live.items():
        if address not in end:
            add("alloc", address, size)
    return events


class Writer:
    """Opcodes of pickle protocol 4."""

    def __init__(self, file):
        self.file = file
        self.frame = bytearray()
        self.written = 2
        self.memoized = 0
        self.known = {}
        file.write(b"\x80\x04")

    def flush(self):
        self.file.write(b"\x95" + struct.pack("<Q", len(self.frame)) + self.frame)
        self.written += 9 + len(self.frame)
        self.frame.clear()

    def put(self, code):
        self.frame += code
        if len(self.frame) >= 65536:
            self.flush()

    def memoize(self):
        self.memoized += 1
        return b"\x94"

    def get(self, slot):
        return b"h" + bytes([slot]) if slot < 256 else b"j" + struct.pack("<I", slot)

    def text(self, text):
        if text in self.known:
            return self.get(self.known[text])
        data = text.encode()
        self.known[text] = self.memoized
        head = b"\x8c" + bytes([len(data)]) if len(data) < 256 else b"X" + struct.pack("<I", len(data))
        return head + data + self.memoize()

    @staticmethod
    def integer(number):
        if 0 <= number < 256:
            return b"K" + bytes([number])
        if 0 <= number < 65536:
            return b"M" + struct.pack("<H", number)
        if -(2**31) <= number < 2**31:
            return b"J" + struct.pack("<i", number)
        data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(data)]) + data

    def value(self, value):
        """Anything small. Objects are written once each."""
        if value is None or isinstance(value, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple):
            return b"".join(map(self.value, value)) + (bytes([0x84 + len(value)]) if value else b")")
        if id(value) in self.known:
            return self.get(self.known[id(value)])
        self.known[id(value)] = self.memoized
        parts = [(b"}" if isinstance(value, dict) else b"]") + self.memoize()]
        items = [x for pair in value.items() for x in pair] if isinstance(value, dict) else value
        if items:
            parts += [b"(", *map(self.value, items), b"u" if isinstance(value, dict) else b"e"]
        return b"".join(parts)


def write_events(writer, snapshot, size):
    """Repetitions of the trace until the file has about `size` bytes; all but the last with the way back."""
    step = snapshot["device_traces"][0]
    back = way_back(snapshot)
    first, last = step[0]["time_us"], step[-1]["time_us"]
    period = last - first + 2 * len(back)
    for i, event in enumerate(back):
        event["time_us"] = last + 2 * i

    def templates(events):
        """Bytes before and after the time of each event, all of whose texts and stacks are written by now."""
        keys = {key: writer.text(key) for key in ("action", "addr", "size", "stream", "frames", "time_us")}
        for event in events:
            parts = [keys[key] + writer.value(event[key]) for key in ("action", "addr", "size", "stream")]
            frames = keys["frames"] + writer.value(event["frames"]) if "frames" in event else b""
            yield b"}\x94(" + b"".join(parts) + keys["time_us"], frames + b"u", event["time_us"]

    writer.put(b"]" + writer.memoize() + b"(")
    count = 0

    def one(code):
        nonlocal count
        if count % 1000 == 0:
            writer.put(b"e(" if count else b"")
        count += 1
        writer.put(code)

    def repeat(events, shift):
        for head, tail, time in events:
            writer.memoized += 1
            one(head + Writer.integer(time + shift) + tail)

    for event in step + back:  # For the first time: stacks are written where they first occur.
        one(writer.value(event))
    step, back, shift = list(templates(step)), list(templates(back)), period
    repeat(step, shift)
    while writer.written < size:
        repeat(back, shift)
        shift += period
        repeat(step, shift)
    writer.put(b"e")
    return count


def main():
    size, out = size_of(sys.argv[1]), sys.argv[2]
    snapshot = load(pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else RECORDING)
    with open(out, "wb") as file:
        writer = Writer(file)
        writer.put(b"}" + writer.memoize() + b"(" + writer.text("segments") + writer.value(snapshot["segments"]))
        writer.put(writer.text("device_traces") + b"]" + writer.memoize() + b"(")
        count = write_events(writer, snapshot, size)
        writer.put(b"e")
        for key in ("allocator_settings", "external_annotations"):
            writer.put(writer.text(key) + writer.value(snapshot[key]))
        writer.put(b"u.")
        writer.flush()
    print(f"{out}: {count:,} events, {writer.written:,} bytes")


if __name__ == "__main__":
    main()
