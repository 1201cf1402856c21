#!/usr/bin/env python3
"""Prints the include graph of cinch/ by layer, and fails where it breaks the rules of docs/architecture.md.

  * Layer A includes nothing of layer B, and no LibTorch header. cli/ includes no LibTorch header either.
  * A folder of layer A includes only folders before it; one of layer B only layer A and the siblings listed here.
  * The public headers of layer A show no third-party type; layer B includes no fmt (LibTorch carries another).
  * internal/ headers stay in their folder. cinch/ includes nothing of cli/, tests/, benchmarks/.
  * No source past 500 lines.
"""
import pathlib
import re
import sys

LAYER_A = ["core", "device", "trace", "snapshot", "allocator", "placement", "inspect", "plan", "job", "report", "tune"]
LAYER_B = {  # Folder → siblings it may use.
    "record": [],
    "dryrun": ["record"],
    "techniques": ["record"],
    "optim": ["techniques", "record"],
    "data": [],
    "models": ["techniques", "record", "data"],
    "interchange": [],
    "distributed": ["techniques", "record"],
    "compress": ["techniques", "record"],
    "train": ["record", "dryrun", "techniques", "optim", "data", "models", "interchange", "distributed", "compress"],
}
CLI_FACADE = ("cinch/train/train.h",)  # The one header of layer B that cli/ sees: it shows no LibTorch header.
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
THIRD_PARTY = re.compile(r"^(nlohmann|toml\+\+|fmt|CLI|gtest|gmock|benchmark)/")
MAX_LINES = 500
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)

root = pathlib.Path(__file__).resolve().parent.parent


def allowed(folder):
    if folder in LAYER_A:
        return set(LAYER_A[: LAYER_A.index(folder)])
    return set(LAYER_A) | set(LAYER_B[folder])


def problems_of(path, folder, include, is_test):
    """Sentences about one include of one file of cinch/FOLDER."""
    public_header = path.suffix == ".h" and path.parent.name != "internal"
    if TORCH.match(include) and (folder in LAYER_A or folder == "cli"):
        yield "includes LibTorch"
    if THIRD_PARTY.match(include) and public_header and folder in LAYER_A:
        yield "is a public header and shows a third-party one"
    if include.startswith("fmt/") and folder in LAYER_B:
        yield "is on LibTorch, whose include folder holds another fmt"
    if include.startswith(("tests/", "benchmarks/", "cinch/cli/")) and folder != "cli":
        yield "includes a leaf"
    if not include.startswith("cinch/"):
        return
    parts = include.split("/")
    target = parts[1]
    if not (root / include).exists():
        yield "includes a file that does not exist"
    if "internal" in parts and target != folder:
        yield "includes another folder's internals"
    if folder == "cli":
        if target in LAYER_B and include not in CLI_FACADE and not is_test:
            yield f"may see only {CLI_FACADE[0]} of layer B"
    elif target != folder and target not in allowed(folder):
        yield f"goes against the direction: {folder} may use {', '.join(sorted(allowed(folder))) or 'nothing'}"


def main():
    graph, failures, longest = {}, [], []
    files = [p for p in sorted(root.glob("cinch/**/*")) if p.suffix in (".h", ".cc")]
    for path in files:
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[1]
        if folder not in LAYER_A and folder not in LAYER_B and folder != "cli":
            failures.append(f"{name}: folder {folder} is in no layer of scripts/check_includes.py")
            continue
        is_test = path.stem.endswith("_test")
        for include in INCLUDE.findall(path.read_text()):
            failures += [f"{name}: #include {include}: {p}" for p in problems_of(path, folder, include, is_test)]
            parts = include.split("/")
            if parts[0] == "cinch" and len(parts) > 2 and parts[1] != folder and not is_test:
                graph.setdefault(folder, set()).add(parts[1])
    for path in files + [p for d in ("tests", "benchmarks", "examples") for p in sorted((root / d).glob("**/*.cc"))]:
        lines = path.read_text().count("\n")
        longest.append((lines, path.relative_to(root).as_posix()))
        if lines > MAX_LINES:
            failures.append(f"{longest[-1][1]}: {lines} lines, {MAX_LINES} at most: is it one thing?")

    present = {p.relative_to(root).parts[1] for p in files}
    for title, folders in (("A, plain C++", LAYER_A), ("B, on LibTorch", LAYER_B), ("C, leaves", ["cli"])):
        print(title)
        for folder in folders:
            if folder in present:
                print(f"  {folder:12} → {', '.join(sorted(graph.get(folder, []))) or '-'}")
    if longest:
        print("longest file: %d lines, %s" % max(longest))
    for failure in failures:
        print("error:", failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
