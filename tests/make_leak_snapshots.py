#!/usr/bin/env python3
"""Writes tests/data/snapshots/leak_*.json.gz: what PyTorch would record of small training programs that leak.

    python3 tests/make_leak_snapshots.py        # the files are in the repository; the same bytes come out again

Memory comes from PyTorch's caching allocator as written down here: sizes in units of 512 B; requests of up to 1 MiB
from segments of 2 MiB, up to 10 MiB from segments of 20 MiB; the smallest free block that is large enough, of those the
one at the lowest address; split where the rest is worth it, merged with free neighbours. `cinch replay` agrees.

Each program trains 12 steps of 3 layers and evaluates after every 5. What leaks a step:
    none    nothing
    list    a tensor of 40 KiB appended to a list
    graph   the loss kept with its graph: 6 tensors of 1 MiB and the loss, 4 B
    cache   a cache made anew, 256 KiB larger
    hook    the output of layer 1, 1 MiB, kept by a forward hook
"""
import gzip
import json
import pathlib

KIB, MIB = 1 << 10, 1 << 20
STEPS, LAYERS, BASE = 12, 3, 0x7F0000000000


def frames(*lines):
    found = [{"filename": file, "line": line, "name": name} for file, line, name in lines]
    return found + [{"filename": "user/train.py", "line": 88, "name": "main"}]


def torch(op):
    return ("??", 0, f"at::_ops::{op}::call(at::Tensor const&)")


FORWARD = ("torch/nn/modules/module.py", 1751, "_call_impl")


class Allocator:
    """One stream, default settings, a card that is never full."""

    def __init__(self):
        self.next, self.segments = BASE, []  # [address, bytes, is small, [block, …]]

    def malloc(self, size):
        """The block, and the segment if it is a new one."""
        rounded = max(512, (size + 511) // 512 * 512)
        small, new = rounded <= MIB, None
        fitting = [(block["size"], block["address"], segment, block) for segment in self.segments if segment[2] == small
                   for block in segment[3] if not block["live"] and block["size"] >= rounded]
        if not fitting:
            total = 2 * MIB if small else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
            new = [self.next, total, small, [{"address": self.next, "size": total, "live": False}]]
            self.next += total
            self.segments.append(new)
            fitting = [(total, new[0], new, new[3][0])]
        *_, segment, block = min(fitting, key=lambda found: found[:2])
        rest = block["size"] - rounded
        if rest >= 512 if small else rest > MIB:
            place = segment[3].index(block) + 1
            segment[3].insert(place, {"address": block["address"] + rounded, "size": rest, "live": False})
            block["size"] = rounded
        block["live"] = True
        return block, new

    def free(self, address):
        blocks = next(segment[3] for segment in self.segments if segment[0] <= address < segment[0] + segment[1])
        place = next(i for i, block in enumerate(blocks) if block["address"] == address)
        blocks[place]["live"] = False
        for left in (place, place - 1):  # The next neighbour, then the one before.
            if 0 <= left < len(blocks) - 1 and not blocks[left]["live"] and not blocks[left + 1]["live"]:
                blocks[left]["size"] += blocks.pop(left + 1)["size"]


class Program:
    def __init__(self, leak):
        self.leak, self.events, self.annotations, self.time = leak, [], [], 1_700_000_000_000_000
        self.allocator, self.live = Allocator(), {}
        self.parameters = [self.alloc(4 * MIB, self.made(i)) for i in range(LAYERS)]
        self.state, self.cache, self.cached = [], None, 0
        for step in range(1, STEPS + 1):
            self.train(step)
            if step % 5 == 0:
                self.evaluate()

    def made(self, layer):
        return frames(torch("empty_memory_format"), ("torch/nn/modules/module.py", 1343, "to"),
                      ("user/train.py", 20 + layer, "build"))

    def trace(self, action, address, size, stack):
        self.time += 10
        self.events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time,
                            "frames": stack})

    def alloc(self, size, stack):
        block, segment = self.allocator.malloc(size)
        if segment:
            self.trace("segment_alloc", segment[0], segment[1], stack)
        self.trace("alloc", block["address"], size, stack)
        self.live[block["address"]] = (size, stack)
        return block["address"]

    def free(self, address):
        size, stack = self.live.pop(address)
        self.trace("free_requested", address, size, stack)
        self.trace("free_completed", address, size, stack)
        self.allocator.free(address)

    def train(self, step):
        data = self.alloc(512 * KIB, frames(torch("to_device"), ("user/train.py", 60, "load")))
        saved = []
        for i in range(LAYERS):
            layer = ("user/model.py", 30 + i, "forward")
            saved.append(self.alloc(MIB, frames(torch("linear"), ("torch/nn/modules/linear.py", 125, "forward"), FORWARD, layer)))
            saved.append(self.alloc(MIB, frames(torch("relu"), FORWARD, layer)))
            if self.leak == "hook" and i == 1:
                self.alloc(MIB, frames(torch("clone"), ("user/hooks.py", 7, "keep_output"), FORWARD, layer))
        loss = self.alloc(4, frames(torch("cross_entropy_loss"), ("user/train.py", 66, "step")))
        gradients, flowing = [], self.alloc(MIB, self.backward("NllLossBackward0", "nll_loss_backward"))
        for i in reversed(range(LAYERS)):
            last, flowing = flowing, self.alloc(MIB, self.backward("AddmmBackward0", "mm"))
            self.free(last)
            gradients.append(self.alloc(4 * MIB, self.backward("AddmmBackward0", "t", "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)")))
            if self.leak != "graph":
                self.free(saved[2 * i + 1])
                self.free(saved[2 * i])
        self.free(flowing)
        if self.leak != "graph":
            self.free(loss)
        self.free(data)
        self.optimize(step)
        for gradient in gradients:
            self.free(gradient)
        if self.leak == "list":
            self.alloc(40 * KIB, frames(torch("clone"), ("user/metrics.py", 14, "append")))
        if self.leak == "cache":
            self.cached += 256 * KIB
            larger = self.alloc(self.cached, frames(torch("cat"), ("user/cache.py", 9, "grow")))
            if self.cache:
                self.free(self.cache)
            self.cache = larger

    def backward(self, node, op, *inner):
        return [{"filename": "??", "line": 0, "name": name} for name in
                (*inner, f"at::_ops::{op}::call(at::Tensor const&)",
                 f"torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)",
                 "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)")]

    def annotate(self, stage):
        self.time += 1
        self.annotations.append({"stage": stage, "device": 0, "time_us": self.time, "name": "Optimizer.step#AdamW.step"})

    def optimize(self, step):
        stack = (("torch/optim/adamw.py", 220, "step"), ("user/train.py", 70, "step"))
        self.annotate("START")
        for _ in range(LAYERS):
            if step == 1:
                self.state.append(self.alloc(8 * MIB, frames(torch("zeros_like"), ("torch/optim/adam.py", 180, "_init_group"), *stack)))
            self.free(self.alloc(4 * MIB, frames(torch("sqrt"), ("torch/optim/adam.py", 500, "_multi_tensor_adam"), *stack)))
        self.annotate("END")

    def evaluate(self):
        for batch in range(3):
            flowing = self.alloc(MIB, frames(torch("to_device"), ("user/train.py", 60, "load"), ("user/train.py", 80, "evaluate")))
            for i in range(LAYERS):
                last, flowing = flowing, self.alloc(MIB, frames(torch("linear"), FORWARD, ("user/model.py", 30 + i, "forward"),
                                                                ("user/train.py", 82, "evaluate")))
                self.free(last)
            self.free(flowing)

    def block(self, block):
        size, stack = self.live[block["address"]] if block["live"] else (0, [])
        return {"address": block["address"], "size": block["size"], "requested_size": size,
                "state": "active_allocated" if block["live"] else "inactive", "frames": stack}

    def snapshot(self):
        segments = []
        for address, total, small, blocks in self.allocator.segments:
            used = sum(block["size"] for block in blocks if block["live"])
            blocks = [self.block(block) for block in blocks]
            segments.append({"device": 0, "address": address, "total_size": total, "allocated_size": used,
                             "active_size": used, "requested_size": sum(block["requested_size"] for block in blocks),
                             "stream": 0, "segment_type": "small" if small else "large", "segment_pool_id": [0, 0],
                             "is_expandable": False, "frames": [], "blocks": blocks})
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": {},
                "external_annotations": self.annotations}


def main():
    folder = pathlib.Path(__file__).parent / "data" / "snapshots"
    for leak in ("none", "list", "graph", "cache", "hook"):
        text = json.dumps(Program(leak).snapshot(), separators=(",", ":"))
        (folder / f"leak_{leak}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
