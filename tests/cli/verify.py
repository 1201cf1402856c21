#!/usr/bin/env python3
"""Does a plan train to the same weights? cinch verify, and plan files that are refused.

    verify.py CINCH [unittest arguments]
"""
import unittest

from command_line import Case


class Verify(Case):
    """`cinch verify`: what it prints, its document, and that it can fail."""

    def plan(self, text):
        return self.write("plan.toml", "version = 1\n" + text)

    def test_a_plan_of_many_techniques_holds(self):
        self.plan("""micro_batch_size = 4
loss_chunk_size = 40
[activations]
"layers.0" = "checkpoint"
"layers.1" = "selective"
"layers.2" = "offload"
[optimizer]
place = "disk"
in_backward = true
""")
        document = self.document(0, "verify", "gpt.toml", "--plan", "plan.toml", "--steps", "3")
        self.assertEqual(document["schema"], "cinch.verify/1")
        self.assertEqual(document["equivalence"], "reassociated")
        self.assertTrue(document["holds"])
        self.assertLessEqual(document["max_relative_difference"], document["bound"])
        self.assertEqual([check["difference"] for check in document["checks"] if check["equivalence"] == "bitwise"], [0, 0])

    def test_without_a_plan_it_trains_plainly_and_twice(self):
        done = self.expect(0, "verify", "mlp.toml", "--html", "page.html")
        self.assertIn("HOLDS: the same weights, bit for bit", done.stdout)
        self.assertIn("plain training, twice", (self.folder / "page.html").read_text())

    def test_where_trainings_part_it_says_so_and_fails(self):
        self.write("resnet.toml", """
[model]
kind = "resnet"
classes = 4
image_size = 33
[data]
kind = "synthetic"
[train]
batch_size = 4
steps = 4
learning_rate = 1e-3
threads = 1
[memory]
divide_batch_norm = true
""")
        self.plan("micro_batch_size = 2\n")
        done = self.expect(1, "verify", "resnet.toml", "--plan", "plan.toml", "--steps", "1", "-q")
        self.assertIn("DOES NOT HOLD", done.stdout)
        self.assertIn("first at step 1, ", done.stdout)

    def test_refusals(self):
        self.plan("[optimizer]\nstate = \"8bit\"\n")
        self.refused("verify", "mlp.toml", "--plan", "plan.toml", "--set", "train.optimizer=sgd", says=["8bit", "AdamW"])
        self.plan("loss_chunk_size = 8\n")
        for verb in ("verify", "train"):
            self.refused(verb, "mlp.toml", "--plan", "plan.toml", says="loss_chunk_size")
        self.plan("autocast = \"bf16\"\n")
        self.refused("train", "mlp.toml", "--plan", "plan.toml", "--set", "train.precision=fp16", says=["autocast", "fp32"])
        self.plan("autocast = \"fp61\"\n")
        self.refused("train", "mlp.toml", "--plan", "plan.toml", says=["plan.toml:2: ", "fp61", "fp16"])
        self.plan("alloc_conf = \"expandable_segments:True\"\n")
        self.refused("train", "mlp.toml", "--plan", "plan.toml", says=["alloc_conf", "CPU"])
        self.plan("alloc_conf = \"expandable_segment:True\"\n")
        self.refused("train", "mlp.toml", "--plan", "plan.toml", says=["plan.toml:2: ", "expandable_segments"])
        self.refused("verify", "mlp.toml", "--steps", "0", says="--steps")
        self.refused("verify", "mlp.toml", "--device", "h100-80gb", says="h100-80gb")
        self.refused("verify", "mlp.toml", "-q", code=1, environment={"TMPDIR": "/nowhere"}, says=["/nowhere", "TMPDIR"])
        self.refused("verify", "mlp.toml", "-q", "--set", "train.learning_rate=1e30", code=1, says="not finite")

    def test_a_training_under_every_technique_is_as_predicted(self):
        for optimizer in ('state = "8bit"\nin_backward = true', 'place = "host"', 'place = "disk"'):
            self.plan("loss_chunk_size = 50\n[activations]\n\"layers.1\" = \"offload\"\n[optimizer]\n" + optimizer + "\n")
            done = self.expect(0, "train", "gpt.toml", "--plan", "plan.toml", "-q", "--set", "train.run_dir=\"\"")
            self.assertIn("predicted = measured, to the byte", done.stdout)
        self.plan("autocast = \"bf16\"\n[activations]\n\"layers.0\" = \"checkpoint_offload\"\n")
        done = self.expect(0, "train", "gpt.toml", "--plan", "plan.toml", "-q", "--set", "train.run_dir=\"\"")
        self.assertIn("predicted = measured, to the byte", done.stdout)
        self.assertIn("offloaded checkpoint 1 of 3 modules, bf16 autocast", done.stdout)


if __name__ == "__main__":
    unittest.main()
