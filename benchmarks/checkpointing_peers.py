#!/usr/bin/env python3
"""The step of `checkpointing` in PyTorch: plain, and with torch.utils.checkpoint around each block.

    checkpointing_peers.py [--rounds 5]

The same GPT (6 x 384, 6 heads, context 256, vocabulary 8,000, tied, no dropout), batch 8, forward and backward. Times
alternate; peaks are bytes of CPU tensors above those at rest, from the profiler's memory events of one more step each. The
last line is "checkpoint TIME PEAK", as shares of the plain step's.
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LAYERS, HIDDEN, HEADS, CONTEXT, VOCABULARY, BATCH = 6, 384, 6, 256, 8000, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.attention_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc, self.proj = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.view(batch, length, HEADS, hidden // HEADS).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_proj(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.proj(functional.gelu(self.fc(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(CONTEXT, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens, targets, checkpoints):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if checkpoints else layer(x)
        logits = functional.linear(self.norm(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def peak_of(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    model = Gpt()
    tokens, targets = (torch.randint(VOCABULARY, (BATCH, CONTEXT)) for _ in range(2))

    def step(checkpoints):
        model(tokens, targets, checkpoints).backward()
        model.zero_grad(set_to_none=True)

    seconds = {False: [], True: []}
    for round in range(rounds + 1):
        for checkpoints in (False, True):
            begin = time.perf_counter()
            step(checkpoints)
            if round > 0:
                seconds[checkpoints].append(time.perf_counter() - begin)
    peaks = {checkpoints: peak_of(lambda: step(checkpoints)) for checkpoints in (False, True)}
    for checkpoints in (False, True):
        name = "checkpointed" if checkpoints else "plain"
        print(f"{name} {1e3 * statistics.median(seconds[checkpoints]):.1f} ms, peak {peaks[checkpoints] / 2**20:.1f} MiB")
    time_share = statistics.median(b / a for a, b in zip(seconds[False], seconds[True]))
    print(f"checkpoint {time_share:.4f} {peaks[True] / peaks[False]:.4f}")


if __name__ == "__main__":
    main()
