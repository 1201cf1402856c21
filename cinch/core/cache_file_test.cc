#include "cinch/core/cache_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "cinch/core/internal/cache_format.h"
#include "cinch/core/text.h"

namespace cinch {
namespace {
namespace fs = std::filesystem;

// An environment variable, for a test's time. nullptr: not set.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    if (value != nullptr)
      ::setenv(name_, value, 1);
    else
      ::unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

// Without the pains of write_file(): some tests do it often.
void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

class Cache : public testing::Test {
 protected:
  Cache() {
    std::string pattern = (fs::temp_directory_path() / "cinch-cache-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Cache() override { fs::remove_all(folder_); }

  CacheFile open(const std::string& title = "title") const { return {folder_ / "cache", "answers", title}; }
  // "-": not there.
  std::string answer(const std::string& key, const std::string& title = "title") const {
    const CacheFile cache = open(title);
    const std::string* value = cache.find(key);
    return value == nullptr ? "-" : *value;
  }
  void keep(const std::string& key, const std::string& value, const std::string& title = "title") const {
    CacheFile cache = open(title);
    cache.add(key, value);
    cache.save();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_ / "cache"), {}));
  }

  fs::path folder_;
};

TEST(CacheFolder, IsTheUsersChoiceThenTheDesktopsThenTheHomes) {
  const Variable home("HOME", "/home/me"), xdg("XDG_CACHE_HOME", "/cache"), chosen("CINCH_CACHE_DIR", "mine");
  EXPECT_EQ(cache_folder(), "mine");
  const Variable none("CINCH_CACHE_DIR", "");
  EXPECT_EQ(cache_folder(), std::nullopt);
  const Variable unset("CINCH_CACHE_DIR", nullptr);
  EXPECT_EQ(cache_folder(), "/cache/cinch");
  const Variable relative("XDG_CACHE_HOME", "cache");
  EXPECT_EQ(cache_folder(), "/home/me/.cache/cinch");
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(cache_folder(), std::nullopt);
}

TEST_F(Cache, KeepsBytesOfAnyKind) {
  const std::string key("\0key\n", 5), value("\xff\0", 2);
  keep(key, value);
  keep("empty", "");
  EXPECT_EQ(answer(key), value);
  EXPECT_EQ(answer("empty"), "");
  EXPECT_EQ(answer("other"), "-");
}

TEST_F(Cache, ANewAnswerReplacesTheOld) {
  keep("key", "old");
  CacheFile cache = open();
  cache.add("key", "new");
  EXPECT_EQ(*cache.find("key"), "new");
  cache.save();
  EXPECT_EQ(*cache.find("key"), "new");
  EXPECT_EQ(answer("key"), "new");
}

TEST_F(Cache, WithoutAnythingNewTouchesNothing) {
  open().save();
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
  keep("key", "value");
  const auto file = open().file();
  const auto before = fs::last_write_time(file) - std::chrono::hours(1);
  fs::last_write_time(file, before);
  open().save();
  EXPECT_EQ(fs::last_write_time(file), before);
}

TEST_F(Cache, OtherTitlesAreOtherFiles) {
  keep("key", "value");
  EXPECT_EQ(answer("key", "another title"), "-");
  keep("key", "another value", "another title");
  EXPECT_EQ(answer("key"), "value");
  EXPECT_EQ(answer("key", "another title"), "another value");
  EXPECT_EQ(files(), 2u);
  fs::copy_file(open("another title").file(), open().file(), fs::copy_options::overwrite_existing);
  EXPECT_EQ(answer("key"), "-");  // As if their hashes were alike.
}

TEST_F(Cache, WritersAddToWhatOthersWroteMeanwhile) {
  CacheFile one = open(), two = open();
  one.add("1", "one");
  two.add("2", "two");
  one.save();
  two.save();
  EXPECT_EQ(answer("1"), "one");
  EXPECT_EQ(answer("2"), "two");
  EXPECT_EQ(*two.find("1"), "one");
}

TEST_F(Cache, ProcessesThatWriteAtOnceLeaveAWholeFile) {
  constexpr int kWriters = 4, kEntries = 10;
  std::vector<pid_t> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    for (int i = 0; i < kEntries; ++i) keep(std::to_string(writer) + "." + std::to_string(i), std::string(5000, 'a'));
    ::_exit(0);
  }
  for (const pid_t writer : writers) ::waitpid(writer, nullptr, 0);
  const CacheFile cache = open();
  int known = 0;
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int i = 0; i < kEntries; ++i) {
      const std::string* value = cache.find(std::to_string(writer) + "." + std::to_string(i));
      if (value == nullptr) continue;  // It waited too long.
      ++known;
      EXPECT_EQ(*value, std::string(5000, 'a'));
    }
  }
  EXPECT_GT(known, 0);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Cache, ADamagedFileIsEmptyAndReplaced) {
  keep("key", "value");
  keep("other key", "other value");
  const auto file = open().file();
  const std::string whole = read_file(file);
  const auto expect_refused = [&](const std::string& bytes) {
    overwrite(file, bytes);
    EXPECT_EQ(answer("key"), "-");
    EXPECT_EQ(answer("other key"), "-");
  };
  for (std::size_t length = 0; length < whole.size(); ++length) expect_refused(whole.substr(0, length));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    expect_refused(bytes);
  }
  expect_refused(whole + '\0');
  keep("new", "value");
  EXPECT_EQ(answer("new"), "value");
  EXPECT_EQ(answer("key"), "-");
}

TEST_F(Cache, AStrangersFileWithARightChecksumIsCheckedAllTheSame) {
  const auto file = open().file();
  fs::create_directories(file.parent_path());
  const std::string good = internal::encode_entries("title", {{"key", "value"}});
  const std::string key_length("\xff\xff\xff\xff", 4), no_value(4, '\0');
  for (const std::string& body : {std::string(), key_length, good + "abc", good + key_length + no_value,
                                  good + good.substr(9) /* a key twice */}) {
    overwrite(file, internal::seal(body));
    EXPECT_EQ(answer("key"), "-");
  }
  overwrite(file, internal::seal(good));
  EXPECT_EQ(answer("key"), "value");
}

TEST_F(Cache, APipeInItsPlaceIsNotWaitedFor) {
  const auto file = open().file();
  fs::create_directories(file.parent_path());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  keep("key", "value");
  EXPECT_EQ(answer("key"), "-");
  fs::remove(file);
  ASSERT_EQ(::mkfifo((file.string() + ".tmp").c_str(), 0600), 0);
  keep("key", "value");
  EXPECT_EQ(answer("key"), "-");
}

TEST_F(Cache, AFolderThatCannotBeWrittenIsNoCache) {
  overwrite(folder_ / "cache", "a file where the folder should be");
  CacheFile cache = open();
  cache.add("key", "value");
  cache.save();
  EXPECT_EQ(*cache.find("key"), "value");
  EXPECT_EQ(answer("key"), "-");
}

// Where no file may grow past 10,000 bytes: it does not come back.
[[noreturn]] void fill_the_disk(const std::function<bool()>& holds) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  limit.rlim_cur = limit.rlim_max = 10000;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::_exit(holds() ? 0 : 1);
}

TEST_F(Cache, AFullDiskIsNoCache) {
  keep("key", "value");
  const auto nothing_changes = [&] {
    keep("large", std::string(20000, 'a'));
    return answer("large") == "-" && answer("key") == "value" && files() == 1;
  };
  EXPECT_EXIT(fill_the_disk(nothing_changes), testing::ExitedWithCode(0), "");
}

TEST_F(Cache, FullItStartsAfresh) {
  const std::string large(internal::kMostCacheBytes / 2, 'a');
  keep("1", large);
  keep("2", "small");
  EXPECT_EQ(answer("1"), large);
  keep("3", large);
  EXPECT_EQ(answer("1"), "-");
  EXPECT_EQ(answer("2"), "-");
  EXPECT_EQ(answer("3"), large);
  keep("4", large + large);  // Too large by itself.
  EXPECT_EQ(answer("4"), "-");
  EXPECT_EQ(answer("3"), large);
  EXPECT_LE(fs::file_size(open().file()), internal::kMostCacheBytes);
}
}  // namespace
}  // namespace cinch
