#include "cinch/record/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cinch/record/recorder.h"
#include "cinch/trace/sink.h"

namespace cinch::record {
namespace {
using namespace cinch::literals;

/// Each byte of them `value`: by this thread alone, unlike fill_().
at::Tensor bytes(std::int64_t count, int value = 0) {
  auto tensor = at::empty({count}, at::kByte);
  std::memset(tensor.data_ptr(), value, static_cast<std::size_t>(count));
  return tensor;
}

/// As a training step: some tensors are held for a later part, some are passing.
void plain_step(std::int64_t scale = 1000) {
  std::vector<at::Tensor> held;
  for (int layer = 1; layer <= 5; ++layer) {
    auto passing = bytes(scale * layer * 11, layer);
    held.push_back(bytes(scale * layer * 7, layer));
  }
  for (int layer = 5; layer >= 1; --layer) {
    auto gradient = bytes(scale * layer * 7, -layer);
    held.pop_back();
  }
}

template <class Work>
void run(Arena& arena, const Work& work, std::int64_t kind = 0) {
  const Arena::Step step(arena, kind);
  work();
}

TEST(Arena, TheFirstStepIsWatchedAndTheOthersAreServed) {
  Arena arena;
  run(arena, [] { plain_step(); });
  EXPECT_EQ(arena.stats().served, 0);
  EXPECT_EQ(arena.stats().mapped, 0_B);
  run(arena, [] { plain_step(); });
  EXPECT_EQ(arena.stats().served, 15);
  run(arena, [] { plain_step(); });
  EXPECT_EQ(arena.stats().served, 30);
  EXPECT_EQ(arena.stats().missed, 0);
  EXPECT_EQ(arena.stats().plans, 1);
}

TEST(Arena, ServesTheSameAddressesEveryTime) {
  Arena arena;
  std::vector<void*> places;
  for (int i = 0; i < 4; ++i) run(arena, [&] { places.push_back(bytes(1 << 20).data_ptr()); });
  EXPECT_EQ(places[1], places[2]);
  EXPECT_EQ(places[1], places[3]);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(places[1]) % 64, 0u);
}

TEST(Arena, ReservesAtMostFivePercentMoreThanIsLive) {
  trace::PeakMeter meter;
  const auto kept = bytes(2'000'000);
  const Recorder recorder(meter);
  const auto weights = bytes(3'000'000);
  Arena arena;
  for (int i = 0; i < 5; ++i) run(arena, [] { plain_step(100'000); });
  EXPECT_GT(arena.stats().served, 0);
  EXPECT_EQ(recorder.peak(), meter.peak());
  EXPECT_GE(recorder.reserved_peak(), recorder.peak());
  // The recorder has not seen `kept`, which is older.
  EXPECT_LE(recorder.reserved_peak().count(), (recorder.peak().count() + 2'000'000) * 105 / 100);
}

TEST(Arena, APlanThatWouldTakeTooMuchIsNotUsed) {
  Arena arena;
  // Each is live with the next: three quarters of the height are live at once at most.
  const auto ring = [] {
    auto a = bytes(10'000);
    auto b = bytes(10'000);
    for (int i = 0; i < 10; ++i) {
      a = at::Tensor();
      a = bytes(9'000 + i * 1'000);
      std::swap(a, b);
    }
  };
  for (int i = 0; i < 3; ++i) run(arena, ring);
  const auto stats = arena.stats();
  EXPECT_LE(stats.mapped.count(), (stats.heap.count() + 36'000) * 105 / 100 + 4096);
}

TEST(Arena, TheCapCountsWhatIsRequested) {
  Bytes peak;
  Arena arena;
  for (const Bytes over : {0_B, 1_B}) {
    trace::PeakMeter meter;
    const Recorder recorder(meter, {.cap = peak.count() > 0 ? std::optional(peak - over) : std::nullopt});
    for (int i = 0; i < 3; ++i) {
      if (over == 0_B) {
        EXPECT_NO_THROW(run(arena, [] { plain_step(); }));
      } else {
        EXPECT_THROW(run(arena, [] { plain_step(); }), OutOfMemoryError);
      }
    }
    peak = recorder.peak();
  }
}

TEST(Arena, WhatOutlivesAStepComesFromTheHeap) {
  Arena arena;
  std::vector<at::Tensor> losses;
  std::size_t served = 0;
  for (int i = 0; i < 20; ++i) {
    run(arena, [&] {
      auto passing = bytes(50'000, 1);
      losses.push_back(bytes(50'000, i));
      auto other = bytes(50'000, 2);
    });
    served += 2;
  }
  EXPECT_EQ(arena.stats().missed, 0);
  EXPECT_EQ(arena.stats().served, static_cast<std::int64_t>(served) - 2);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::all(losses[i] == i).item<bool>());
}

TEST(Arena, WhatWasPlannedAndThenLivesOnKeepsItsPlace) {
  Arena arena;
  at::Tensor kept;
  for (int i = 0; i < 6; ++i)
    run(arena, [&] {
      auto a = bytes(100'000, i);
      if (i == 2) kept = a;
    });
  EXPECT_TRUE(at::all(kept == 2).item<bool>());
  EXPECT_GT(arena.stats().missed, 0);
  kept = at::Tensor();
  const auto missed = arena.stats().missed;
  for (int i = 0; i < 3; ++i) run(arena, [&] { auto a = bytes(100'000); });
  EXPECT_EQ(arena.stats().missed, missed);
}

TEST(Arena, TensorsOutliveIt) {
  at::Tensor kept;
  {
    Arena arena;
    for (int i = 0; i < 3; ++i)
      run(arena, [&] {
        auto a = bytes(100'000, i);
        if (i == 2) kept = a;
      });
    EXPECT_EQ(arena.stats().served, 2);
  }
  EXPECT_TRUE(at::all(kept == 2).item<bool>());
  {
    Arena next;
    EXPECT_GT(next.stats().mapped, 100'000_B) << "the kept tensor's";
    for (int i = 0; i < 3; ++i) run(next, [] { plain_step(); });
    EXPECT_TRUE(at::all(kept == 2).item<bool>());
    kept = at::Tensor();
    run(
        next, [] {}, 1);
    EXPECT_EQ(next.stats().mapped, 0_B);
  }
}

TEST(Arena, KindsShareOneBlock) {
  Arena arena;
  for (int i = 0; i < 4; ++i) {
    run(
        arena, [] { plain_step(1000); }, 0);
    run(
        arena, [] { plain_step(600); }, 1);
  }
  EXPECT_EQ(arena.stats().plans, 2);
  EXPECT_EQ(arena.stats().missed, 0);
  EXPECT_EQ(arena.stats().served, 2 * 3 * 15);
  const auto both = arena.stats().mapped;
  Arena::Step other(arena, 2);
  EXPECT_EQ(arena.stats().mapped, 0_B) << "a step without a plan needs the heap";
  EXPECT_GT(both, 0_B);
}

TEST(Arena, PlansAnewWhatHasChanged) {
  Arena arena;
  for (int i = 0; i < 3; ++i) run(arena, [] { plain_step(1000); });
  for (int i = 0; i < 2; ++i) run(arena, [] { plain_step(1700); });
  EXPECT_EQ(arena.stats().missed, 2 * 15);
  for (int i = 0; i < 2; ++i) run(arena, [] { plain_step(1700); });
  EXPECT_EQ(arena.stats().missed, 2 * 15);
  EXPECT_EQ(arena.stats().plans, 2);
  run(arena, [] { plain_step(1000); });  // Once: no reason to.
  run(arena, [] { plain_step(1700); });
  EXPECT_EQ(arena.stats().plans, 2);
}

TEST(Arena, AStepThatFailsTeachesNothing) {
  Arena arena;
  const auto failing = [] {
    auto a = bytes(70'000);
    throw std::runtime_error("midway");
  };
  EXPECT_THROW(run(arena, failing), std::runtime_error);
  run(arena, [] { plain_step(); });
  EXPECT_EQ(arena.stats().plans, 0);
  run(arena, [] { plain_step(); });
  EXPECT_THROW(run(arena, failing), std::runtime_error);
  const auto missed = arena.stats().missed;
  run(arena, [] { plain_step(); });
  EXPECT_EQ(arena.stats().missed, missed);
  EXPECT_EQ(arena.stats().plans, 1);
}

TEST(Arena, ThereIsOneWithOneStepAtATime) {
  Arena arena;
  EXPECT_THROW(Arena(), UsageError);
  const Arena::Step step(arena);
  EXPECT_THROW(Arena::Step(arena, 1), UsageError);
}

TEST(Arena, EventsAreTheSameWithAndWithout) {
  const auto events = [](bool with) {
    struct Lines final : trace::Sink {
      std::vector<std::tuple<trace::Action, std::int64_t, trace::AllocationId>> lines;
      void on_event(const trace::Event& event) override {
        lines.emplace_back(event.action, event.bytes.count(), event.allocation);
      }
    } lines;
    const Recorder recorder(lines);
    std::optional<Arena> arena;
    if (with) arena.emplace();
    for (int i = 0; i < 3; ++i) {
      std::optional<Arena::Step> step;
      if (arena) step.emplace(*arena);
      plain_step();
    }
    return lines.lines;
  };
  EXPECT_EQ(events(true), events(false));
}

// ---- whatever a step does, no tensor ever shares a byte with another
// --------------------------------------------------

/// Tensors that know what was written into them.
class Pool {
 public:
  void make(std::int64_t count) {
    const auto value = static_cast<std::uint8_t>(++made_ % 251);
    live_.push_back({bytes(count, value), value});
  }
  /// Checked, then freed.
  void drop(std::size_t which) {
    check(live_[which]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  std::size_t size() const { return live_.size(); }
  void check_all() const {
    for (const auto& tensor : live_) check(tensor);
  }

 private:
  struct Live {
    at::Tensor tensor;
    std::uint8_t value;
  };
  static void check(const Live& live) {
    const auto* data = live.tensor.const_data_ptr<std::uint8_t>();
    const auto count = live.tensor.numel();
    for (std::int64_t i = 0; i < count; ++i) {
      if (data[i] != live.value) {
        ADD_FAILURE() << "byte " << i << " of " << count << " was overwritten";
        return;
      }
    }
  }
  std::vector<Live> live_;
  std::uint64_t made_ = 0;
};

/// One step of a random program: always the same but for `strangeness` of the decisions, which go another way.
void random_step(std::uint64_t program, std::mt19937_64& chance, double strangeness, Pool& pool) {
  std::mt19937_64 usual(program);
  const auto strange = [&] { return std::uniform_real_distribution<>(0, 1)(chance) < strangeness; };
  const std::size_t before = pool.size();
  for (int i = 0; i < 60; ++i) {
    const auto size = static_cast<std::int64_t>(usual() % 60'000), where = static_cast<std::int64_t>(usual() % 1000);
    const bool makes = usual() % 5 < 3;
    if (strange()) pool.make(static_cast<std::int64_t>(chance() % 60'000));  // an extra request
    if (strange()) continue;                                                 // one that does not come
    if (makes || pool.size() == before)
      pool.make(strange() ? static_cast<std::int64_t>(chance() % 60'000) : size + 1);
    else
      pool.drop(before + (strange() ? chance() : static_cast<std::uint64_t>(where)) % (pool.size() - before));
  }
  while (pool.size() > before && !strange()) pool.drop(strange() ? before : pool.size() - 1);  // else it lives on
  while (pool.size() > 40) pool.drop(0);
}

TEST(ArenaSafety, StrangeStepsCorruptNothing) {
  std::int64_t served = 0, missed = 0, plans = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 chance(seed);
    Pool pool;
    {
      Arena arena;
      for (int i = 0; i < 40; ++i) {
        // Whole stretches without a deviation, so that plans are made and used, then all kinds of them.
        const double strangeness = i % 8 < 5 ? 0 : std::uniform_real_distribution<>(0, 0.2)(chance);
        run(
            arena, [&] { random_step(seed * 100 + static_cast<std::uint64_t>(i) / 20, chance, strangeness, pool); },
            static_cast<std::int64_t>(chance() % 2));
        pool.check_all();
      }
      served += arena.stats().served;
      missed += arena.stats().missed;
      plans += arena.stats().plans;
    }
    pool.check_all();
  }
  EXPECT_GT(served, 2000);
  EXPECT_GT(missed, 200);
  EXPECT_GT(plans, 24);
}

TEST(ArenaSafety, ThreadsMayAllocateAndFreeMeanwhile) {
  Arena arena;
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (std::uint64_t id = 1; id <= 3; ++id)
    others.emplace_back([&, id] {
      std::mt19937_64 chance(id);
      Pool pool;
      while (!done) {
        pool.make(static_cast<std::int64_t>(chance() % 40'000));
        if (pool.size() > 10) pool.drop(chance() % pool.size());
      }
      pool.check_all();
    });
  Pool pool;
  std::mt19937_64 chance(9);
  for (int i = 0; i < 60; ++i) run(arena, [&] { random_step(5, chance, i % 2 == 0 ? 0 : 0.02, pool); });
  // Another thread frees what this one made, after the step.
  std::vector<at::Tensor> passed_on;
  for (int i = 0; i < 10; ++i) {
    run(
        arena,
        [&] {
          passed_on.push_back(bytes(30'000, i));
          plain_step();
        },
        1);
    std::thread([last = std::move(passed_on)]() mutable { last.clear(); }).join();
    passed_on.clear();
  }
  done = true;
  for (auto& other : others) other.join();
  pool.check_all();
}
}  // namespace
}  // namespace cinch::record
