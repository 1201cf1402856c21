#include "cinch/interchange/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"

namespace cinch::interchange {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() { fs::create_directories(folder_); }
  ~SafetensorsTest() override { fs::remove_all(folder_); }

  /// A file of `header` (its length in front) and `data`.
  fs::path file_of(const std::string& header, const std::string& data = {}) const {
    const std::uint64_t length = header.size();
    std::ofstream out(file_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data;
    return file_;
  }
  std::string bytes() const {
    std::ostringstream text;
    text << std::ifstream(file_, std::ios::binary).rdbuf();
    return text.str();
  }
  /// What load_safetensors() says of a faulty file; map_safetensors() must say the same.
  std::string refusal(const std::string& header, const std::string& data = {}) const {
    file_of(header, data);
    std::string loaded, mapped;
    try {
      load_safetensors(file_);
    } catch (const DataError& error) {
      loaded = error.what();
    }
    try {
      map_safetensors(file_);
    } catch (const DataError& error) {
      mapped = error.what();
    }
    EXPECT_EQ(loaded, mapped);
    return loaded;
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("safetensors." + std::to_string(::getpid()));
  fs::path file_ = folder_ / "x.safetensors";
};

at::Tensor counted(at::IntArrayRef sizes, at::ScalarType dtype) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::kFloat).to(dtype).reshape(sizes);
}

TEST_F(SafetensorsTest, EveryDtypeComesBackBitForBit) {
  Safetensors content;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                           at::kByte, at::kBool, at::kComplexFloat}) {
    content.tensors[std::string("t.") + c10::toString(dtype)] = counted({3, 5}, dtype);
  }
  for (const auto dtype : {at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu,
                           at::kUInt16, at::kUInt32, at::kUInt64}) {
    const auto bytes = 5 * static_cast<std::int64_t>(c10::elementSize(dtype));
    content.tensors[std::string("t.") + c10::toString(dtype)] = counted({3, bytes}, at::kByte).view(dtype);
  }
  content.tensors["scalar"] = at::scalar_tensor(2.5);
  content.tensors["empty"] = at::empty({0, 7}, at::kLong);
  content.metadata = {{"format", "pt"}, {"odd \"name\"\n", "\xc3\xa4"}};
  save_safetensors(file_, content);
  for (const Safetensors& read : {load_safetensors(file_), map_safetensors(file_)}) {
    EXPECT_EQ(read.metadata, content.metadata);
    ASSERT_EQ(read.tensors.size(), content.tensors.size());
    for (const auto& [name, tensor] : content.tensors) {
      EXPECT_EQ(read.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
      const auto bytes = [](const at::Tensor& of) { return of.dim() > 0 ? of.view(at::kByte) : of; };
      EXPECT_TRUE(at::equal(bytes(read.tensors.at(name)), bytes(tensor))) << name;
    }
  }
}

TEST_F(SafetensorsTest, StridedTensorsAreWrittenRowMajor) {
  const at::Tensor base = counted({4, 6, 5}, at::kFloat);
  // More than one buffer's worth, too.
  const at::Tensor large = counted({700, 900}, at::kFloat);
  save_safetensors(file_, {{{"flipped", base.permute({2, 0, 1})},
                            {"expanded", base.select(2, 0).unsqueeze(0).expand({3, 4, 6})},
                            {"large", large.t()},
                            {"part", base.narrow(1, 2, 3)}},
                           {}});
  const Safetensors read = load_safetensors(file_);
  EXPECT_TRUE(at::equal(read.tensors.at("flipped"), base.permute({2, 0, 1})));
  EXPECT_TRUE(at::equal(read.tensors.at("expanded"), base.select(2, 0).unsqueeze(0).expand({3, 4, 6})));
  EXPECT_TRUE(at::equal(read.tensors.at("large"), large.t()));
  EXPECT_TRUE(at::equal(read.tensors.at("part"), base.narrow(1, 2, 3)));
}

TEST_F(SafetensorsTest, EqualContentGivesEqualAlignedBytes) {
  const Safetensors content{{{"b", counted({3}, at::kByte)}, {"a", counted({3}, at::kFloat)}}, {{"k", "v"}}};
  save_safetensors(file_, content);
  const std::string first = bytes();
  save_safetensors(file_, content);
  EXPECT_EQ(bytes(), first);
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(first.size(), 8 + length + 12 + 3);
  EXPECT_THAT(first, HasSubstr(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                               R"("b":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}})"));
}

TEST_F(SafetensorsTest, MappedTensorsDoNotWriteToTheFileAndOutliveEachOther) {
  save_safetensors(file_, {{{"a", at::zeros({4})}, {"b", at::ones({4})}}, {}});
  at::Tensor b;
  {
    Safetensors mapped = map_safetensors(file_);
    mapped.tensors.at("a").fill_(7);
    b = mapped.tensors.at("b");
  }
  EXPECT_TRUE(at::equal(b, at::ones({4})));
  EXPECT_TRUE(at::equal(load_safetensors(file_).tensors.at("a"), at::zeros({4})));
}

TEST_F(SafetensorsTest, ATensorTheFileDoesNotAlignIsReadAllTheSame) {
  std::string data = "x";
  const double value = 1.5;
  data.append(reinterpret_cast<const char*>(&value), sizeof value);
  file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[],"data_offsets":[1,9]}})",
          data);
  EXPECT_EQ(map_safetensors(file_).tensors.at("b").item<double>(), 1.5);
}

TEST_F(SafetensorsTest, WhatTheFormatForbidsIsRefusedWithASentence) {
  const std::string tensor = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(refusal(tensor, "xy"), "");
  EXPECT_THAT(refusal(tensor, "x"), HasSubstr("ends before the data of 'a'"));
  EXPECT_THAT(refusal(tensor, "xyz"), HasSubstr("1 bytes belong to no tensor"));
  EXPECT_THAT(refusal(" " + tensor, "xy"), HasSubstr("begin with '{'"));
  EXPECT_THAT(refusal(tensor.substr(0, 20), "xy"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"\xff\":1}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "xyz"), HasSubstr("leaves a hole"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      "xyz"),
              HasSubstr("'b' overlaps"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      "xy"),
              HasSubstr("'a': the name occurs twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy"),
              HasSubstr("'dtype': the key occurs twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", "xy"),
              HasSubstr("take 3 bytes, data_offsets span 2"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "xy"), HasSubstr("[begin, end]"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})"),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "xy"), HasSubstr("negative"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", "xy"), HasSubstr("fraction"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,2]}})", "xy"), HasSubstr("dtype 'F31'"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2]}})", "xy"), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":"y"}})", "xy"), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", "xy"), HasSubstr("list where none"));
  EXPECT_THAT(refusal(R"({"a":[]})"), HasSubstr("list where none"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})"), HasSubstr("number where none"));
  EXPECT_THAT(refusal(R"({"__metadata__":"a"})"), HasSubstr("string where none"));
}

TEST_F(SafetensorsTest, LengthsAreNotBelieved) {
  std::ofstream(file_, std::ios::binary) << "short";
  EXPECT_THROW(load_safetensors(file_), DataError);
  std::ofstream(file_, std::ios::binary) << std::string(8, '\xff') << "{}";
  EXPECT_THROW(load_safetensors(file_), DataError);
  const std::uint64_t length = 99'999'999;  // Allowed, but not there.
  std::ofstream(file_, std::ios::binary).write(reinterpret_cast<const char*>(&length), sizeof length) << "{}";
  EXPECT_THROW(load_safetensors(file_), DataError);
  EXPECT_THROW(load_safetensors(folder_ / "absent"), IoError);
  EXPECT_THROW(load_safetensors(folder_), Error);
}

TEST_F(SafetensorsTest, TensorsThatCannotBeStoredAreRefusedByName) {
  const auto refused = [&](const at::Tensor& tensor) {
    try {
      save_safetensors(file_, {{{"the.name", tensor}}, {}});
    } catch (const UsageError& error) {
      return std::string(error.what()).find("the.name") != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(at::zeros({2}, at::kComplexDouble)));
  EXPECT_TRUE(refused(at::zeros({2, 2}).to_sparse()));
  EXPECT_TRUE(refused(at::zeros({2}, at::kComplexFloat).conj()));
  EXPECT_TRUE(refused(at::empty({2}, at::TensorOptions(at::kMeta))));
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(SafetensorsTest, ARefusingSystemIsAnIoError) {
  const Safetensors content{{{"a", at::zeros({1024})}}, {}};
  try {
    save_safetensors("/dev/full", content);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_THAT(error.hint(), HasSubstr("free some space"));
  }
  EXPECT_THROW(save_safetensors(folder_ / "absent" / "x", content), IoError);
}

TEST_F(SafetensorsTest, TheHookSeesEveryWriteAndSync) {
  std::vector<std::string> seen;
  io_hook() = [&](std::string_view what) { seen.emplace_back(what.substr(0, what.rfind(' '))); };
  save_safetensors(file_, {{{"a", at::zeros({4})}}, {}});
  sync_folder(folder_);
  rename_path(file_, folder_ / "y");
  io_hook() = nullptr;
  EXPECT_THAT(seen, ::testing::ElementsAre("before write", "after write", "before write", "after write", "before sync",
                                           "after sync", "before sync", "after sync", "before rename", "after rename"));
}
}  // namespace
}  // namespace cinch::interchange
