#pragma once
// The texts of a pickle, each once, with what they mean as a key, an action or part of a frame.

#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/seeded_hash.h"
#include "cinch/snapshot/internal/recording.h"

namespace cinch::snapshot::internal {

class Texts {
 public:
  struct Entry {
    std::string_view text;
    std::uint64_t hash = 0;
    Key key{};
    std::optional<trace::Action> action;
    std::optional<trace::NameId> name;  ///< In the StackTable, once it was part of a frame.
  };

  Texts() : slots_(kFirstSlots, 0) { entries_.emplace_back(); }

  std::uint32_t intern(const char* data, std::size_t size) {
    const std::uint64_t hash = hash_of(data, size);
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      const Entry& entry = entries_[slots_[at]];
      if (entry.hash == hash && entry.text.size() == size && std::memcmp(entry.text.data(), data, size) == 0) {
        return slots_[at];
      }
    }
    return insert(std::string_view(data, size), hash, at);
  }
  Entry& operator[](std::uint32_t id) { return entries_[id]; }
  const Entry& operator[](std::uint32_t id) const { return entries_[id]; }

 private:
  static constexpr std::size_t kFirstSlots = 1u << 10;

  static std::uint64_t hash_of(const char* data, std::size_t size) {
    std::uint64_t hash = 0x9e3779b97f4a7c15 ^ size;
    const auto add = [&](std::uint64_t word) { hash = mix_hash(hash, word); };
    for (; size >= 8; size -= 8, data += 8) {
      std::uint64_t word;
      std::memcpy(&word, data, 8);
      add(word);
    }
    std::uint64_t word = 0;
    std::memcpy(&word, data, size);
    add(word);
    return hash;
  }

  std::uint32_t insert(std::string_view text, std::uint64_t hash, std::size_t at) {
    const auto id = static_cast<std::uint32_t>(entries_.size());
    Entry& entry = entries_.emplace_back();
    entry.text = kept_.emplace_back(text);
    entry.hash = hash;
    entry.key = key_named(text);
    entry.action = action_named(text);
    slots_[at] = id;
    if (entries_.size() * 2 > slots_.size()) grow();
    return id;
  }
  void grow() {
    std::vector<std::uint32_t> larger(slots_.size() * 2, 0);
    for (std::uint32_t id = 1; id < entries_.size(); ++id) {
      std::size_t at = entries_[id].hash & (larger.size() - 1);
      while (larger[at] != 0) at = (at + 1) & (larger.size() - 1);
      larger[at] = id;
    }
    slots_ = std::move(larger);
  }

  std::vector<std::uint32_t> slots_;  ///< Ids by hash; 0 is free.
  std::vector<Entry> entries_;
  std::deque<std::string> kept_;
};
}  // namespace cinch::snapshot::internal
