#!/usr/bin/env python3
"""Questions that cinch plan answers: what plans exchange, what would give, the largest that fits, which card would do.

    planning.py CINCH [unittest arguments]
"""
import json
import shlex
import unittest

from command_line import CINCH, GPT, MLP, Case

CARD_CONTEXT = "context = 367001600"


class PlanCase(Case):
    def setUp(self):
        """A small job, and a card whose context leaves room for it to matter."""
        super().setUp()
        text = self.expect(0, "devices", "t4").stdout
        self.assertIn(CARD_CONTEXT, text)
        self.write("card.toml", text.replace(CARD_CONTEXT, "context = 1048576"))
        self.on_card = ("gpt.toml", "--device", "card.toml", "--set", "train.batch_size=16", "--set",
                        "model.hidden_size=128", "--set", "model.context_length=128")

    def plain(self, *job):
        return self.document(0, "estimate", *job)["peak"]["device_bytes"]

    def floor(self, *job):
        return self.document(3, "plan", *job, "--budget", "2MiB")["infeasible"]["floor_bytes"]

    def between(self, *job):
        """Half-way from the floor to plain training."""
        return (self.floor(*job) + self.plain(*job)) // 2

    def run_next(self, output, code):
        """The command that a text names, pasted into a shell."""
        commands = [line.removeprefix("Next: ") for line in output.splitlines() if line.startswith("Next: ")]
        self.assertEqual(len(commands), 1, output)
        words = shlex.split(commands[0])
        self.assertEqual(words[0], "cinch")
        return self.expect(code, *words[1:])


class Allow(PlanCase):
    def allowed(self, *job):
        return set(self.document(0, "plan", *job)["allowed"])

    def test_on_the_machine_itself_what_is_lossy_or_needs_its_memory_has_to_be_asked_for(self):
        usual = self.allowed("mlp.toml")
        self.assertLessEqual({"micro_batch", "checkpoint", "selective", "chunked_loss", "step_in_backward"}, usual)
        self.assertFalse({"adam8bit", "bf16", "fp16", "offload", "state_on_host"} & usual)
        self.assertEqual(self.allowed("mlp.toml", "--allow", "adam8bit", "--allow", "offload") - usual, {"adam8bit", "offload"})

    def test_on_a_card_the_hosts_memory_is_another(self):
        usual = self.allowed(*self.on_card)
        self.assertLessEqual({"offload", "state_on_host"}, usual)
        self.assertFalse({"adam8bit", "bf16", "fp16"} & usual)

    def test_in_the_job(self):
        self.write("mlp.toml", MLP + "[memory]\nallow = [\"adam8bit\"]\n")
        self.assertIn("adam8bit", self.allowed("mlp.toml"))
        self.write("mlp.toml", MLP + "[memory]\nallow = [\"adam7bit\"]\n")
        self.refused("plan", "mlp.toml", says=["mlp.toml:15: ", "adam7bit", "adam8bit"])

    def test_unknown_ones_name_the_nearest(self):
        for verb in ("estimate", "plan", "train"):
            self.refused(verb, "mlp.toml", "--allow", "adam7bit", says=["--allow adam7bit", "Did you mean adam8bit?"])

    def test_the_next_command_allows_it_too(self):
        done = self.expect(0, "plan", *self.on_card, "--allow", "adam8bit")
        self.assertIn("--allow adam8bit", done.stdout.split("Next: ")[1])
        self.run_next(done.stdout, 0)


class Frontier(PlanCase):
    def test_says_what_each_plan_changes_and_what_for(self):
        budget = self.between(*self.on_card)
        document = self.document(0, "plan", *self.on_card, "--budget", budget)
        points = document["frontier"]
        self.assertGreater(len(points), 2)
        self.assertIsNone(points[-1]["exchange"])
        for smaller, larger in zip(points, points[1:]):
            exchange = smaller["exchange"]
            self.assertAlmostEqual(exchange["memory_ratio"], smaller["peak_bytes"] / larger["peak_bytes"])
            self.assertAlmostEqual(exchange["time_ratio"], smaller["step_seconds"] / larger["step_seconds"])
            self.assertLess(exchange["memory_ratio"], 1)
            self.assertGreater(exchange["time_ratio"], 1)
            self.assertTrue(exchange["sentence"].startswith("for ") and exchange["sentence"].endswith(exchange["change"]))
        text = self.expect(0, "plan", *self.on_card, "--budget", budget, "--html", "plan.html").stdout
        self.assertIn("change from the row above", text)
        self.assertRegex(text, r"\n  (Smaller|Faster): +for [\d.]+ % more (time|memory), [\d.]+ % less (memory|time): ")
        self.assertIn("class=\"front\"", (self.folder / "plan.html").read_text())

    def test_a_time_limit_is_more_than_nothing(self):
        for seconds in ("0", "-1", "soon"):
            self.refused("plan", *self.on_card, "--time-limit", seconds, says=seconds)
        budget = self.between(*self.on_card)
        document = self.document(0, "plan", *self.on_card, "--budget", budget, "--time-limit", "100")
        self.assertEqual(document["gap"], 0)
        self.assertIn("optimum proven", self.expect(0, "plan", *self.on_card, "--budget", budget, "--time-limit", 100).stdout)


class Largest(PlanCase):
    """The answer fits; its neighbour does not, whatever the plan."""

    def ask(self, what, budget, *job):
        document = self.document(0, "plan", *job, "--budget", budget, "--maximize", what)
        self.assertEqual(document["schema"], "cinch.maximize/1")
        self.assertTrue(document["fits"] and document["adjacent"])
        self.assertLessEqual(document["predicted"]["peak"]["device_bytes"], budget)
        self.assertGreater(document["beyond"]["peak_bytes"], budget)
        self.assertIs(document["beyond"]["fits"], False)
        tried = {one["value"]: one["fits"] for one in document["tried"]}
        self.assertTrue(tried[document["value"]])
        self.assertFalse(tried[document["beyond"]["value"]])
        return document

    def test_batch_trains_under_the_budget(self):
        """By a run under a hard cap; one sample more has no plan."""
        job = ("gpt.toml", "--set", "train.steps=2", "--set", "train.run_dir=\"\"")
        budget = self.plain(*job) * 2
        document = self.ask("batch", budget, *job)
        value = document["value"]
        self.assertGreaterEqual(value, 2 * 8)
        self.assertEqual(document["plan"]["micro_batch_size"], 0)
        self.assertEqual(document["beyond"]["value"], value + 1)
        at_budget = ("plan", *job, "--budget", budget, "--maximize", "batch", "--out", "plan.toml")
        text = self.expect(0, *at_budget).stdout
        self.assertTrue(text.startswith(f"LARGEST BATCH: {value} (the job's own is 8), needs "), text)
        self.assertIn("in micro-batches any would fit", text)
        self.assertIn(f"--set train.batch_size={value}", text.split("Next: ")[1])
        self.assertIn("predicted = measured, to the byte", self.run_next(text, 0).stdout)

    def test_batch_on_a_card(self):
        budget = self.plain(*self.on_card)
        self.assertGreaterEqual(self.ask("batch", budget, *self.on_card)["value"], 16)

    def test_sizes_that_a_model_does_not_have(self):
        self.refused("plan", "mlp.toml", "--maximize", "context", says=["--maximize context", "batch, width"])
        self.refused("plan", "mlp.toml", "--maximize", "height", says="height")

    def test_where_nothing_fits_it_is_the_floor(self):
        done = self.expect(3, "plan", *self.on_card, "--budget", "2MiB", "--maximize", "batch", "--out", "plan.toml")
        self.assertTrue(done.stdout.startswith("NO BATCH FITS: not even train.batch_size 1 "), done.stdout)
        self.assertFalse((self.folder / "plan.toml").exists())
        self.assertIs(self.document(3, "plan", *self.on_card, "--budget", "2MiB", "--maximize", "batch")["fits"], False)

    def test_the_models_own_limit_ends_it(self):
        self.write("resnet.toml", """
[model]
kind = "resnet"
classes = 10
image_size = 64
[data]
kind = "synthetic"
[train]
batch_size = 2
steps = 2
learning_rate = 1e-3
""")
        document = self.document(0, "plan", "resnet.toml", "--device", "h100", "--maximize", "layers")
        self.assertEqual((document["value"], document["beyond"]), (152, None))


class WhichCard(PlanCase):
    JOB = ("gpt.toml", "--set", "model.hidden_size=512", "--set", "model.context_length=1024")

    def test_each_is_as_if_asked_alone(self):
        document = self.document(0, "plan", *self.JOB, "--device", "all", "--set", "train.batch_size=200")
        self.assertEqual(document["schema"], "cinch.cards/1")
        cards = document["cards"]
        self.assertEqual([card["memory_bytes"] for card in cards], sorted(card["memory_bytes"] for card in cards))
        self.assertEqual({card["fits"] for card in cards}, {"plain", "plan"})
        for kind in ("plain", "plan"):
            card = next(card for card in cards if card["fits"] == kind)
            one = ("--device", card["device"], *self.JOB, "--set", "train.batch_size=200")
            plain = self.document(0 if kind == "plain" else 3, "estimate", *one)
            self.assertEqual(plain["peak"]["device_bytes"], card["plain_bytes"])
            self.assertLessEqual(card["peak_bytes"], card["budget_bytes"])
        fits_plain = next(card for card in cards if card["fits"] == "plain")
        self.assertEqual(document["smallest"], {"plain": fits_plain["device"], "plan": cards[0]["device"]})

    def test_text_and_page(self):
        done = self.expect(0, "plan", "mlp.toml", "--device", "all", "--html", "cards.html")
        self.assertTrue(done.stdout.startswith("SMALLEST CARD: t4-16gb, as it is "), done.stdout)
        self.run_next(done.stdout, 0)
        self.assertIn("t4-16gb", (self.folder / "cards.html").read_text())

    def test_a_job_for_no_card(self):
        huge = ("gpt.toml", "--set", "model.hidden_size=65536", "--set", "model.layers=2", "--set", "model.heads=512")
        done = self.expect(3, "plan", *huge, "--device", "all")
        self.assertTrue(done.stdout.startswith("NO CARD HOLDS IT, whatever the plan "), done.stdout)
        self.assertNotIn("Next:", done.stdout)

    def test_what_does_not_go_with_all_cards(self):
        for flag in (("--budget", "1GiB"), ("--out", "plan.toml"), ("--maximize", "batch")):
            self.refused("plan", "mlp.toml", "--device", "all", *flag, says=[flag[0], "--device all"])
        self.refused("estimate", "mlp.toml", "--device", "all", says="unknown device")


class Infeasible(PlanCase):
    LONG = ("gpt.toml", "--set", "model.context_length=1024", "--set", "train.batch_size=2")

    def test_says_what_would_do_and_names_a_command_that_does(self):
        """Of a language model a shorter context, of others more memory."""
        budget = self.floor(*self.LONG, "--device", "card.toml") * 9 // 10
        job = (*self.LONG, "--device", "card.toml", "--budget", budget)
        document = self.document(3, "plan", *job)
        for smaller in document["smaller"]:
            sets = [word for change in smaller["set"] for word in ("--set", change)]
            self.assertLessEqual(smaller["peak_bytes"], budget)
            self.expect(0, "plan", *job, *sets)
        self.run_next(self.expect(3, "plan", *job).stdout, 0)
        self.run_next(self.expect(3, "plan", "mlp.toml", "--budget", "10kB").stdout, 0)

    def test_what_is_not_allowed_would_give(self):
        document = self.document(0, "plan", *self.on_card, "--budget", self.between(*self.on_card))
        self.assertTrue(document["would_give"])
        for entry in document["would_give"]:
            self.assertTrue(entry["flags"].startswith("--allow "), entry)
            self.assertEqual(entry["fits"], entry["peak_bytes"] <= document["budget_bytes"])


if __name__ == "__main__":
    unittest.main()
