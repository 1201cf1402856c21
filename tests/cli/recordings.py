#!/usr/bin/env python3
"""`cinch inspect`, `replay` and `diff` from outside: recordings, folders, error texts; every exit code.

    recordings.py CINCH [unittest arguments]
"""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

CINCH = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "cinch"
RECORDED = pathlib.Path(__file__).resolve().parent.parent / "data/snapshots"
STEP = str(RECORDED / "gpt2.7b-b4-s128-fp32-step.pickle.zst")

AT_23_GIB = """\
Would run out in backward, event 12,630 of 19,342, asking 100 MiB.
NO ALLOCATOR SETTING HELPS: tensors alone need 24,701,718,536 B, 5.4 MiB over 23 GiB.
With the recorded settings fragmentation ends it earlier, at event 12,181.

Live at that moment                bytes    GiB   tensors
  parameters              13,627,238,400  12.69       291  (before the recording)
  gradients                9,015,736,320   8.40       192  of 291; 4.29 GiB still to come
  activations, temporary   1,990,320,136   1.85       313
  cuBLAS workspaces           67,108,864   0.06         2  (main, autograd thread)
  buffers, input               1,314,816   0.00        33
  total                   24,701,718,536  23.01       831  the request included
"""
IF_IT_HAD_CONTINUED = """\
If it had continued
  peak 54,802,667,524 B (51.04 GiB), first optimizer step: AdamW state is 25.38 GiB of it
  reserved at end 61,111,009,280 B =
    requested 54,597,857,284 + rounding 508 + unsplittable 275,972,096
    + stranded 174,312,960 + 283 whole cached segments 6,062,866,432
  The cached segments are no need: PyTorch returns them before it fails.
To fit 23 GiB: AdamW itself must go (offload or 8-bit state, parameters in bf16, or LoRA).
  Now short by 28.04 GiB at the peak.
  offloaded state leaves 25.76 GiB: 2.76 GiB over
  8-bit state leaves 32.06 GiB: 9.06 GiB over
  bf16 parameters, gradients and state leaves 25.66 GiB: 2.66 GiB over
  LoRA leaves 18.18 GiB: fits
  offloaded state with bf16 parameters and gradients leaves 13.07 GiB: fits
  8-bit state with bf16 parameters and gradients leaves 19.37 GiB: fits
"""
ERROR = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 79.11 GiB"
    " of which 12.73 GiB is free. Of the allocated memory 56.50 GiB is allocated by PyTorch, and 9.35 GiB is reserved by"
    " PyTorch but unallocated."
)


class Verb(unittest.TestCase):
    verb = None

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def cinch(self, *arguments, code=0, stdin=b""):
        """Standard output; standard error if the code is that of bad input."""
        command = [CINCH, self.verb, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stderr.decode() + done.stdout.decode())
        self.assertEqual(bool(done.stderr), code == 2)
        return done.stderr.decode() if code == 2 else done.stdout.decode()

    def document(self, *arguments, **options):
        return json.loads(self.cinch(*arguments, "--json", **options))


class Inspect(Verb):
    verb = "inspect"

    def test_a_smaller_card(self):
        text = self.cinch(STEP, "--capacity", "23GiB", code=3)
        self.assertTrue(text.startswith(AT_23_GIB), text)
        self.assertIn(IF_IT_HAD_CONTINUED, text)
        oom = self.document(STEP, "--capacity", "23GiB", code=3)["oom"]
        self.assertEqual(oom["asked_bytes"], 104_857_600)
        self.assertEqual(oom["short_by_bytes"], 5_656_584)
        self.assertIs(oom["any_setting_helps"], False)
        self.assertNotIn("would have made room", text)
        self.assertNotIn("Reserved at the end", text)  # Told with the verdict.
        self.assertIn("* Fits 60 GiB.\n", self.cinch(STEP, "--capacity", "60GiB"))
        self.assertRegex(self.cinch(STEP, "--capacity", "55GiB"),
                         r"\* Fits 55 GiB; PyTorch must return cached memory (once|\d+ times) \(slow\)\.")

    def test_without_history(self):
        recording = self.recording()
        recording["device_traces"] = [[]]
        (self.folder / "state.pickle").write_bytes(pickle.dumps(recording))
        text = self.cinch(str(self.folder / "state.pickle"))
        self.assertTrue(text.startswith("* No history in this snapshot: only the state at the dump is known"), text)
        self.assertNotIn("peak is", text)
        self.assertIn("At the dump ", text)
        self.assertIn("has no history", self.cinch(str(self.folder / "state.pickle"), "--capacity", "1GiB", code=2))

    def test_without_stacks(self):
        recording, nothing = self.recording(), [{"filename": "??", "name": "", "line": 0}]
        recording["external_annotations"] = []
        for event in recording["device_traces"][0]:
            event["frames"] = nothing
        # What the state's own stacks tell is known.
        self.assertFalse({"activation", "temporary"} & self.categories(recording))
        for segment in recording["segments"]:
            segment["frames"] = nothing
            for block in segment["blocks"]:
                block["frames"] = nothing
        self.assertEqual(self.categories(recording), {"unknown"})

    def categories(self, recording):
        """That occur at the peak."""
        (self.folder / "bare.pickle").write_bytes(pickle.dumps(recording))
        document = self.document(str(self.folder / "bare.pickle"))
        return {name for name, held in document["categories_at_peak"].items() if held > 0}

    @staticmethod
    def recording():
        with open(RECORDED / "step-end.pickle", "rb") as file:
            return pickle.load(file)

    def test_leaks(self):
        for name, bytes_a_step in (("graph", (6 << 20) + 4), ("list", 40 << 10), ("cache", 256 << 10), ("hook", 1 << 20)):
            with self.subTest(name):
                leaks = self.document(str(RECORDED / f"leak_{name}.json.gz"))["leaks"]
                self.assertEqual(sum(leak["bytes_per_step"] for leak in leaks), bytes_a_step)
        self.assertEqual(self.document(str(RECORDED / "leak_none.json.gz"))["leaks"], [])
        text = self.cinch(str(RECORDED / "leak_graph.json.gz"), "--capacity", "60MiB", code=3)
        self.assertIn("To fit 60 MiB: the leak must go (linear, user/model.py:30 forward", text)
        self.assertIn("  the leak mended leaves 58.0 MiB: fits\n", text)
        self.assertRegex(text, r"  leaked +75,497,520 +72\.0 +84\n")

    def test_json_sums(self):
        document = self.document(STEP)
        self.assertEqual(document["schema"], "cinch.inspect/1")
        self.assertEqual(sum(document["categories_at_peak"].values()), document["peak"]["requested_bytes"])
        for parts in (document["fragmentation"], document["fragmentation"]["at_peak"]):
            self.assertEqual(parts["requested_bytes"] + parts["wasted_bytes"], parts["reserved_bytes"])
        self.assertIsNone(document["oom"])
        self.assertEqual(document["leaks"], [])
        self.assertEqual(set(document["findings"][0]), {"text", "bytes", "action"})

    def test_a_window_written_and_read_again(self):
        out = self.folder / "window.pickle"
        self.assertIn("Wrote", self.cinch(STEP, "--events", "16000:17000", "--out", str(out)))
        with open(out, "rb") as file:
            self.assertEqual(len(pickle.load(file)["device_traces"][0]), 1000)
        first, again = self.document(STEP, "--events", "16000:17000"), self.document(str(out))
        self.assertEqual(first["first_event"], 16000)
        for key in ("requested_bytes", "reserved_bytes"):
            self.assertEqual(first["peak"][key], again["peak"][key])

    def test_html(self):
        page = self.folder / "page.html"
        self.cinch(STEP, "--html", str(page))
        self.assertIn("In the first optimizer step".lower(), page.read_text().lower())

    def test_a_folder(self):
        with open(RECORDED / "step-end.pickle", "rb") as file:
            recording = file.read()
        for rank in range(3):
            (self.folder / f"rank{rank}.pickle").write_bytes(recording)
        (self.folder / "rank10.pickle.zst").write_bytes(pathlib.Path(STEP).read_bytes())
        document = self.document(str(self.folder))
        self.assertEqual([rank["source"] for rank in document["ranks"]],
                         ["rank0.pickle", "rank1.pickle", "rank2.pickle", "rank10.pickle.zst"])
        self.assertEqual(document["outlier"], 3)
        self.assertIn("rank10.pickle.zst is the outlier", self.cinch(str(self.folder)))

    def test_standard_input(self):
        self.assertIn("NO ALLOCATOR SETTING HELPS: even with no fragmentation it is 0.70 GiB short",
                      self.cinch("-", stdin=ERROR.encode()))
        for name, text in (("error.txt", ERROR), ("log", "[2026-12-01 12:00:00] step 3\n" + ERROR)):
            (self.folder / name).write_text(text)
            self.assertIn("NO ALLOCATOR SETTING HELPS", self.cinch(str(self.folder / name)))
        (self.folder / "log").write_text("all is well\n")
        self.assertIn("log", self.cinch(str(self.folder / "log"), code=2))
        with open(STEP, "rb") as file:
            self.assertEqual(self.document("-", stdin=file.read())["events"], 19342)
        self.assertIn("no out-of-memory error", self.cinch("-", stdin=b"all is well", code=2))

    def test_a_pipe(self):
        for kind, content in (("19,342", pathlib.Path(STEP).read_bytes()), ("NO ALLOCATOR", ERROR.encode())):
            pipe = self.folder / f"pipe{len(content)}"
            os.mkfifo(pipe)
            writer = threading.Thread(target=pipe.write_bytes, args=(content,))
            writer.start()
            self.assertIn(kind, self.cinch(str(pipe)))
            writer.join()

    def test_bad_input(self):
        (self.folder / "damaged.pickle").write_bytes(b"\x80\x04garbage")
        (self.folder / "empty").mkdir()
        for arguments in (
            ["missing.pickle"],
            [str(self.folder / "damaged.pickle")],
            [str(self.folder / "empty")],
            [str(self.folder), "--capacity", "3GiB"],
            [STEP, "--capacity", "0"],
            [STEP, "--capacity", "plenty"],
            [STEP, "--events", "5"],
            [STEP, "--events", "9:5"],
            [STEP, "--events", "a:b"],
            [STEP, "--out", "name.txt"],
            [],
        ):
            with self.subTest(arguments):
                self.assertIn("cinch: ", self.cinch(*arguments, code=2))


class Replay(Verb):
    verb = "replay"

    def test_the_model_agrees_with_the_recordings(self):
        for name, events in (("fp32-step", 19342), ("fp32-forward", 4657), ("bf16-autocast-forward", 5992)):
            with self.subTest(name):
                file = str(RECORDED / f"gpt2.7b-b4-s128-{name}.pickle.zst")
                self.assertIn(f"Model and recording agree: {events:,} events, 0 mismatches", self.cinch(file))
                self.assertIs(self.document(file)["runs"][0]["matches_recording"], True)

    def test_the_model_agrees_with_the_leaking_programs(self):
        for name, events in (("none", 734), ("list", 746), ("graph", 599), ("cache", 768), ("hook", 752)):
            with self.subTest(name):
                text = self.cinch(str(RECORDED / f"leak_{name}.json.gz"))
                self.assertIn(f"Model and recording agree: {events} events, 0 mismatches", text)

    def test_other_settings(self):
        document = self.document(STEP, "--alloc-conf", "expandable_segments:True", "--alloc-conf", "max_split_size_mb:200")
        self.assertEqual(document["schema"], "cinch.replay/1")
        now, expandable, split = document["runs"]
        self.assertEqual(now["peak_reserved_bytes"], 61_111_009_280)
        self.assertEqual(expandable["alloc_conf"], "expandable_segments:True")
        self.assertLess(expandable["peak_reserved_bytes"], now["peak_reserved_bytes"])
        self.assertEqual(split["alloc_conf"], "max_split_size_mb:200")
        self.assertIs(now["oom"], False)

    def test_the_grid_recommends(self):
        self.assertEqual(self.document(STEP, "--grid")["recommended"], "expandable_segments:True")

    def test_a_smaller_card(self):
        self.assertIs(self.document(STEP, "--capacity", "23GiB", code=3)["runs"][0]["oom"], True)
        self.cinch(STEP, "--capacity", "60GiB")

    def test_bad_input(self):
        for arguments in ([], ["missing.pickle"], [STEP, "--alloc-conf", "max_split_size:3"], [STEP, "--capacity", "-1"],
                          [STEP, "--alloc-conf", "max_split_size_mb:5"]):
            with self.subTest(arguments):
                self.assertIn("cinch: ", self.cinch(*arguments, code=2))


class Diff(Verb):
    verb = "diff"
    forward = str(RECORDED / "gpt2.7b-b4-s128-fp32-forward.pickle.zst")

    def test_what_grew(self):
        self.assertTrue(self.cinch(self.forward, STEP).startswith("GREW by 33"))
        self.assertTrue(self.cinch(STEP, STEP).startswith("EQUAL at the peak"))
        document = self.document(self.forward, STEP)
        self.assertEqual(document["schema"], "cinch.diff/1")

    def test_the_threshold(self):
        self.cinch(self.forward, STEP, "--threshold", "100MiB", code=1)
        self.cinch(self.forward, STEP, "--threshold", "50GiB")
        self.cinch(self.forward, STEP, "--threshold", "10%", code=1)
        self.cinch(STEP, self.forward, "--threshold", "0")

    def test_bad_input(self):
        for arguments in ([], [STEP], [STEP, "missing.pickle"], [STEP, STEP, "--threshold", "many"],
                          [STEP, STEP, "--threshold", "-3%"]):
            with self.subTest(arguments):
                self.assertIn("cinch: ", self.cinch(*arguments, code=2))


if __name__ == "__main__":
    unittest.main()
