#include "cinch/interchange/huggingface_weights.h"

#include <gtest/gtest.h>

namespace cinch::interchange {
namespace {

TEST(LoadedWeights, AreDescribedInALine) {
  EXPECT_EQ(describe({}), "");
  EXPECT_EQ(describe({{"classifier.bias"}, {}}),
            "1 tensor is not in the weights and begins at random ('classifier.bias')");
  EXPECT_EQ(describe({{}, {"a", "b"}}), "2 tensors of the weights are not used ('a', 'b')");
  EXPECT_EQ(
      describe({{"a", "b", "c", "d", "e"}, {"pooler"}}),
      "5 tensors are not in the weights and begin at random ('a', 'b', 'c' and 2 more); 1 tensor of the weights is "
      "not used ('pooler')");
  EXPECT_EQ(describe({{"line\nbreak"}, {}}).find('\n'), std::string::npos) << "names come from files";
}
}  // namespace
}  // namespace cinch::interchange
