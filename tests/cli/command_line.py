#!/usr/bin/env python3
"""The cinch program from outside: every exit code, every bad input, the shape of its JSON, its manners in a terminal.

    command_line.py CINCH [unittest arguments]
"""
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

CINCH = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "cinch"

MLP = """
[model]
kind = "mlp"
sizes = [64, 48, 48, 10]
[data]
kind = "synthetic"
[train]
batch_size = 16
steps = 4
optimizer = "adamw"
learning_rate = 1e-3
seed = 1
threads = 1
"""

GPT = """
[model]
kind = "gpt"
layers = 3
hidden_size = 32
heads = 2
context_length = 32
vocab_size = 256
[data]
kind = "text"
path = ["corpus.txt"]
held_out = 0.1
[train]
batch_size = 8
steps = 6
optimizer = "adamw"
learning_rate = 1e-3
evaluate_every = 3
evaluation_batches = 1
save_every = 2
run_dir = "run"
seed = 1
threads = 1
"""

PEAK_KEYS = {"requested_bytes", "allocated_bytes", "reserved_bytes", "device_bytes", "step", "phase", "module", "op"}
CATEGORIES = {"parameter", "gradient", "activation", "optimizer_state", "input", "buffer", "temporary", "unknown"}
HEAD = {"schema", "cinch", "libtorch", "device", "threads"}


class Case(unittest.TestCase):
    """In a folder of its own, with a job for each kind of model and a corpus."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.write("mlp.toml", MLP)
        self.write("gpt.toml", GPT)
        self.write("corpus.txt", "the quick brown fox jumps over the lazy dog. " * 200)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def cinch(self, *arguments, environment=None, **options):
        settings = dict(os.environ, TERM="dumb")
        settings.update(environment or {})
        return subprocess.run([CINCH, *map(str, arguments)], cwd=self.folder, env=settings, capture_output=True,
                              text=True, timeout=300, **options)

    def expect(self, code, *arguments, **options):
        done = self.cinch(*arguments, **options)
        self.assertEqual(done.returncode, code, f"cinch {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}")
        return done

    def refused(self, *arguments, says, code=2, **options):
        """One sentence on standard error, nothing on standard output."""
        done = self.expect(code, *arguments, **options)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("cinch: "), done.stderr)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, done.stderr)
        self.assertNotIn("terminate", done.stderr)
        return done

    def document(self, code, *arguments):
        done = self.expect(code, *arguments, "--json")
        document = json.loads(done.stdout)  # One document and nothing else.
        self.assertLessEqual(HEAD, document.keys())
        return document


class Usage(Case):
    def test_help_and_version_go_to_standard_output(self):
        self.assertIn("estimate", self.expect(0, "--help").stdout)
        for verb in ("estimate", "plan", "train"):
            self.assertIn("--budget", self.expect(0, verb, "--help").stdout)
            self.assertRegex(self.expect(0, verb, "--version").stdout, r"^cinch \d+\.\d+\.\d+, LibTorch \d+\.\d+\.\d+\n$")
        self.assertRegex(self.expect(0, "--version").stdout, r"^cinch \d+\.\d+\.\d+, LibTorch \d+\.\d+\.\d+\n$")

    def test_no_verb_and_an_unknown_one(self):
        self.refused(says="no verb given")
        self.refused("estimat", "mlp.toml", says=["unknown verb estimat", "Did you mean estimate?"])

    def test_unknown_flag_names_the_nearest(self):
        self.refused("plan", "mlp.toml", "--bugdet", "1GiB", says=["--bugdet", "Did you mean --budget?"])

    def test_missing_job_and_bad_number(self):
        self.refused("estimate", says="job")
        self.refused("estimate", "mlp.toml", "--batch", "many", says="many")

    def test_unknown_devices(self):
        self.refused("estimate", "mlp.toml", "--device", "cuda:0", says=["unknown device", "cinch devices"])
        self.refused("estimate", "mlp.toml", "--device", "cpi", says="Did you mean cpu?")
        self.refused("estimate", "mlp.toml", "--device", "rtx4900", says="Did you mean rtx4090?")
        self.refused("estimate", "mlp.toml", "--device", "a100", says=["a100-40gb", "a100-80gb"])
        self.refused("estimate", "mlp.toml", "--device", "none.toml", says="none.toml")

    def test_a_device_file_with_a_fault(self):
        text = self.expect(0, "devices", "t4").stdout
        self.write("bad.toml", text.replace("memory =", "memry ="))
        self.refused("estimate", "mlp.toml", "--device", "bad.toml", says=["bad.toml:3: ", "Did you mean memory?"])
        self.write("bad.toml", text + "float64 = nan\n")
        self.refused("devices", "bad.toml", says=["bad.toml:", "float64"])
        self.write("bad.toml", "name = \"x")
        self.refused("devices", "bad.toml", says="bad.toml:1: ")

    def test_a_folder_without_a_config(self):
        (self.folder / "Llama").mkdir()
        self.refused("estimate", "Llama", says=["Llama", "no config.json"])

    def test_no_card_trains(self):
        self.refused("train", "mlp.toml", "--device", "t4", says=["t4-16gb: there is no such card here", "cinch plan"])

    def test_absurd_batches(self):
        self.refused("estimate", "mlp.toml", "--device", "t4", "--batch", 10 ** 12, says="batch_size")
        done = self.cinch("estimate", "mlp.toml", "--device", "t4", "--batch", 10 ** 9)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertTrue(done.stdout.startswith("DOES NOT FIT: needs "), done.stdout)

    def test_budgets_without_sense(self):
        for verb in ("estimate", "plan", "train"):
            for budget in ("0", "-1", "12XB"):
                self.refused(verb, "mlp.toml", "--budget", budget, says=["--budget", budget])


class BadJob(Case):
    def bad(self, change, says, job=MLP):
        old, new = change
        self.assertIn(old, job)
        self.write("bad.toml", job.replace(old, new))
        for verb in ("estimate", "train"):
            self.refused(verb, "bad.toml", says=says)

    def test_no_such_file(self):
        self.refused("estimate", "none.toml", says="none.toml")

    def test_malformed_toml_with_its_line(self):
        self.write("bad.toml", "[model]\nkind = \"mlp\"\nsizes = [1, 2\n[data]\n")
        self.assertRegex(self.refused("estimate", "bad.toml", says="bad.toml").stderr, r"bad\.toml:[345]: ")

    def test_unknown_key_with_the_nearest(self):
        self.bad(("batch_size", "batchsize"), says=["bad.toml:8: ", "batchsize", "batch_size"])

    def test_wrong_type(self):
        self.bad(("batch_size = 16", "batch_size = \"16\""), says=["bad.toml:8: ", "batch_size"])

    def test_batch_of_nothing(self):
        self.bad(("batch_size = 16", "batch_size = 0"), says=["bad.toml:8: ", "batch_size"])

    def test_heads_that_do_not_divide(self):
        self.bad(("heads = 2", "heads = 3"), says=["bad.toml:", "heads"], job=GPT)

    def test_sizes_past_all_memory(self):
        self.write("bad.toml", MLP.replace("[64, 48, 48, 10]", "[4611686018427387904, 4611686018427387904, 10]"))
        done = self.refused("estimate", "bad.toml", says="")
        self.assertNotIn("Exception raised", done.stderr)  # No foreign stack trace.

    def test_context_longer_than_the_corpus(self):
        self.write("corpus.txt", "short")
        self.refused("train", "gpt.toml", says="corpus.txt")

    def test_corpus_that_is_not_there(self):
        self.refused("train", "gpt.toml", "--set", "data.path=[\"nowhere.txt\"]", says="nowhere.txt")

    def test_corpus_that_cannot_be_read(self):
        (self.folder / "loop.txt").symlink_to("loop.txt")  # Not even for root, unlike a file without permissions.
        self.refused("train", "gpt.toml", "--set", "data.path=[\"loop.txt\"]", says="loop.txt")
        if os.geteuid() != 0:
            (self.folder / "corpus.txt").chmod(0)
            self.refused("train", "gpt.toml", says="corpus.txt")

    def test_override_of_an_unknown_key(self):
        self.refused("estimate", "mlp.toml", "--set", "train.stepz=3", says=["train.stepz", "steps"])
        self.refused("estimate", "mlp.toml", "--context", "8", says="context_length")

    def test_with_json_an_error_leaves_standard_output_empty(self):
        self.refused("estimate", "none.toml", "--json", says="none.toml")


class Estimate(Case):
    def test_fits(self):
        done = self.expect(0, "estimate", "mlp.toml", "--budget", "1GiB")
        self.assertTrue(done.stdout.startswith("FITS: needs "), done.stdout)
        self.assertIn("Next: cinch train mlp.toml --budget 1GiB", done.stdout)

    def test_does_not_fit(self):
        done = self.expect(3, "estimate", "mlp.toml", "--budget", "10kB")
        self.assertTrue(done.stdout.startswith("DOES NOT FIT: needs "), done.stdout)
        self.assertIn("Next: cinch plan mlp.toml --budget 10000", done.stdout)

    def test_without_a_budget_says_which_it_takes(self):
        self.assertIn("less 2 %", self.expect(0, "estimate", "mlp.toml").stdout)
        document = self.document(0, "estimate", "mlp.toml")
        self.assertIs(document["budget_given"], False)
        self.assertAlmostEqual(document["budget_bytes"] / document["capacity_bytes"], 0.98, places=3)

    def test_document(self):
        document = self.document(0, "estimate", "mlp.toml", "--budget", "1GiB", "-q")
        self.assertEqual(document["schema"], "cinch.estimate/1")
        self.assertEqual(document["budget_bytes"], 1 << 30)
        self.assertEqual(document["parameters"], 64 * 48 + 48 + 48 * 48 + 48 + 48 * 10 + 10)
        self.assertEqual(document["threads"], 1)
        self.assertLessEqual(PEAK_KEYS, document["peak"].keys())
        self.assertEqual(document["categories_at_peak"].keys(), CATEGORIES)
        self.assertEqual(sum(document["categories_at_peak"].values()), document["peak"]["requested_bytes"])
        self.assertEqual(document["categories_at_peak"]["parameter"], 4 * document["parameters"])
        self.assertEqual(document["tensors_at_peak"][0].keys(), {"bytes", "category", "name", "module", "op", "sizes", "dtype"})
        self.assertEqual([step["step"] for step in document["steps"]][:3], [0, 1, 2])
        self.assertEqual(max(step["peak_requested_bytes"] for step in document["steps"]), document["peak"]["requested_bytes"])
        self.assertTrue(document["suggestions"])
        for suggestion in document["suggestions"]:
            self.assertLessEqual({"change", "peak_bytes", "step_seconds", "equivalence"}, suggestion.keys())

    def test_larger_batches_need_more(self):
        small, large = (self.document(0, "estimate", "mlp.toml", "--batch", batch) for batch in (16, 64))
        self.assertGreater(large["peak"]["requested_bytes"], small["peak"]["requested_bytes"])

    def test_html(self):
        self.assertIn("Wrote report.html", self.expect(0, "estimate", "mlp.toml", "--html", "report.html").stdout)
        page = (self.folder / "report.html").read_text()
        self.assertIn("<svg", page)
        self.assertIn("default-src 'none'", page)  # The browser lets it ask for nothing.
        for address in re.findall(r"\bhttps?:[^\"']*", page):  # d3 names the namespaces of SVG and XML.
            self.assertTrue(address.startswith("http://www.w3.org/"), address)
        self.refused("estimate", "mlp.toml", "--html", "nowhere/report.html", says="nowhere/report.html", code=1)

    def test_a_full_device_behind_standard_output_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([CINCH, "estimate", "mlp.toml", "-q"], cwd=self.folder, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


class Plan(Case):
    def budget_between(self):
        """Half-way from the least possible peak to that of plain training."""
        plain = self.document(0, "estimate", "gpt.toml")["peak"]["requested_bytes"]
        floor = self.document(3, "plan", "gpt.toml", "--budget", "1kB")["infeasible"]["floor_bytes"]
        self.assertLess(floor, plain)
        return (floor + plain) // 2

    def test_fits_and_is_written_only_where_asked(self):
        budget = self.budget_between()
        done = self.expect(0, "plan", "gpt.toml", "--budget", budget)
        self.assertTrue(done.stdout.startswith("FITS: needs "), done.stdout)
        self.assertFalse((self.folder / "plan.toml").exists())
        done = self.expect(0, "plan", "gpt.toml", "--budget", budget, "--out", "plan.toml")
        self.assertIn("Wrote plan.toml", done.stdout)
        self.assertIn("version", (self.folder / "plan.toml").read_text())

    def test_does_not_fit(self):
        done = self.expect(3, "plan", "gpt.toml", "--budget", "10kB", "--out", "plan.toml")
        self.assertTrue(done.stdout.startswith("DOES NOT FIT: "), done.stdout)
        self.assertFalse((self.folder / "plan.toml").exists())

    def test_document(self):
        budget = self.budget_between()
        document = self.document(0, "plan", "gpt.toml", "--budget", budget)
        self.assertEqual(document["schema"], "cinch.plan/1")
        self.assertEqual(document["budget_bytes"], budget)
        self.assertIs(document["fits"], True)
        self.assertLessEqual(PEAK_KEYS, document["predicted"]["peak"].keys())
        self.assertLessEqual(document["predicted"]["peak"]["requested_bytes"], budget)
        self.assertGreater(document["predicted"]["step_seconds"], 0)
        self.assertIsNone(document["infeasible"])
        self.assertLessEqual({"plan", "gap", "elapsed_seconds"}, document.keys())
        for point in document["frontier"]:
            self.assertLessEqual({"plan", "peak_bytes", "step_seconds"}, point.keys())
        infeasible = self.document(3, "plan", "gpt.toml", "--budget", "10kB")
        self.assertEqual(infeasible.keys(), document.keys())
        self.assertIs(infeasible["fits"], False)
        self.assertTrue(infeasible["infeasible"]["tensors"])


class Train(Case):
    def test_trains_under_a_budget_and_measures_what_was_predicted(self):
        budget = Plan.budget_between(self)
        document = self.document(0, "train", "gpt.toml", "--budget", budget, "--html", "train.html")
        self.assertEqual(document["schema"], "cinch.train/1")
        self.assertLessEqual({"plan", "budget_bytes", "predicted", "measured", "steps", "evaluations", "step_seconds",
                              "alloc_retries", "samples_per_second", "elapsed_seconds", "run_dir"}, document.keys())
        self.assertEqual([step["step"] for step in document["steps"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(document["predicted"]["peak"]["requested_bytes"], document["measured"]["peak"]["requested_bytes"])
        self.assertLessEqual(document["measured"]["peak"]["requested_bytes"], budget)
        self.assertGreaterEqual(document["measured"]["reserved_bytes"], document["measured"]["peak"]["requested_bytes"])
        self.assertGreater(document["measured"]["resident_bytes"], 0)
        self.assertEqual(document["step_seconds"].keys(), {"p50", "p99", "max"})
        self.assertIn("<svg", (self.folder / "train.html").read_text())
        for name in ("job.toml", "plan.toml", "log.jsonl", "report.html", "checkpoints"):
            self.assertTrue((self.folder / "run" / name).exists(), name)

    def test_text_begins_with_the_verdict(self):
        done = self.expect(0, "train", "mlp.toml", "-q")
        self.assertTrue(done.stdout.startswith("TRAINED 4 steps: peak "), done.stdout)
        self.assertIn("predicted = measured, to the byte", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_follows_a_plan(self):
        self.write("plan.toml", "version = 1\nmicro_batch_size = 4\n")
        document = self.document(0, "train", "mlp.toml", "--plan", "plan.toml")
        self.assertEqual(document["plan"]["micro_batch_size"], 4)

    def test_refuses_a_plan_for_another_model(self):
        self.write("plan.toml", "version = 1\n[activations]\n\"blocks.77\" = \"checkpoint\"\n")
        self.refused("train", "gpt.toml", "--plan", "plan.toml", says=["plan.toml", "blocks.77"])
        self.refused("train", "gpt.toml", "--plan", "none.toml", says="none.toml")

    def test_a_budget_that_nothing_fits_and_a_plan_that_does_not_fit_it(self):
        self.assertEqual(self.document(3, "train", "mlp.toml", "--budget", "1kB")["schema"], "cinch.plan/1")
        self.write("plan.toml", "version = 1\nmicro_batch_size = 4\n")
        document = self.document(3, "train", "mlp.toml", "--budget", "1kB", "--plan", "plan.toml")
        self.assertEqual((document["schema"], document["fits"]), ("cinch.estimate/1", False))

    def test_resume_needs_something_to_resume(self):
        self.refused("train", "mlp.toml", "--resume", says="run_dir")
        self.refused("train", "gpt.toml", "--resume", says="checkpoint")

    def test_to_resume_what_is_done_does_nothing(self):
        self.expect(0, "train", "gpt.toml", "-q")
        page = (self.folder / "run" / "report.html").read_bytes()
        done = self.expect(0, "train", "run/job.toml", "--resume", "--set", "train.steps=5", "-q", "--html", "done.html")
        self.assertTrue(done.stdout.startswith("ALREADY DONE: the training is at step 6, train.steps is 5\n"), done.stdout)
        self.assertIn("Next: cinch train run/job.toml --resume --set train.steps=12\n", done.stdout)
        self.assertNotIn("predicted", done.stdout)
        self.assertIn("ALREADY DONE", (self.folder / "done.html").read_text())
        document = self.document(0, "train", "run/job.toml", "--resume")
        self.assertEqual((document["already_done"], document["resumed_at"], document["steps"]), (True, 6, []))
        self.assertIsNone(document["measured"]["peak"])
        self.assertEqual((self.folder / "run" / "report.html").read_bytes(), page)
        document = self.document(0, "train", "run/job.toml", "--resume", "--set", "train.steps=7")
        self.assertEqual((document["already_done"], document["resumed_at"], document["steps"][-1]["step"]), (False, 6, 7))

    def test_a_second_training_does_not_overwrite_the_first(self):
        self.expect(0, "train", "gpt.toml", "-q")
        before = (self.folder / "run" / "plan.toml").read_bytes()
        self.refused("train", "gpt.toml", "--set", "train.steps=3", "-q", says="--resume")
        self.assertEqual((self.folder / "run" / "plan.toml").read_bytes(), before)

    def test_a_run_folder_that_cannot_be_made(self):
        self.refused("train", "gpt.toml", "--set", "train.run_dir=\"corpus.txt/run\"", says="corpus.txt/run")

    def test_a_disk_that_fills_while_saving(self):
        def small_files():  # As a full disk: writing past the limit fails.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

        done = self.cinch("train", "gpt.toml", "-q", preexec_fn=small_files)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.startswith("cinch: cannot "), done.stderr)
        self.assertIn("run/checkpoints", done.stderr)

    def test_a_signal_saves_and_resuming_ends_as_if_it_had_not_come(self):
        self.write("long.toml", GPT.replace("steps = 6", "steps = 100000"))
        for number in (signal.SIGINT, signal.SIGTERM):
            run = f"run-{number}"
            process = subprocess.Popen([CINCH, "train", "long.toml", "--set", f"train.run_dir=\"{run}\""], cwd=self.folder,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, TERM="dumb"))
            line = process.stderr.readline()
            while line and not line.startswith("step "):
                line = process.stderr.readline()
            process.send_signal(number)
            output, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1, errors)
            self.assertTrue(output.startswith("INTERRUPTED after step "), output)
            self.assertIn(f"Next: cinch train {run}/job.toml --resume", output)
            done = int(output.split("after step ")[1].split(",")[0].replace(",", ""))
            document = self.document(0, "train", f"{run}/job.toml", "--resume", "--set", f"train.steps={done + 2}")
            self.assertEqual(document["resumed_at"], done)
            self.assertEqual(document["steps"][-1]["step"], done + 2)


class Manners(Case):
    def on_terminal(self, *arguments, environment):
        """What a terminal would be sent, both streams together."""
        parent, child = pty.openpty()
        settings = dict(os.environ, TERM="xterm")
        settings.pop("NO_COLOR", None)
        settings.update(environment)
        process = subprocess.Popen([CINCH, *arguments], cwd=self.folder, stdout=child, stderr=child, stdin=child, env=settings)
        os.close(child)
        received = b""
        try:
            while chunk := os.read(parent, 65536):
                received += chunk
        except OSError:  # The other end is closed.
            pass
        os.close(parent)
        self.assertEqual(process.wait(timeout=300), 0, received)
        return received.decode()

    def test_bar_and_colours_on_a_terminal(self):
        sent = self.on_terminal("train", "mlp.toml", environment={})
        self.assertIn("[####################] step 4/4", sent)
        self.assertIn("\x1b[1;32mTRAINED", sent)

    def test_no_colour_where_unwanted(self):
        sent = self.on_terminal("train", "mlp.toml", environment={"NO_COLOR": "1"})
        self.assertIn("[####################] step 4/4", sent)
        self.assertNotIn("\x1b[1", sent)
        self.assertNotIn("\x1b[0m", sent)

    def test_plain_lines_elsewhere(self):
        done = self.expect(0, "train", "mlp.toml")
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertNotIn("\r", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^step 4/4  loss ")

    def test_quiet(self):
        self.assertEqual(self.expect(0, "train", "mlp.toml", "--quiet").stderr, "")


if __name__ == "__main__":
    unittest.main()
