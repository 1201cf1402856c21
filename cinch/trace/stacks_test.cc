#include "cinch/trace/stacks.h"

#include <gtest/gtest.h>

#include <vector>

namespace cinch::trace {
namespace {

TEST(StackTable, KeepsEachStackOnce) {
  StackTable table;
  const Frame inner{table.names().intern("model.py"), table.names().intern("forward"), 39};
  const Frame outer{table.names().intern("train.py"), table.names().intern("main"), 7};
  const std::vector<Frame> stack{inner, outer}, other{outer};
  const StackId id = table.intern(stack);
  EXPECT_EQ(table.intern(stack), id);
  EXPECT_NE(table.intern(other), id);
  EXPECT_EQ(table.size(), 3u);  // The empty one too.
  ASSERT_EQ(table[id].size(), 2u);
  EXPECT_EQ(table[id][0], inner);
  EXPECT_EQ(table.names()[table[id][1].file], "train.py");
}

TEST(StackTable, TheFirstIsTheEmptyOne) {
  StackTable table;
  EXPECT_EQ(table.intern({}), StackId{0});
  EXPECT_TRUE(table[StackId{0}].empty());
  EXPECT_THROW(table[StackId{1}], std::out_of_range);
}
}  // namespace
}  // namespace cinch::trace
