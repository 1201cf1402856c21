#pragma once
// This program again as one side of a comparison, in a process of its own: it works off one task for each byte on its
// standard input and answers with what it measured.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace cinch::benchmarks {

/// `Answer` is trivially copyable.
template <class Answer>
class Process {
 public:
  /// `words`: what main() is to see, without the program's name.
  explicit Process(std::vector<std::string> words) {
    std::array<int, 2> in{}, out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    words.insert(words.begin(), "side");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int failed = ::posix_spawn(&id_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    if (failed != 0) throw std::runtime_error("cannot start a second process");
    to_ = in[1];
    from_ = out[0];
  }
  ~Process() {
    ::close(to_);  // Its standard input ends, and so does it.
    ::close(from_);
    ::waitpid(id_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Answer ask() const {
    // The other's worker threads spin a little before they sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Answer answer{};
    if (::write(to_, "g", 1) != 1 || ::read(from_, &answer, sizeof answer) != sizeof answer)
      throw std::runtime_error("one side ended early");
    return answer;
  }

 private:
  pid_t id_ = -1;
  int to_ = -1, from_ = -1;
};

/// The other end: answers until standard input ends. Returns main's result.
template <class Work>
int answer_with(const Work& work) {
  for (char go; ::read(STDIN_FILENO, &go, 1) == 1;) {
    const auto answer = work();
    if (::write(STDOUT_FILENO, &answer, sizeof answer) != sizeof answer) return 1;
  }
  return 0;
}
}  // namespace cinch::benchmarks
