#!/usr/bin/env python3
"""PyTorch's own estimate of the step that `dry_run` predicts: FakeTensorMode with MemTracker, timed.

    dry_run_peers.py [--layers 32]

The same GPT (hidden size 4096, 32 heads, vocabulary 50,257, tied, no dropout), batch 8 of 2048 tokens, fused AdamW, on
fake CPU tensors. Two steps run before the one that counts, so that the caches of FakeTensorMode are warm. The last line is
"step SECONDS".
"""
import argparse
import time

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional

HIDDEN, HEADS, CONTEXT, VOCABULARY, BATCH = 4096, 32, 2048, 50257, 8


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
    def __init__(self, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(CONTEXT, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.norm(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    layers = parser.parse_args().layers
    with FakeTensorMode():
        begin = time.perf_counter()
        model = Gpt(layers)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        print(f"model {time.perf_counter() - begin:.3f}", flush=True)

        def step():
            tokens = torch.zeros(BATCH, CONTEXT, dtype=torch.long)
            model(tokens, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()

        for name in ("without MemTracker, first", "without MemTracker, second"):
            begin = time.perf_counter()
            step()
            print(f"{name} {time.perf_counter() - begin:.3f}", flush=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            begin = time.perf_counter()
            step()
            seconds = time.perf_counter() - begin
        peak = sum(v for k, v in tracker.get_tracker_snapshot("peak")[torch.device("cpu")].items() if k == "Total")
        print(f"peak {peak} B")
    print(f"step {seconds:.3f}")


if __name__ == "__main__":
    main()
