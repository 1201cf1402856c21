"""Switches PyTorch's memory history on in an unchanged program: `cinch record` puts this first on PYTHONPATH.

Python imports it before the program begins. When the program makes CUDA usable, history is switched on (a bounded ring);
a snapshot is written at exit, on SIGUSR1 and when CUDA memory runs out. Whatever goes wrong here costs a line on standard
error, never the program. Standard library only; Python 3.8 and PyTorch 1.13 onward.
"""

import sys


def _say(words):
    try:
        sys.stderr.write("cinch record: %s\n" % words)
        sys.stderr.flush()
    except Exception:
        pass


class _Recording:
    """One process's."""

    MOST_OF_A_KIND = 3  # A program may provoke out-of-memory often, to find out what fits.

    def __init__(self):
        import os
        import threading

        self.folder = os.path.dirname(os.path.abspath(__file__))
        self.out = os.environ["CINCH_RECORD_OUT"]
        self.max_events = int(os.environ["CINCH_RECORD_MAX_EVENTS"])
        self.process = None  # Which it was switched on in: a fork inherits all this, but cannot use CUDA.
        self.written = {}
        self.busy = threading.Lock()

    # ---- when to act

    def install(self):
        import signal

        self.note("state", "python")
        sys.meta_path.insert(0, self)
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, lambda number, frame: self.on_signal())

    def find_spec(self, name, path=None, target=None):
        """Of sys.meta_path: lets others find torch.cuda, and has it tell us when it has been loaded."""
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self.watch(spec)
                return spec
        return None

    def watch(self, spec):
        try:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                self.on_torch(module)

            spec.loader.exec_module = exec_module
        except Exception as error:
            self.failed("cannot watch torch.cuda: %s" % error)

    def on_torch(self, cuda):
        try:
            self.note("state", "torch")
            cuda._lazy_call(self.switch_on)  # Now, or when CUDA is initialized.
        except Exception as error:
            self.failed("this PyTorch cannot be recorded: %s" % error)

    def switch_on(self):
        try:
            import atexit
            import os

            import torch

            record = torch.cuda.memory._record_memory_history
            try:
                record("all", stacks="python", max_entries=self.max_events)
            except TypeError:  # PyTorch before 2.1
                record(True, trace_alloc_max_entries=self.max_events, trace_alloc_record_context=True)
            self.process = os.getpid()
            self.note("state", "cuda")
            atexit.register(self.on_exit)
            torch._C._cuda_attach_out_of_memory_observer(self.on_out_of_memory)
        except Exception as error:
            self.failed("cannot switch the memory history on: %s" % error)

    # ---- snapshots

    def on_exit(self):
        import os

        if self.process == os.getpid():
            self.write("")

    def on_signal(self):
        import os

        if self.process == os.getpid():
            self.write("signal")
        else:
            _say("no snapshot: process %d has not used CUDA" % os.getpid())

    def on_out_of_memory(self, *_figures):
        if self.written.get("oom", 0) < self.MOST_OF_A_KIND:
            self.write("oom")

    def write(self, kind):
        try:
            if not self.busy.acquire(blocking=False):
                return _say("a snapshot is being written already")
            try:
                self.write_to(self.path_of(kind))
            finally:
                self.busy.release()
        except BaseException as error:  # Ctrl-C too: the program's own handling of it comes after.
            self.failed("no snapshot: %s: %s" % (type(error).__name__, error))

    def write_to(self, path):
        import os
        import pickle

        import torch

        temporary = "%s.%d.tmp" % (path, os.getpid())
        try:
            with open(temporary, "wb") as file:
                pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        self.note("written", path)

    def path_of(self, kind):
        """run.pickle; run.oom.pickle, run.oom-2.pickle; run.rank3.pickle; run.pid123.pickle if another has that name."""
        import os

        stem, extension = os.path.splitext(self.out)
        rank = os.environ.get("RANK", "")
        if rank.isdigit():
            stem += ".rank" + rank
        if not self.claims(os.path.basename(stem)):
            stem += ".pid%d" % os.getpid()
        if kind:
            self.written[kind] = self.written.get(kind, 0) + 1
            stem += ".%s%s" % (kind, "" if self.written[kind] == 1 else "-%d" % self.written[kind])
        return stem + extension

    def claims(self, name):
        """Whether this process is the first of the run that wants to write under it."""
        import os

        place = os.path.join(self.folder, "name-" + name)
        try:
            with open(place, "x") as file:
                file.write(str(os.getpid()))
            return True
        except FileExistsError:
            with open(place) as file:
                return file.read() == str(os.getpid())

    def failed(self, words):
        _say(words)
        try:
            self.note("state", "failed")
        except Exception:
            pass

    def note(self, file, words):
        """For `cinch record`, which reads it in the end. A file's name can be any bytes but NUL."""
        import os

        with open(os.path.join(self.folder, file), "ab") as notes:
            notes.write(os.fsencode(words) + b"\0")


def _run_the_other():
    """The sitecustomize that Python would have imported without this one."""
    import importlib.machinery
    import importlib.util
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    others = [place for place in sys.path if os.path.abspath(place or os.curdir) != here]
    sys.path[:] = others
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _Recording().install()
except Exception as _error:
    _say("not recording: %s: %s" % (type(_error).__name__, _error))
_run_the_other()
