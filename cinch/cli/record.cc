// cinch record: an unchanged Python program with PyTorch's memory history switched on.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cinch/cli/output.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "sitecustomize.h"  // of sitecustomize.py, by CMake

extern char** environ;

namespace cinch::cli {
namespace {

namespace fs = std::filesystem;

struct RecordOptions {
  std::string out = "snapshot.pickle";
  std::int64_t max_events = 100'000;
  std::vector<std::string> command;
};

/// Where temporary files go. A place with a colon could not be said on PYTHONPATH, which has colons between its places.
fs::path temporary_folder() {
  std::error_code failed;
  const fs::path folder = fs::temp_directory_path(failed);
  if (failed) {
    const char* named = std::getenv("TMPDIR");
    throw UsageError(std::string("there is no folder for temporary files: TMPDIR is ") + (named ? named : "not set"),
                     "Set TMPDIR to a folder that can be written to.");
  }
  const fs::path absolute = fs::absolute(folder);
  return absolute.string().find(':') == std::string::npos ? absolute : fs::path("/tmp");
}

/// A folder with the sitecustomize.py that Python is to import, and with what that notes down; gone in the end.
class HookFolder {
 public:
  HookFolder() {
    std::string name = (temporary_folder() / "cinch-record-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw IoError(name, "make", errno);
    path_ = name;
    try {
      write_file(path_ / "sitecustomize.py", kSitecustomize);
    } catch (...) {
      remove();
      throw;
    }
  }
  ~HookFolder() { remove(); }
  HookFolder(const HookFolder&) = delete;
  HookFolder& operator=(const HookFolder&) = delete;

  const fs::path& path() const { return path_; }
  std::vector<std::string> notes(const std::string& file) const {
    std::vector<std::string> lines;
    std::ifstream in(path_ / file);
    for (std::string line; std::getline(in, line, '\0');) lines.push_back(line);
    return lines;
  }

 private:
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path path_;
};

/// This process's environment and what the hook wants to know.
std::vector<std::string> environment_for(const HookFolder& hook, const RecordOptions& options) {
  std::vector<std::string> result;
  std::string python_path = hook.path().string();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (variable.starts_with("CINCH_RECORD_")) continue;
    if (variable.starts_with("PYTHONPATH=")) {
      const std::string others = variable.substr(variable.find('=') + 1);
      if (!others.empty()) python_path += ":" + others;  // An empty place would be the working folder.
      continue;
    }
    result.push_back(variable);
  }
  result.push_back("PYTHONPATH=" + python_path);
  result.push_back("CINCH_RECORD_OUT=" + fs::absolute(options.out).string());
  result.push_back("CINCH_RECORD_MAX_EVENTS=" + std::to_string(options.max_events));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// The signals that are passed on, and SIGCHLD: while it lives they are not delivered but waited for. Whoever started
/// us may have had SIGCHLD ignored, which lasts: then none comes, and no exit code either.
class HeldSignals {
 public:
  HeldSignals() {
    std::signal(SIGCHLD, SIG_DFL);
    sigemptyset(&held_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&held_, number);
    ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& before() const { return before_; }
  /// The next one.
  siginfo_t wait() const {
    siginfo_t info{};
    while (::sigwaitinfo(&held_, &info) < 0 && errno == EINTR) {
    }
    return info;
  }

 private:
  sigset_t held_{}, before_{};
};

pid_t start(std::vector<std::string> command, std::vector<std::string> environment, const HeldSignals& signals) {
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &signals.before());
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, command.front().c_str(), nullptr, &attributes, pointers(command).data(),
                                    pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw UsageError("cannot start " + command.front() + ": " + std::generic_category().message(failed),
                     "Write the program after --: cinch record -- python train.py");
  }
  return child;
}

/// What a shell says of a program that ended so.
int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/// Passes signals on until the program ends. Those from the terminal it gets by itself.
int wait_for(pid_t child, const HeldSignals& signals) {
  for (;;) {
    const siginfo_t signal = signals.wait();
    if (signal.si_signo != SIGCHLD) {
      if (signal.si_code != SI_KERNEL) ::kill(child, signal.si_signo);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return code_of(status);
  }
}

/// What came of it, on standard error: standard output is the program's.
void tell(const HookFolder& hook) {
  const auto written = hook.notes("written");
  if (!written.empty()) {
    for (const std::string& file : written) std::cerr << "cinch: wrote " << printable(file) << '\n';
    std::cerr << "  now: cinch inspect " << shell_word(written.back()) << std::endl;
    return;
  }
  const auto states = hook.notes("state");
  const auto seen = [&](const char* state) { return std::ranges::find(states, state) != states.end(); };
  if (seen("failed"))
    print_error("no snapshot: what went wrong is said above, after \"cinch record:\"", "");
  else if (seen("cuda"))
    print_error("no snapshot: the program ended without its exit handlers",
                "Send SIGUSR1 before it ends: kill -USR1 PID.");
  else if (seen("torch"))
    print_error("no snapshot: the program did not use CUDA", "");
  else if (seen("python"))
    print_error("no snapshot: the program did not import torch.cuda", "");
  else
    print_error("no snapshot: no Python read PYTHONPATH", "Leave out -I, -E and -S, which make Python ignore it.");
}

/// Finds out before the program runs whether there is a snapshot to be had in the end: makes and removes a file with
/// the longest name that the hook may need.
void check_out(const std::string& out) {
  if (out.empty()) throw UsageError("--out: the name is empty", "Name the file to write, such as snapshot.pickle.");
  const fs::path file = fs::absolute(out);
  std::error_code ignored;
  if (!file.has_filename() || fs::is_directory(file, ignored)) {
    throw UsageError("--out: " + out + " is a folder", "Name the file to write in it, such as snapshot.pickle.");
  }
  if (!fs::is_directory(file.parent_path(), ignored)) {
    throw UsageError("--out: there is no folder " + file.parent_path().string());
  }
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored)) {
    throw UsageError("--out: " + out + " is no regular file, and would be replaced by one");
  }
  fs::path longest = file.parent_path() / file.stem();
  longest += ".rank9999.pid9999999.signal-99" + file.extension().string() + "." + std::to_string(::getpid()) + ".tmp";
  const int made = ::open(longest.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made < 0 && errno == ENAMETOOLONG) {
    throw UsageError("--out: the name " + file.filename().string() + " is too long",
                     "Leave room for .rank3, .oom and the like in the 255 bytes of a name.");
  }
  if (made < 0) throw IoError(file, "write", errno);
  ::close(made);
  ::unlink(longest.c_str());
}

ExitCode run(const RecordOptions& options, Stage& stage) {
  check_out(options.out);
  const HookFolder hook;
  const HeldSignals signals;
  const pid_t child = start(options.command, environment_for(hook, options), signals);
  stage = Stage::kWorking;
  const int code = wait_for(child, signals);
  tell(hook);
  return static_cast<ExitCode>(code);
}
}  // namespace

Run add_record(CLI::App& program) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App* verb = program.add_subcommand(
      "record",
      "Run a PyTorch program, unchanged, and write memory snapshots: at exit, on SIGUSR1, when CUDA runs out");
  verb->add_option("--out", options->out,
                   "The snapshot; with several: FILE.rank0, FILE.oom and so on before the extension")
      ->type_name("FILE")
      ->capture_default_str();
  verb->add_option("--max-events", options->max_events, "Keep the last N events of the history")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->capture_default_str();
  verb->add_option("command", options->command, "The program and its arguments, after --")
      ->type_name("-- PROGRAM ARGUMENTS")
      ->required();
  verb->footer("Exit code: the program's; 128 and the signal's number if one ended it.");
  return [options](Stage& stage) { return run(*options, stage); };
}
}  // namespace cinch::cli
