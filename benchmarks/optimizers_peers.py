#!/usr/bin/env python3
"""The other optimizers that `optimizers` is held against: one step of one weight of 4096 x 4096 float32 each.

    optimizers_peers.py         prints "ready NAME..." and then, for each NAME on a line of standard input, the seconds of
                                one step

PyTorch's AdamW, fused and foreach; 8-bit AdamW of bitsandbytes and of torchao, where they can be imported (torchao's first
step compiles, for about a minute).
"""
import os
import sys
import time

import torch


def weight():
    parameter = torch.nn.Parameter(torch.randn(4096, 4096) * 0.02)
    parameter.grad = torch.randn(4096, 4096) * 1e-3
    return [parameter]


def bitsandbytes_8bit():
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(weight(), lr=1e-4)


def torchao_8bit():
    from torchao.optim import AdamW8bit

    return AdamW8bit(weight(), lr=1e-4)


PEERS = {
    "torch-fused": lambda: torch.optim.AdamW(weight(), lr=1e-4, fused=True),
    "torch-foreach": lambda: torch.optim.AdamW(weight(), lr=1e-4, foreach=True),
    "bitsandbytes": bitsandbytes_8bit,
    "torchao": torchao_8bit,
}


# As benchmarks/measure.h.
clock = time.process_time if os.environ.get("CINCH_BENCH_CLOCK") == "cpu" else time.perf_counter


def main():
    torch.manual_seed(1)
    optimizers = {}
    for name, make in PEERS.items():
        try:
            optimizer = make()
            for _ in range(2):
                optimizer.step()
            optimizers[name] = optimizer
        except Exception as error:  # one that is not installed, or that wants a GPU, is left out
            print(f"{name}: {str(error).splitlines()[0][:200]}", file=sys.stderr, flush=True)
    print("ready", *optimizers, flush=True)
    for line in sys.stdin:
        begin = clock()
        optimizers[line.strip()].step()
        print(clock() - begin, flush=True)


if __name__ == "__main__":
    main()
