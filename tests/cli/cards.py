#!/usr/bin/env python3
"""Questions about cards that are not there: cinch devices, estimate and plan with --device.

    cards.py CINCH [unittest arguments]
"""
import json
import shlex
import unittest

from command_line import CATEGORIES, CINCH, GPT, PEAK_KEYS, Case


class CardCase(Case):
    def setUp(self):
        """Small jobs on a card whose context leaves room for them to matter."""
        super().setUp()
        text = self.expect(0, "devices", "t4").stdout
        self.assertIn("context = 367001600", text)
        self.write("card.toml", text.replace("context = 367001600", "context = 1048576"))
        self.job = ("gpt.toml", "--device", "card.toml", "--set", "train.batch_size=16", "--set", "model.hidden_size=128",
                    "--set", "model.context_length=128")

    def needs(self, *arguments):
        return self.document(0, "estimate", *self.job, *arguments)["peak"]["device_bytes"]

    def least(self):
        """The floor: what the smallest plan needs."""
        return self.document(3, "plan", *self.job, "--budget", "2MiB")["infeasible"]["floor_bytes"]

    def run_next(self, output, code):
        """The command that a text names, pasted into a shell."""
        commands = [line.removeprefix("Next: ") for line in output.splitlines() if line.startswith("Next: ")]
        self.assertEqual(len(commands), 1, output)
        words = shlex.split(commands[0])
        self.assertEqual(words[0], "cinch")
        return self.expect(code, *words[1:])


class Devices(Case):
    def test_devices_are_listed(self):
        rows = self.expect(0, "devices").stdout.splitlines()
        self.assertTrue(rows[2].startswith("cpu "), rows[2])
        document = self.document(0, "devices")
        devices = {device["name"]: device for device in document["devices"]}
        self.assertLessEqual({"v100-16gb", "v100-32gb", "t4-16gb", "a10g-24gb", "a100-40gb", "a100-80gb", "l4-24gb",
                              "l40s-48gb", "rtx3090-24gb", "rtx4090-24gb", "rtx5090-32gb", "h100-80gb", "h200-141gb",
                              "b200-180gb"}, devices.keys())
        for device in devices.values():
            self.assertEqual(device["usable_bytes"], device["memory_bytes"] // 50 * 49 - device["context_bytes"])

    def test_a_device_printed_is_a_device_file(self):
        text = self.expect(0, "devices", "rtx4090").stdout
        self.write("card.toml", text)
        self.assertEqual(self.expect(0, "devices", "card.toml").stdout, text)
        by_name = self.document(0, "estimate", "mlp.toml", "--device", "rtx4090")
        by_file = self.document(0, "estimate", "mlp.toml", "--device", "card.toml")
        self.assertEqual(by_file["peak"], by_name["peak"])

    def test_what_a_card_needs_adds_up(self):
        document = self.document(0, "estimate", "gpt.toml", "--device", "t4")
        peak = document["peak"]
        self.assertLessEqual(PEAK_KEYS, peak.keys())
        self.assertEqual(sum(document["categories_at_peak"].values()), peak["requested_bytes"])
        self.assertEqual(peak["device_bytes"], peak["reserved_bytes"] + peak["context_bytes"])
        self.assertLessEqual(peak["requested_bytes"], peak["allocated_bytes"])
        self.assertLessEqual(peak["allocated_bytes"], peak["reserved_bytes"])
        self.assertEqual(document["budget_bytes"], document["capacity_bytes"] // 50 * 49)
        self.assertIsNone(document["runs_out"])
        groups = sum(group["bytes"] for group in document["activation_groups"])
        self.assertEqual(groups, document["categories_at_peak"]["activation"] + document["categories_at_peak"]["temporary"])

    def test_where_a_small_card_runs_out_and_what_helps(self):
        card = self.expect(0, "devices", "t4").stdout.replace("context = 367001600", "context = 0")
        self.write("card.toml", card)
        estimate = ("estimate", "gpt.toml", "--device", "card.toml", "--budget", "60MiB")
        document = self.document(3, *estimate, "--batch", 128)
        self.assertGreater(document["runs_out"]["asked_bytes"], 0)
        self.assertGreater(document["peak"]["device_bytes"], document["budget_bytes"])
        self.assertTrue(any(suggestion["fits"] for suggestion in document["suggestions"]))
        for suggestion in document["suggestions"]:
            self.assertEqual(suggestion["fits"], suggestion["peak_bytes"] <= document["budget_bytes"], suggestion)
        others = [suggestion["change"] for suggestion in document["suggestions"] if suggestion["other_training"]]
        size = int(others[0].removeprefix("batch "))
        self.assertTrue(self.document(0, *estimate, "--batch", size)["fits"])
        self.assertFalse(self.document(3, *estimate, "--batch", size + 1)["fits"])
        text = self.expect(3, *estimate, "--batch", 128).stdout
        self.assertRegex(text, r"Runs out in (initialization|\w+ of step \d)")
        self.assertIn("= on the card", text)


class Suggestions(CardCase):
    def tried(self, budget):
        document = self.document(3, "estimate", *self.job, "--budget", budget)
        for suggestion in document["suggestions"]:
            self.assertEqual(suggestion["fits"], suggestion["peak_bytes"] <= budget, suggestion)
        return {suggestion["change"].split()[0]: suggestion for suggestion in reversed(document["suggestions"])}

    def test_as_many_modules_are_checkpointed_as_are_needed(self):
        self.write("gpt.toml", GPT.replace("layers = 3", "layers = 6"))
        plain = self.needs()
        everything = self.tried(2 << 20)["checkpoint"]  # Nothing fits: what checkpointing all would need.
        modules = int(everything["change"].split()[3])
        self.assertEqual(everything["change"], f"checkpoint {modules} of {modules} modules")
        counts = []
        for part in (1, 2, 3):
            some = self.tried(everything["peak_bytes"] + (plain - everything["peak_bytes"]) * part // 4)["checkpoint"]
            self.assertTrue(some["fits"], some)
            counts.append(int(some["change"].split()[1]))
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertLess(counts[-1], counts[0])

    def test_the_longest_context_that_fits(self):
        budget = self.needs() * 3 // 4
        context = self.tried(budget)["context"]
        self.assertTrue(context["fits"] and context["other_training"])
        length = int(context["change"].removeprefix("context "))
        self.assertLess(length, 128)
        at = lambda tokens: self.needs("--context", tokens)
        self.assertEqual(at(length), context["peak_bytes"])
        self.assertGreater(at(length + 8), budget)  # Tried in sixteenths.

    def test_what_fits_names_no_command(self):
        self.assertNotIn("Next:", self.expect(0, "estimate", *self.job).stdout)


class Plan(CardCase):
    def test_the_command_that_an_estimate_names_makes_a_plan(self):
        budget = (self.least() + self.needs()) // 2
        estimate = self.expect(3, "estimate", *self.job, "--budget", budget).stdout
        self.assertIn("Next: cinch plan gpt.toml --device card.toml", estimate)
        planned = self.run_next(estimate, 0).stdout
        self.assertTrue(planned.startswith("FITS: needs "), planned)
        self.assertIn("Step times: roofline of t4-16gb, not calibrated here.", planned)
        self.assertIn("= on the card", planned)
        self.assertIn("Wrote plan.toml", self.run_next(planned, 0).stdout)
        self.assertIn("version = 1", (self.folder / "plan.toml").read_text())

    def test_what_counts_is_what_the_card_holds(self):
        budget = (self.least() + self.needs()) // 2
        document = self.document(0, "plan", *self.job, "--budget", budget)
        peak = document["predicted"]["peak"]
        self.assertLessEqual(peak["device_bytes"], budget)
        self.assertEqual(peak["device_bytes"], peak["reserved_bytes"] + peak["context_bytes"])
        self.assertEqual(sum(peak["categories"].values()), peak["requested_bytes"])
        self.assertEqual(peak["categories"].keys(), CATEGORIES)
        self.assertIs(document["calibrated"], False)
        best = [point for point in document["frontier"] if point["plan"] == document["plan"]]
        self.assertEqual([point["peak_bytes"] for point in best], [peak["device_bytes"]])
        self.assertEqual(document["unconstrained"]["peak_bytes"],
                         self.document(3, "estimate", *self.job, "--budget", budget)["peak"]["device_bytes"])
        peaks = [point["peak_bytes"] for point in document["frontier"]]
        self.assertEqual(peaks, sorted(peaks))

    def test_the_floor_where_nothing_fits(self):
        done = self.expect(3, "plan", *self.job, "--budget", "2MiB", "--out", "plan.toml")
        self.assertTrue(done.stdout.startswith("DOES NOT FIT: the smallest plan needs "), done.stdout)
        self.assertIn("context, rounding and fragmentation", done.stdout)
        self.run_next(done.stdout, 0)
        self.assertFalse((self.folder / "plan.toml").exists())
        floor = self.least()
        self.expect(0, "plan", *self.job, "--budget", floor * 101 // 100)
        self.expect(3, "plan", *self.job, "--budget", floor * 98 // 100)

    def test_without_a_budget_it_is_the_cards(self):
        done = self.expect(0, "plan", *self.job, "--html", "plan.html")
        self.assertIn("Budget: the 14.7 GiB of t4-16gb less 2 %", done.stdout)
        self.assertIn("on the card", (self.folder / "plan.html").read_text())

    def test_a_folder_from_hugging_face(self):
        (self.folder / "Tiny").mkdir()
        self.write("Tiny/config.json", json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"}))
        job = ("Tiny", "--device", "card.toml", "--batch", 32, "--context", 64)
        plain = self.document(0, "estimate", *job)["peak"]["device_bytes"]
        estimate = self.expect(3, "estimate", *job, "--budget", plain * 3 // 4).stdout
        self.assertTrue(self.run_next(estimate, 0).stdout.startswith("FITS: needs "))


class Inexact(Case):
    def test_ops_too_large_to_run_are_named(self):
        self.write("vit.toml", """
[model]
kind = "vit"
layers = 1
hidden_size = 32
heads = 2
classes = 10
[data]
kind = "synthetic"
[train]
batch_size = 16384
steps = 1
optimizer = "sgd"
learning_rate = 0.1
seed = 1
threads = 1
""")
        document = self.document(3, "estimate", "vit.toml", "--budget", "1GiB")
        self.assertEqual(document["by_shape_alone"], ["aten::convolution", "aten::convolution_backward"])
        self.assertEqual(document["bounded"], [])
        self.assertIn("By shapes alone: aten::convolution, aten::convolution_backward;",
                      self.expect(3, "estimate", "vit.toml", "--budget", "1GiB").stdout)
        self.assertEqual(self.document(0, "estimate", "gpt.toml")["by_shape_alone"], [])


if __name__ == "__main__":
    unittest.main()
