#!/usr/bin/env python3
"""Trains the model of `optimizers_loss` with PyTorch's AdamW and the 8-bit ones of bitsandbytes and torchao.

    optimizers_loss_peers.py TEXT SEED STEPS        prints "NAME LOSS" lines: the held-out loss

The same model, text, rate and number of steps as there; first weights and batches are drawn anew, from the same seed.
"""
import sys

import torch
from torch import nn
from torch.nn import functional

CONTEXT, BATCH = 16, 64


def main():
    text, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    data = torch.frombuffer(bytearray(open(text, "rb").read()), dtype=torch.uint8).long()
    train, held_out = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    def batch_at(source, starts):
        at = starts[:, None] + torch.arange(CONTEXT + 1)
        return source[at[:, :CONTEXT]], source[at[:, CONTEXT]]

    def run(make):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 256))
        optimizer = make(net.parameters())
        for _ in range(steps):
            x, y = batch_at(train, torch.randint(len(train) - CONTEXT, (BATCH,)))
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            x, y = batch_at(held_out, torch.arange(0, len(held_out) - CONTEXT, 3))
            return functional.cross_entropy(net(x), y).item()

    def bitsandbytes_8bit(parameters):
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-3, weight_decay=0.01)

    def torchao_8bit(parameters):
        from torchao.optim import AdamW8bit

        return AdamW8bit(parameters, lr=1e-3, weight_decay=0.01)

    print("float32", run(lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01, fused=True)), flush=True)
    for name, make in (("bitsandbytes", bitsandbytes_8bit), ("torchao", torchao_8bit)):
        try:
            print(name, run(make), flush=True)
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
