#!/usr/bin/env python3
"""`cinch record` from outside. There is no CUDA here, so `torch` is a package of a few lines that has the parts of PyTorch's
that the hook relies on (torch/cuda/__init__.py and torch/cuda/memory.py, 2.11), and says what it was asked for.

    record.py CINCH [unittest arguments]
"""
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

CINCH = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "cinch"

TORCH = {
    "__init__.py": """
        import types
        _C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=lambda f: observers.append(f))
        observers = []
        import torch.cuda
    """,
    "cuda/__init__.py": """
        from torch.cuda import memory
        _queued_calls, _initialized = [], False
        def is_initialized(): return _initialized
        def _lazy_call(callable): callable() if _initialized else _queued_calls.append(callable)
        def init():
            global _initialized
            for call in _queued_calls: call()
            _initialized = True
        def allocate(bytes): memory.traces.append(bytes)
        def run_out():
            import torch
            for observer in torch.observers: observer(0, 1 << 30, 1 << 20, 1 << 10)
    """,
    "cuda/memory.py": """
        traces, asked = [], []
        def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=1):
            asked.append({"enabled": enabled, "context": context, "stacks": stacks, "max_entries": max_entries})
        def _snapshot(): return {"segments": [], "device_traces": [list(traces)], "asked": asked}
    """,
}


class Record(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name).resolve()
        for name, text in TORCH.items():
            self.write("packages/torch/" + name, text)
        self.environment = {**os.environ, "PYTHONPATH": str(self.folder / "packages"), "TMPDIR": str(self.folder / "tmp")}
        (self.folder / "tmp").mkdir()
        self.environment.pop("RANK", None)

    def tearDown(self):
        self.assertEqual(list((self.folder / "tmp").iterdir()), [], "something stayed in the temporary folder")

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def command(self, program, *flags, python=()):
        self.write("program.py", program)
        return [CINCH, "record", *flags, "--", sys.executable, *python, "program.py", "--batch", "8"]

    def record(self, program, *flags, code=0, python=(), **environment):
        done = subprocess.run(self.command(program, *flags, python=python), cwd=self.folder, text=True, timeout=60,
                              capture_output=True, env={**self.environment, **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def snapshot(self, name="snapshot.pickle"):
        with open(self.folder / name, "rb") as file:
            return pickle.load(file)

    def names(self):
        return sorted(path.name for path in self.folder.glob("*.pickle*"))

    USES_CUDA = "import torch, sys; torch.cuda.init(); torch.cuda.allocate(7)\n"

    def test_writes_a_snapshot_at_exit_and_says_what_to_do_with_it(self):
        done = self.record(self.USES_CUDA + "print(sys.argv[1:])")
        self.assertEqual(done.stdout, "['--batch', '8']\n")
        self.assertEqual(self.snapshot()["device_traces"], [[7]])
        self.assertEqual(self.snapshot()["asked"],
                         [{"enabled": "all", "context": "all", "stacks": "python", "max_entries": 100000}])
        file = self.folder / "snapshot.pickle"
        self.assertEqual(done.stderr, f"cinch: wrote {file}\n  now: cinch inspect {file}\n")
        self.assertEqual(self.names(), ["snapshot.pickle"])

    def test_out_and_max_events(self):
        (self.folder / "elsewhere").mkdir()
        self.record("import os; os.chdir('/')\n" + self.USES_CUDA, "--out", "elsewhere/run.gz.pickle", "--max-events", "12")
        self.assertEqual(self.snapshot("elsewhere/run.gz.pickle")["asked"][0]["max_entries"], 12)

    def test_an_exception_and_an_exit_code_pass(self):
        self.assertIn("ValueError: mine", self.record(self.USES_CUDA + "raise ValueError('mine')", code=1).stderr)
        self.assertEqual(self.snapshot()["device_traces"], [[7]])
        self.record(self.USES_CUDA + "sys.exit(37)", code=37)
        self.record(self.USES_CUDA + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", code=128 + signal.SIGKILL)

    def test_out_of_memory_has_snapshots_of_its_own(self):
        self.record(self.USES_CUDA + "for i in range(5): torch.cuda.run_out(); torch.cuda.allocate(i)")
        self.assertEqual(self.names(), ["snapshot.oom-2.pickle", "snapshot.oom-3.pickle", "snapshot.oom.pickle",
                                        "snapshot.pickle"])
        self.assertEqual(self.snapshot("snapshot.oom.pickle")["device_traces"], [[7]])
        self.assertEqual(self.snapshot("snapshot.oom-3.pickle")["device_traces"], [[7, 0, 1]])
        self.assertEqual(self.snapshot()["device_traces"], [[7, 0, 1, 2, 3, 4]])

    def test_signals_are_passed_on_and_sigusr1_writes(self):
        waits = self.USES_CUDA + """
import pathlib, signal, time
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(5))
pathlib.Path("ready").touch()
while True: time.sleep(0.01)
"""
        running = subprocess.Popen(self.command(waits), cwd=self.folder, env=self.environment, text=True,
                                   stderr=subprocess.PIPE)
        self.wait_until(lambda: (self.folder / "ready").exists())
        for name in ("snapshot.signal.pickle", "snapshot.signal-2.pickle"):
            running.send_signal(signal.SIGUSR1)
            self.wait_until(lambda: (self.folder / name).exists())
        running.send_signal(signal.SIGUSR2)
        _, error = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 5, error)
        self.assertEqual(self.names(), ["snapshot.pickle", "snapshot.signal-2.pickle", "snapshot.signal.pickle"])

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not happen")
            time.sleep(0.01)

    def test_a_signal_before_cuda_is_used_does_no_harm(self):
        done = self.record("import os, signal, torch\nos.kill(os.getpid(), signal.SIGUSR1)\n" + self.USES_CUDA)
        self.assertIn("has not used CUDA", done.stderr)
        self.assertEqual(self.names(), ["snapshot.pickle"])

    def test_ranks_and_further_processes_have_names_of_their_own(self):
        self.record(self.USES_CUDA, RANK="3")
        self.assertEqual(self.names(), ["snapshot.rank3.pickle"])
        (self.folder / "snapshot.rank3.pickle").unlink()
        done = self.record(self.USES_CUDA + """
import os, subprocess
if len(sys.argv) < 5: subprocess.run([sys.executable, sys.argv[0], "a", "child", "of", "it"], check=True)
""")
        self.assertEqual(len(self.names()), 2)
        self.assertRegex(" ".join(self.names()), r"^snapshot\.pickle snapshot\.pid\d+\.pickle$")
        self.assertEqual(done.stderr.count("cinch: wrote"), 2)

    def test_a_forked_process_writes_nothing(self):
        self.record(self.USES_CUDA + "import os\nif os.fork() == 0: sys.exit(0)\nos.wait()")
        self.assertEqual(self.names(), ["snapshot.pickle"])

    def test_the_sitecustomize_there_was_runs_too(self):
        self.write("packages/sitecustomize.py", "import builtins; builtins.mine = 'still here'")
        done = self.record(self.USES_CUDA + "import sitecustomize\nprint(mine, sitecustomize.__file__)")
        self.assertEqual(done.stdout, f"still here {self.folder}/packages/sitecustomize.py\n")
        self.assertEqual(self.names(), ["snapshot.pickle"])

    def test_the_program_sees_no_folder_of_ours(self):
        done = self.record("import sys\nprint([place for place in sys.path if 'cinch-record' in place])")
        self.assertEqual(done.stdout, "[]\n")

    def test_programs_without_cuda_run_as_ever(self):
        self.assertIn("did not import torch.cuda", self.record("pass").stderr)
        self.assertIn("did not use CUDA", self.record("import torch", code=0).stderr)
        self.assertIn("Leave out -I", self.record("pass", python=["-I"]).stderr)
        done = subprocess.run([CINCH, "record", "--", "sh", "-c", "exit 4"], env=self.environment, capture_output=True)
        self.assertEqual(done.returncode, 4)
        self.assertEqual(self.names(), [])

    def test_a_pytorch_that_cannot_be_recorded_costs_a_line(self):
        for broken in ("def _record_memory_history(*a, **b): raise RuntimeError('not here')",
                       "def _snapshot(): raise RuntimeError('not here')",
                       "_snapshot = lambda: (lambda: 0)"):
            file = self.write("packages/torch/cuda/memory.py", TORCH["cuda/memory.py"])
            file.write_text(file.read_text() + broken + "\n")
            done = self.record(self.USES_CUDA + "print('done')")
            self.assertEqual(done.stdout, "done\n")
            self.assertRegex(done.stderr, r"(?m)^cinch record: (no snapshot|cannot switch)")
            self.assertEqual(self.names(), [])
        self.write("packages/torch/cuda/__init__.py", "")
        self.assertIn("cinch record: this PyTorch cannot be recorded", self.record("import torch.cuda").stderr)

    def test_pytorch_before_2_1(self):
        file = self.write("packages/torch/cuda/memory.py", TORCH["cuda/memory.py"])
        file.write_text(file.read_text() + textwrap.dedent("""
            def _record_memory_history(enabled, record_context=True, trace_alloc_max_entries=1,
                                       trace_alloc_record_context=False):
                asked.append([enabled, trace_alloc_max_entries, trace_alloc_record_context])
        """))
        self.record(self.USES_CUDA, "--max-events", "9")
        self.assertEqual(self.snapshot()["asked"], [[True, 9, True]])

    def test_a_folder_that_cannot_be_written_costs_a_line(self):
        (self.folder / "gone").mkdir()
        done = self.record("import shutil; shutil.rmtree('gone')\n" + self.USES_CUDA, "--out", "gone/run.pickle")
        self.assertRegex(done.stderr, r"(?m)^cinch record: no snapshot: FileNotFoundError")

    def test_a_snapshot_that_fails_is_not_blamed_on_the_exit(self):
        (self.folder / "gone").mkdir()
        done = self.record("import shutil; shutil.rmtree('gone')\n" + self.USES_CUDA, "--out", "gone/run.pickle")
        self.assertIn("what went wrong is said above", done.stderr)
        self.assertNotIn("exit handlers", done.stderr)

    def test_an_out_that_cannot_be_written_is_found_out_before_the_program_runs(self):
        (self.folder / "folder").mkdir()
        for out, words in (("", "the name is empty"), ("folder", "is a folder"), ("folder/", "is a folder"),
                           ("a" * 250 + ".pickle", "is too long"), ("/proc/x.pickle", "cannot write"),
                           ("/dev/null", "no regular file")):
            done = self.record("print('ran')", "--out", out, code=2)
            self.assertEqual(done.stdout, "", out)
            self.assertIn(words, done.stderr)
        self.assertEqual(list((self.folder / "folder").iterdir()), [])

    def test_names_of_any_bytes(self):
        name = os.fsdecode(b"a b\n\x1b\xff.pickle")
        done = self.record(self.USES_CUDA, "--out", name)
        self.assertEqual(self.names(), [name])
        self.assertNotIn("\x1b", done.stderr)
        self.assertIn("now: cinch inspect $'" + str(self.folder) + "/a b\\012\\033\\377.pickle'\n", done.stderr)

    def test_an_ignored_sigchld_is_no_hindrance(self):
        self.assertIn("did not import torch.cuda", self.run_ignoring_sigchld("pass").stderr)

    def run_ignoring_sigchld(self, program):
        return subprocess.run(self.command(program), cwd=self.folder, text=True, timeout=60, capture_output=True,
                              env=self.environment, check=True,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    def test_an_empty_pythonpath_stays_without_the_working_folder(self):
        (self.folder / "elsewhere").mkdir()
        done = self.record("import os, sys; print(os.environ['PYTHONPATH'], os.getcwd() in sys.path[1:])", PYTHONPATH="")
        self.assertRegex(done.stdout, r"^[^:]*/cinch-record-\w+ False\n$")

    def test_temporary_folders_that_cannot_serve(self):
        (self.folder / "a:b").mkdir()
        self.record(self.USES_CUDA, TMPDIR=str(self.folder / "a:b"))
        self.assertEqual(self.names(), ["snapshot.pickle"])
        self.assertIn("TMPDIR is /no/such", self.record("pass", TMPDIR="/no/such", code=2).stderr)

    def test_bad_usage(self):
        for arguments, words in ((["record"], "required"), (["record", "--out", "no/such/x", "--", "true"], "no folder"),
                                 (["record", "--", "no-such-program"], "cannot start no-such-program"),
                                 (["record", "--max-events", "0", "--", "true"], "--max-events")):
            done = subprocess.run([CINCH, *arguments], cwd=self.folder, env=self.environment, text=True, capture_output=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)


class AgainstPyTorch(unittest.TestCase):
    """The names the hook uses, where a PyTorch is named: CINCH_TORCH_PACKAGE=DIR/torch."""

    def test_the_names_are_pytorch_s(self):
        package = pathlib.Path(os.environ.get("CINCH_TORCH_PACKAGE", "/nowhere"))
        if not (package / "cuda" / "memory.py").exists():
            self.skipTest("no torch package")
        memory = (package / "cuda" / "memory.py").read_text()
        for name in ("def _record_memory_history(", "def _snapshot(", "max_entries: int", 'stacks: str = "all"'):
            self.assertIn(name, memory)
        cuda = (package / "cuda" / "__init__.py").read_text()
        self.assertIn("def _lazy_call(callable", cuda)
        library = package / "lib" / "libtorch_python.so"
        if library.exists():
            self.assertIn(b"_cuda_attach_out_of_memory_observer", library.read_bytes())


if __name__ == "__main__":
    unittest.main()
