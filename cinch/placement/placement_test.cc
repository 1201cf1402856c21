#include "cinch/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cinch/core/error.h"

namespace cinch::placement {
namespace {
using namespace literals;
using testing::HasSubstr;

constexpr auto kNoDeadline = std::chrono::milliseconds::max();

Options deterministic(std::int64_t steps) { return {.time_limit = kNoDeadline, .step_limit = steps}; }

std::int64_t below(std::mt19937& random, std::int64_t limit) { return random() % limit; }

std::vector<Buffer> random_buffers(std::mt19937& random, int count, std::int64_t end, std::int64_t largest) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < count; ++i) {
    const std::int64_t a = below(random, end), b = below(random, end);
    buffers.push_back({std::min(a, b), std::max(a, b) + 1, Bytes(1 + below(random, largest))});
  }
  return buffers;
}

/// A rectangle of time and bytes, cut up: fits without a gap.
std::vector<Buffer> cut_up(std::mt19937& random, std::size_t count, std::int64_t end, std::int64_t height) {
  struct Piece {
    std::int64_t lower, upper, bottom, top;
  };
  std::vector<Piece> pieces = {{0, end, 0, height}};
  while (pieces.size() < count) {
    Piece& piece = pieces[below(random, static_cast<std::int64_t>(pieces.size()))];
    Piece other = piece;
    if (random() % 2 == 0) {
      if (piece.upper - piece.lower < 2) continue;
      piece.upper = other.lower = piece.lower + 1 + below(random, piece.upper - piece.lower - 1);
    } else {
      if (piece.top - piece.bottom < 2) continue;
      piece.top = other.bottom = piece.bottom + 1 + below(random, piece.top - piece.bottom - 1);
    }
    pieces.push_back(other);
  }
  std::vector<Buffer> buffers;
  buffers.reserve(pieces.size());
  for (const Piece& piece : pieces) buffers.push_back({piece.lower, piece.upper, Bytes(piece.top - piece.bottom)});
  std::shuffle(buffers.begin(), buffers.end(), random);
  return buffers;
}

/// The plain way: moment by moment.
Bytes plain_load(const std::vector<Buffer>& buffers) {
  Bytes most;
  for (const Buffer& moment : buffers) {
    Bytes live;
    for (const Buffer& buffer : buffers) {
      if (buffer.lower <= moment.lower && moment.lower < buffer.upper) live += buffer.size;
    }
    most = std::max(most, live);
  }
  return most;
}

/// The plain way: each pair.
bool plain_valid(const std::vector<Buffer>& buffers, const std::vector<Bytes>& offsets, Bytes capacity) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& a = buffers[i];
    if (offsets[i] < Bytes(0) || offsets[i] + a.size > capacity) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const Buffer& b = buffers[j];
      if (a.lower < b.upper && b.lower < a.upper && offsets[i] < offsets[j] + b.size &&
          offsets[j] < offsets[i] + a.size) {
        return false;
      }
    }
  }
  return true;
}

/// The plain way: whatever order they are stacked in, each as low as it goes on what is below. Tries all orders.
std::int64_t plain_optimum(const std::vector<Buffer>& buffers) {
  std::vector<std::size_t> order(buffers.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  do {
    std::vector<std::int64_t> top(buffers.size(), 0);
    std::int64_t height = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Buffer& buffer = buffers[order[k]];
      std::int64_t offset = 0;
      for (std::size_t j = 0; j < k; ++j) {
        const Buffer& other = buffers[order[j]];
        if (buffer.lower < other.upper && other.lower < buffer.upper) offset = std::max(offset, top[order[j]]);
      }
      top[order[k]] = offset + buffer.size.count();
      height = std::max(height, top[order[k]]);
    }
    best = std::min(best, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

void expect_valid(const std::vector<Buffer>& buffers, const Placement& placement) {
  EXPECT_EQ(validate(buffers, placement.offsets, placement.height), std::nullopt);
  EXPECT_LE(placement.bound, placement.height);
  EXPECT_LE(live_load(buffers), placement.bound);
}

TEST(Placement, BuffersLiveTogetherLieApartOthersShare) {
  const std::vector<Buffer> buffers = {{0, 2, 2_MiB}, {1, 3, 1_MiB}, {2, 4, 2_MiB}};
  const Placement placement = place(buffers);
  EXPECT_EQ(placement.height, 3_MiB);
  EXPECT_TRUE(placement.optimal());
  EXPECT_EQ(placement.offsets[0], placement.offsets[2]);
}

TEST(Placement, NothingNeedsNothing) {
  const Placement placement = place({});
  EXPECT_EQ(placement.height, 0_B);
  EXPECT_TRUE(placement.optimal());
  const std::vector<Buffer> nothings = {{0, 9, 0_B}, {5, 5, 8_B}};
  EXPECT_EQ(place(nothings).height, 0_B);
  EXPECT_EQ(validate(nothings, place(nothings).offsets, 0_B), std::nullopt);
  EXPECT_EQ(live_load(nothings), 0_B);
}

TEST(Placement, OffsetsAreMultiplesOfTheAlignment) {
  const std::vector<Buffer> buffers = {{0, 2, 100_B}, {0, 2, 64_B}, {1, 2, 1_B}};
  const Placement placement = place(buffers, {.alignment = 64_B});
  for (const Bytes offset : placement.offsets) EXPECT_EQ(offset.count() % 64, 0);
  EXPECT_EQ(placement.height, 256_B);
  EXPECT_EQ(live_load(buffers, 64_B), 256_B);
  EXPECT_EQ(live_load(buffers), 165_B);
  EXPECT_EQ(validate(buffers, placement.offsets, placement.height), std::nullopt);
}

TEST(Placement, AnyAlignmentWillDo) {
  const std::vector<Buffer> buffers = {{0, 1, 7_B}, {0, 1, 3_B}};
  EXPECT_EQ(place(buffers, {.alignment = 5_B}).height, 15_B);
}

/// Like a set of eight whose load is 6 and whose optimum is 7, found among random ones; most small sets reach their
/// load.
std::vector<Buffer> awkward_buffers(std::mt19937& random) {
  std::vector<Buffer> buffers = {{3, 6, 1_B}, {4, 5, 2_B}, {0, 4, 4_B},  {5, 9, 1_B},
                                 {1, 3, 1_B}, {6, 7, 2_B}, {7, 10, 4_B}, {4, 7, 3_B}};
  for (Buffer& buffer : buffers) buffer.size = buffer.size * 8 + Bytes(below(random, 2));
  std::shuffle(buffers.begin(), buffers.end(), random);
  return buffers;
}

TEST(Placement, SmallOnesAreOptimalAndProvedSo) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto buffers = random_buffers(random, 7, 12, 6);
    const Placement placement = place(buffers, deterministic(1'000'000));
    expect_valid(buffers, placement);
    ASSERT_EQ(placement.height.count(), plain_optimum(buffers));
    ASSERT_TRUE(placement.optimal());
  }
}

TEST(Placement, TheOptimumMayBeAboveTheLoad) {
  std::mt19937 random(9);
  int above_load = 0;
  for (int round = 0; round < 50; ++round) {
    const auto buffers = awkward_buffers(random);
    const Placement placement = place(buffers, deterministic(1'000'000));
    expect_valid(buffers, placement);
    ASSERT_EQ(placement.height.count(), plain_optimum(buffers));
    ASSERT_TRUE(placement.optimal());
    above_load += placement.height > live_load(buffers);
  }
  EXPECT_GT(above_load, 10);
}

TEST(Placement, ACapacityBelowTheOptimumIsProvedTooSmall) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const auto buffers = awkward_buffers(random);
    const Bytes optimum(plain_optimum(buffers));
    Options options = deterministic(1'000'000);
    options.capacity = optimum;
    EXPECT_LE(place(buffers, options).height, optimum);
    options.capacity = optimum - 1_B;
    const Placement placement = place(buffers, options);
    EXPECT_EQ(placement.bound, optimum);
    expect_valid(buffers, placement);
  }
}

TEST(Placement, CapacitiesBelowTheLoadGiveTheBoundAndAValidPlacement) {
  const std::vector<Buffer> buffers = {{0, 2, 2_B}, {1, 3, 1_B}};
  for (const std::int64_t capacity : {-5, 0, 2}) {
    const Placement placement = place(buffers, {.capacity = Bytes(capacity)});
    EXPECT_EQ(placement.bound, 3_B);
    expect_valid(buffers, placement);
  }
}

struct Instance {
  std::string name;
  std::size_t buffers;
  std::int64_t load;
};
void PrintTo(const Instance& instance, std::ostream* out) { *out << instance.name; }

class MiniMalloc : public testing::TestWithParam<Instance> {};

TEST_P(MiniMalloc, IsSolved) {
  const auto [name, count, load] = GetParam();
  const auto buffers = read_csv(std::string(CINCH_SOURCE_DIR) + "/tests/data/minimalloc/" + name + ".1048576.csv");
  ASSERT_EQ(buffers.size(), count);
  EXPECT_EQ(live_load(buffers), Bytes(load));
  Options options = deterministic(2'000'000);
  options.capacity = 1_MiB;
  const Placement placement = place(buffers, options);
  EXPECT_EQ(validate(buffers, placement.offsets, 1_MiB), std::nullopt);
}
INSTANTIATE_TEST_SUITE_P(Instances, MiniMalloc,
                         testing::Values(Instance{"A", 154, 1048576}, Instance{"B", 170, 1048576},
                                         Instance{"C", 203, 1039360}, Instance{"D", 213, 986112},
                                         Instance{"E", 215, 1048576}, Instance{"F", 296, 1048576}),
                         [](const auto& info) { return info.param.name; });

TEST(Placement, RectanglesCutUpFitAgain) {
  std::mt19937 random(3);
  for (int round = 0; round < 10; ++round) {
    const auto buffers = cut_up(random, 120, 1000, 1000);
    Options options = deterministic(1'000'000);
    options.capacity = 1000_B;
    const Placement placement = place(buffers, options);
    expect_valid(buffers, placement);
    EXPECT_LE(placement.height, 1000_B) << "round " << round;
  }
}

/// Most of a short life, sizes of all magnitudes, as in a training step.
std::vector<Buffer> like_a_step(std::mt19937& random, int count, int longest) {
  std::vector<Buffer> buffers;
  buffers.reserve(count);
  for (int i = 0; i < count; ++i) {
    const std::int64_t lower = below(random, 2 * count), life = std::int64_t{1} << below(random, longest);
    buffers.push_back({lower, lower + life, Bytes(std::int64_t{512} << below(random, 14))});
  }
  return buffers;
}

// Where the greedy orders end further away, they are corrected.
TEST(Placement, HundredsComeNearTheBoundInLittleWork) {
  std::mt19937 random(5);
  int corrected = 0;
  for (int round = 0; round < 10; ++round) {
    const auto buffers = like_a_step(random, 600, 10);
    const Bytes greedy = place(buffers, deterministic(0)).height;
    const Placement placement = place(buffers, deterministic(100'000));
    expect_valid(buffers, placement);
    EXPECT_LE(placement.height.count(), placement.bound.count() * 102 / 100);
    corrected += greedy.count() > placement.bound.count() * 102 / 100;
  }
  EXPECT_GT(corrected, 0);
}

TEST(Placement, TensOfThousandsComeNearTheBound) {
  std::mt19937 random(5);
  const auto buffers = like_a_step(random, 20'000, 14);
  const Placement placement = place(buffers, deterministic(200'000));
  expect_valid(buffers, placement);
  EXPECT_LE(placement.height.count(), placement.bound.count() * 102 / 100);
}

TEST(Placement, IsDeterministicUnderAStepLimit) {
  std::mt19937 random(13);
  const auto buffers = random_buffers(random, 300, 200, 1'000'000);
  const Placement once = place(buffers, deterministic(20'000)), again = place(buffers, deterministic(20'000));
  EXPECT_EQ(once.offsets, again.offsets);
  EXPECT_EQ(once.bound, again.bound);
  expect_valid(buffers, once);
}

TEST(Placement, MoreStepsGiveNothingWorse) {
  std::mt19937 random(17);
  const auto buffers = random_buffers(random, 200, 200, 1000);
  Bytes before(std::numeric_limits<std::int64_t>::max());
  for (const std::int64_t steps : {0, 1000, 10'000, 100'000}) {
    const Placement placement = place(buffers, deterministic(steps));
    expect_valid(buffers, placement);
    EXPECT_LE(placement.height, before);
    before = placement.height;
  }
}

TEST(Placement, ImpossibleInputIsRefused) {
  EXPECT_THROW(place(std::vector<Buffer>{{2, 1, 1_B}}), UsageError);
  EXPECT_THROW(live_load(std::vector<Buffer>{{0, 1, Bytes(-1)}}), UsageError);
  EXPECT_THROW(place(std::vector<Buffer>{{0, 1, 1_B}}, {.alignment = 0_B}), UsageError);
  const Bytes huge(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(place(std::vector<Buffer>{{0, 1, huge}}).height, huge);
  EXPECT_THROW(place(std::vector<Buffer>{{0, 1, huge}, {5, 6, huge}}), OverflowError);
  EXPECT_THROW(place(std::vector<Buffer>{{0, 1, huge}}, {.alignment = 64_B}), OverflowError);
}

TEST(LiveLoad, IsThatOfTheBusiestMoment) {
  std::mt19937 random(19);
  for (int round = 0; round < 100; ++round) {
    const auto buffers = random_buffers(random, 20, 30, 100);
    EXPECT_EQ(live_load(buffers), plain_load(buffers));
  }
}

TEST(Validate, SaysWhatIsWrong) {
  const std::vector<Buffer> buffers = {{0, 2, 4_B}, {1, 3, 4_B}};
  const auto fault = [&](Bytes first, Bytes second) {
    return validate(buffers, std::vector<Bytes>{first, second}, 8_B).value_or("none");
  };
  EXPECT_EQ(fault(0_B, 4_B), "none");
  EXPECT_EQ(fault(0_B, 3_B), "buffer 1 (4 bytes at 3, live 1 to 3) overlaps buffer 0 (4 bytes at 0, live 0 to 2)");
  EXPECT_THAT(fault(1_B, 4_B), HasSubstr("overlaps"));
  EXPECT_THAT(fault(2_B, 2_B), HasSubstr("overlaps"));
  EXPECT_THAT(fault(Bytes(-1), 4_B), HasSubstr("begins below the arena"));
  EXPECT_THAT(fault(0_B, 5_B), HasSubstr("ends above the capacity of 8 bytes"));
  EXPECT_THAT(fault(0_B, Bytes(std::numeric_limits<std::int64_t>::max())), HasSubstr("ends above"));
  EXPECT_EQ(validate(buffers, std::vector<Bytes>{0_B}, 8_B), "1 offsets for 2 buffers");
}

TEST(Validate, AgreesWithThePlainWay) {
  std::mt19937 random(23);
  int valid = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto buffers = random_buffers(random, 6, 20, 5);
    std::vector<Bytes> offsets;
    for (std::size_t i = 0; i < buffers.size(); ++i) offsets.emplace_back(below(random, 25));
    const bool plain = plain_valid(buffers, offsets, 28_B);
    ASSERT_EQ(!validate(buffers, offsets, 28_B), plain);
    valid += plain;
  }
  EXPECT_GT(valid, 100);
}

TEST(Csv, ColumnsComeInAnyOrder) {
  const std::vector<Buffer> expected = {{1, 5, 7_B}, {-2, 3, 9_B}};
  EXPECT_EQ(parse_csv("id,lower,upper,size\na,1,5,7\nb,-2,3,9\n", "x"), expected);
  EXPECT_EQ(parse_csv("size, upper,id,lower\r\n7,5,a,1\r\n\r\n 9,3,,-2", "x"), expected);
  EXPECT_THAT(parse_csv("id,lower,upper,size", "x"), testing::IsEmpty());
}

TEST(Csv, BadInputIsNamedWithItsPlace) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      parse_csv(text, "x.csv");
    } catch (const DataError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(error(""), "x.csv, byte 0: an empty file (line 0)");
  EXPECT_EQ(error("id,lower,upper\n"), "x.csv, byte 9: no column \"size\" (line 1)");
  EXPECT_EQ(error("id,lower,upper,size,id\n"), "x.csv, byte 20: column \"id\" twice (line 1)");
  EXPECT_EQ(error("id,lower,upper,size,alignment\n"), "x.csv, byte 20: an unknown column \"alignment\" (line 1)");
  EXPECT_EQ(error("id,lower,upper,size\n0,1,2\n"), "x.csv, byte 25: no size (line 2)");
  EXPECT_EQ(error("id,lower,upper,size\n0,1,2,3,4\n"), "x.csv, byte 28: more fields than columns: \"4\" (line 2)");
  EXPECT_EQ(error("id,lower,upper,size\n0,1,2,3\n0,1,x,3\n"), "x.csv, byte 32: \"x\" is no integer (line 3)");
  EXPECT_EQ(error("id,lower,upper,size\n0,1,2,1.5\n"), "x.csv, byte 26: \"1.5\" is no integer (line 2)");
  EXPECT_THAT(error("id,lower,upper,size\n0,1,2,9223372036854775808\n"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(error("id,lower,upper,size\n0,1,2,-3\n"), HasSubstr("a negative size"));
  EXPECT_THAT(error("id,lower,upper,size\n0,2,1,3\n"), HasSubstr("ends before it begins"));
  EXPECT_THROW(read_csv("/no/such/file.csv"), IoError);
}
}  // namespace
}  // namespace cinch::placement
