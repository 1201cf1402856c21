#include "cinch/data/source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "cinch/core/error.h"
#include "cinch/data/internal/hash.h"

namespace cinch::data {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SourceTest : public ::testing::Test {
 protected:
  SourceTest() { fs::create_directories(folder_); }
  ~SourceTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  job::TextData text(double held_out = 0, const std::string& pattern = "") const {
    return {.path = {(folder_ / pattern).string()}, .held_out = held_out};
  }
  job::CsvData csv(double held_out = 0) const { return {.path = {(folder_ / "x.csv").string()}, .held_out = held_out}; }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("source." + std::to_string(::getpid()));
};

job::GptConfig gpt(std::int64_t context) { return {.context_length = context}; }
const job::MlpConfig kMlp{.sizes = {3, 10}};

std::vector<std::int64_t> row(const at::Tensor& tensor, std::int64_t index) {
  const at::Tensor selected = tensor.select(0, index).contiguous();
  return {selected.const_data_ptr<std::int64_t>(), selected.const_data_ptr<std::int64_t>() + selected.numel()};
}
bool same(const Batch& left, const Batch& right) {
  return at::equal(left.inputs, right.inputs) && at::equal(left.targets, right.targets) &&
         left.target_count == right.target_count;
}
template <class Exception>
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "accepted";
}
/// "0123456…" but every byte tells its place, modulo 251.
std::string places(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}
std::string rows(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += std::to_string(i % 10) + "," + std::to_string(i / 65025) + "," + std::to_string(i / 255 % 255) + "," +
            std::to_string(i % 255) + "\n";
  }
  return text;
}
/// Which row of rows() an image is.
std::int64_t row_number(const Batch& batch, std::int64_t index) {
  const float* pixels = batch.inputs.const_data_ptr<float>() + 3 * index;
  return std::lround(pixels[0] * 255) * 65025 + std::lround(pixels[1] * 255) * 255 + std::lround(pixels[2] * 255);
}

// --- every source

TEST_F(SourceTest, ResumeIsExactFromAnyState) {
  write("a.txt", places(1000));
  write("x.csv", rows(700));
  const job::ModelConfig mlp = kMlp, model = gpt(16);
  const std::vector<std::pair<job::DataConfig, job::ModelConfig>> cases{
      {text(0.3, "a.txt"), model},
      {csv(0.3), mlp},
      {job::SyntheticData{}, model},
      {job::SyntheticData{}, mlp},
      {job::SyntheticData{}, job::BertConfig{.context_length = 9, .vocab_size = 99}},
      {job::SyntheticData{}, job::UnetConfig{.classes = 3, .channels = 1, .image_size = 4}}};
  for (const auto& [data, config] : cases) {
    for (const Split split : {Split::kTrain, Split::kHeldOut}) {
      const auto straight = open(data, config, 48, 7, split);
      for (int i = 0; i < 20; ++i) {
        const auto resumed = open(data, config, 48, 7, split);
        resumed->restore(straight->state());
        EXPECT_EQ(resumed->state(), straight->state());
        const Batch expected = straight->next();
        EXPECT_TRUE(same(resumed->next(), expected));
        EXPECT_FALSE(same(open(data, config, 48, 8, Split::kTrain)->next(), expected));
      }
    }
  }
}

TEST_F(SourceTest, AStateOfOtherDataIsRefused) {
  write("a.txt", places(1000));
  const auto source = open(text(), gpt(16), 2, 7);
  const std::string state = source->state();
  EXPECT_THROW(open(text(), gpt(16), 2, 8)->restore(state), DataError);
  EXPECT_THROW(open(text(), gpt(15), 2, 7)->restore(state), DataError);
  EXPECT_THROW(open(job::SyntheticData{}, gpt(16), 2, 7)->restore(state), DataError);
  for (const char* damaged : {"", "text", " 1", "x"}) EXPECT_THROW(source->restore(state + damaged + "!"), DataError);
  EXPECT_THROW(source->restore(""), DataError);
  write("a.txt", places(1001));
  EXPECT_THROW(open(text(), gpt(16), 2, 7)->restore(state), DataError);
}

TEST_F(SourceTest, ShapesFollowTheModel) {
  const job::SyntheticData data;
  const Batch tokens = open(data, gpt(5), 2, 1)->next();
  EXPECT_EQ(tokens.inputs.sizes(), (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(tokens.targets.sizes(), (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(tokens.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(tokens.target_count, 10);
  EXPECT_TRUE(at::equal(tokens.inputs.narrow(1, 1, 4), tokens.targets.narrow(1, 0, 4)));
  const Batch images = open(data, job::ResNetConfig{.classes = 4, .image_size = 8}, 3, 1)->next();
  EXPECT_EQ(images.inputs.sizes(), (std::vector<std::int64_t>{3, 3, 8, 8}));
  EXPECT_EQ(images.inputs.scalar_type(), at::kFloat);
  EXPECT_EQ(images.targets.sizes(), (std::vector<std::int64_t>{3}));
  EXPECT_LT(images.targets.max().item<std::int64_t>(), 4);
  EXPECT_EQ(images.target_count, 3);
  const Batch example = example_batch(data, kMlp, 6);
  EXPECT_EQ(example.inputs.sizes(), (std::vector<std::int64_t>{6, 3}));
  EXPECT_EQ(example.targets.sizes(), (std::vector<std::int64_t>{6}));
  EXPECT_EQ(example.target_count, 6);
}

TEST_F(SourceTest, DataAndModelMustGoTogether) {
  write("a.txt", places(100));
  write("x.csv", rows(10));
  EXPECT_THROW(open(text(), kMlp, 1, 1), ConfigError);
  EXPECT_THROW(open(csv(), gpt(4), 1, 1), ConfigError);
  EXPECT_THROW(example_batch(csv(), gpt(4), 1), ConfigError);
}

TEST_F(SourceTest, NarrowCountsTargets) {
  Batch batch = open(job::SyntheticData{}, gpt(4), 3, 1)->next();
  EXPECT_EQ(narrow(batch, 1, 2).target_count, 8);
  EXPECT_TRUE(narrow(batch, 1, 2).inputs.is_alias_of(batch.inputs));
  batch.targets.select(0, 1).fill_(kIgnored);
  batch.target_count = 8;
  EXPECT_EQ(narrow(batch, 0, 1).target_count, 4);
  EXPECT_EQ(narrow(batch, 1, 1).target_count, 0);
  EXPECT_EQ(narrow(batch, 1, 2).target_count, 4);
}

// --- shapes of other models

std::int64_t counted(const Batch& batch) { return batch.targets.ne(kIgnored).sum().item<std::int64_t>(); }

TEST_F(SourceTest, EveryModelGetsItsShape) {
  struct Case {
    job::ModelConfig model;
    std::vector<std::int64_t> inputs, targets;
    at::ScalarType dtype;
    std::int64_t counted;
  };
  const std::vector<Case> cases{
      {job::BertConfig{.context_length = 40, .vocab_size = 50}, {3, 40}, {3, 40}, at::kLong, 18},
      {job::BertConfig{.context_length = 3, .vocab_size = 50}, {3, 3}, {3, 3}, at::kLong, 3},
      {job::BertConfig{.context_length = 40, .vocab_size = 50, .classes = 4}, {3, 40}, {3}, at::kLong, 3},
      {job::VitConfig{.image_size = 8, .channels = 2, .classes = 5}, {3, 2, 8, 8}, {3}, at::kFloat, 3},
      {job::LlamaConfig{.context_length = 6, .vocab_size = 9}, {3, 6}, {3, 6}, at::kLong, 18},
      {job::UnetConfig{.classes = 4, .channels = 1, .image_size = 8}, {3, 1, 8, 8}, {3, 8, 8}, at::kFloat, 192}};
  for (const Case& expected : cases) {
    const Batch real = open(job::SyntheticData{}, expected.model, 3, 1)->next();
    for (const Batch& batch : {real, example_batch(job::SyntheticData{}, expected.model, 3)}) {
      EXPECT_EQ(batch.inputs.sizes(), at::IntArrayRef(expected.inputs));
      EXPECT_EQ(batch.targets.sizes(), at::IntArrayRef(expected.targets));
      EXPECT_EQ(batch.inputs.scalar_type(), expected.dtype);
      EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
      EXPECT_EQ(batch.target_count, expected.counted);
      EXPECT_EQ(counted(batch), expected.counted);
      for (std::int64_t row = 0; row < 3; ++row) {
        const Batch part = narrow(batch, row, 1);
        EXPECT_EQ(part.target_count, expected.counted / 3);
        EXPECT_EQ(counted(part), expected.counted / 3);
      }
    }
  }
}

TEST_F(SourceTest, MaskedTokensAreTheTargets) {
  const job::ModelConfig bert = job::BertConfig{.context_length = 40, .vocab_size = 1000};
  const Batch batch = open(job::SyntheticData{}, bert, 20, 1)->next();
  const at::Tensor masked = batch.targets.ne(kIgnored);
  EXPECT_TRUE(batch.inputs.masked_select(masked).eq(999).all().item<bool>());
  EXPECT_LT(batch.inputs.eq(999).sum().item<std::int64_t>(), 6 * 20 + 10);
  EXPECT_GT(std::get<0>(at::_unique(batch.targets)).numel(), 90);  // Drawn, not one value.
  EXPECT_GT(masked.any(0).sum().item<std::int64_t>(), 30);         // All over the context.
}

TEST_F(SourceTest, ModelsRefuseDataThatIsNotTheirs) {
  const job::BertConfig bert{.context_length = 4, .vocab_size = 300, .classes = 2};
  const job::UnetConfig unet{.levels = 1, .classes = 2, .image_size = 2};
  for (const job::ModelConfig& model : std::initializer_list<job::ModelConfig>{bert, job::BertConfig{}, unet, kMlp}) {
    EXPECT_THAT(refusal<ConfigError>([&] { example_batch(text(), model, 1); }), HasSubstr("next token"));
  }
  for (const job::ModelConfig& model :
       std::initializer_list<job::ModelConfig>{bert, unet, job::LlamaConfig{.vocab_size = 9}}) {
    EXPECT_THAT(refusal<ConfigError>([&] { example_batch(csv(), model, 1); }), HasSubstr("one class"));
  }
  write("a.txt", places(100));
  EXPECT_EQ(open(text(), job::LlamaConfig{.context_length = 9, .vocab_size = 256}, 2, 1)->next().inputs.size(1), 9);
  write("x.csv", "1,2,3,4,5\n");
  const job::VitConfig vit{.patch_size = 1, .image_size = 2, .channels = 1, .classes = 3};
  EXPECT_EQ(open(csv(), vit, 1, 1)->next().inputs.sizes(), (std::vector<std::int64_t>{1, 1, 2, 2}));
}

// --- text

TEST_F(SourceTest, TextIsTheConcatenationOfTheFilesInOrder) {
  const std::string corpus = places(200);
  write("b/2.txt", corpus.substr(70, 1));
  write("b/1.txt", corpus.substr(20, 50));
  write("a.txt", corpus.substr(0, 20));
  write("c.txt", "");
  write("d.txt", corpus.substr(71));
  const Batch batch = open(text(), gpt(31), 64, 3)->next();
  std::set<std::int64_t> starts;
  for (std::int64_t i = 0; i < 64; ++i) {
    const auto inputs = row(batch.inputs, i), targets = row(batch.targets, i);
    for (std::int64_t j = 0; j < 31; ++j) {
      ASSERT_EQ(inputs[j], inputs[0] + j);
      ASSERT_EQ(targets[j], inputs[0] + j + 1);
    }
    starts.insert(inputs[0]);
  }
  EXPECT_GT(starts.size(), 40u);
  EXPECT_LE(*starts.rbegin(), 200 - 32);
}

TEST_F(SourceTest, PatternsMatchNamesAndFilesCountOnce) {
  write("x1.txt", places(100));
  write("x2.txt", places(100));
  write("y.log", places(100));
  job::TextData data = text(0, "x?.txt");
  EXPECT_THAT(open(data, gpt(4), 1, 1)->state(), HasSubstr("bytes=200 "));
  data.path.push_back((folder_ / "*").string());
  data.path.push_back((folder_ / "x1.txt").string());
  EXPECT_THAT(open(data, gpt(4), 1, 1)->state(), HasSubstr("bytes=300 "));
  EXPECT_THAT(refusal<ConfigError>([&] { open(text(0, "z*"), gpt(4), 1, 1); }), HasSubstr("no file matches"));
  EXPECT_THAT(refusal<IoError>([&] { open(text(0, "absent"), gpt(4), 1, 1); }), HasSubstr("absent"));
}

TEST_F(SourceTest, HeldOutTextIsNeverTrainedOn) {
  std::string corpus(1000, 'a');
  std::fill(corpus.begin() + 750, corpus.end(), 'b');
  write("a.txt", corpus);
  const auto train = open(text(0.25), gpt(16), 32, 1);
  for (int i = 0; i < 50; ++i) {
    const Batch batch = train->next();
    EXPECT_EQ(std::max(batch.inputs.max().item<std::int64_t>(), batch.targets.max().item<std::int64_t>()), 'a');
  }
  const auto held = open(text(0.25), gpt(16), 32, 1, Split::kHeldOut);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(held->next().inputs.min().item<std::int64_t>(), 'b');
  EXPECT_EQ(open(text(0), gpt(16), 32, 1, Split::kHeldOut), nullptr);
  EXPECT_TRUE(holds_out(text(0.25)));
  EXPECT_FALSE(holds_out(text(0)));
}

TEST_F(SourceTest, HeldOutWindowsFollowEachOtherAndWrap) {
  write("a.txt", places(100));
  const Batch batch = open(text(0.35), gpt(10), 4, 1, Split::kHeldOut)->next();  // 35 bytes: windows at 65, 75, 85.
  for (const auto& [index, first] : std::vector<std::pair<int, int>>{{0, 65}, {1, 75}, {2, 85}, {3, 65}}) {
    EXPECT_EQ(row(batch.inputs, index)[0], first);
    EXPECT_EQ(row(batch.targets, index)[9], first + 10);
  }
}

TEST_F(SourceTest, ACorpusShorterThanTheContextNamesBothSizes) {
  write("a.txt", places(100));
  EXPECT_THAT(refusal<ConfigError>([&] { open(text(), gpt(100), 1, 1); }),
              ::testing::AllOf(HasSubstr("has 100"), HasSubstr("= 101")));
  EXPECT_THAT(open(text(), gpt(99), 1, 1)->next().inputs.sizes(), ::testing::ElementsAre(1, 99));
  EXPECT_THAT(refusal<ConfigError>([&] { open(text(0.1), gpt(10), 1, 1); }),
              ::testing::AllOf(HasSubstr("held-out"), HasSubstr("has 10,"), HasSubstr("= 11")));
}

TEST_F(SourceTest, ALargeCorpusIsOnlyTouchedWhereItIsRead) {
  const fs::path file = write("a.txt", "");
  ASSERT_EQ(::truncate(file.c_str(), std::int64_t{8} << 30), 0);
  const auto source = open(text(0.5), gpt(64), 16, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(source->next().inputs.sum().item<std::int64_t>(), 0);
}

TEST_F(SourceTest, FilesThatChangeUnderneathAreErrors) {
  const fs::path file = write("a.txt", places(100000));
  const auto source = open(text(), gpt(16), 32, 1);
  source->next();
  fs::resize_file(file, 1000);
  EXPECT_THAT(refusal<DataError>([&] { source->next(); }), HasSubstr("had 100000 bytes"));
  fs::remove(file);
  EXPECT_THROW(source->next(), IoError);
}

// --- csv

TEST_F(SourceTest, EachEpochIsAnotherOrderOfAllTrainingRows) {
  write("x.csv", rows(700));
  const auto source = open(csv(0.1), kMlp, 63, 5);  // 630 training rows: ten batches an epoch.
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (auto& epoch : epochs) {
    for (int i = 0; i < 10; ++i) {
      const Batch batch = source->next();
      for (std::int64_t j = 0; j < 63; ++j) {
        epoch.push_back(row_number(batch, j));
        EXPECT_EQ(row(batch.targets, j)[0], epoch.back() % 10);
      }
    }
    EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 630u);
    EXPECT_EQ(*std::max_element(epoch.begin(), epoch.end()), 629);
    EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  const Batch held = open(csv(0.1), kMlp, 71, 5, Split::kHeldOut)->next();
  for (std::int64_t j = 0; j < 71; ++j) EXPECT_EQ(row_number(held, j), 630 + j % 70);
}

TEST_F(SourceTest, LineEndsHeadersAndMarksArePassedOver) {
  write("1.csv", "\xef\xbb\xbflabel,a,b,c\r\n1,0,0,0\r\n2,0,0,255\r\n\r\n");
  write("2.csv", "3, 51 ,0,0\n\n");
  write("3.csv", "");
  write("4.csv", "label,a,b,c\n4,102,0,0");
  const job::CsvData data{.path = {folder_.string()}, .held_out = 0.99};
  const Batch batch = open(data, kMlp, 3, 1, Split::kHeldOut)->next();
  EXPECT_EQ(row(batch.targets.unsqueeze(0), 0), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_FLOAT_EQ(batch.inputs[0][2].item<float>(), 1);
  EXPECT_FLOAT_EQ(batch.inputs[1][0].item<float>(), 0.2);
  EXPECT_FLOAT_EQ(batch.inputs[2][0].item<float>(), 0.4);
}

TEST_F(SourceTest, FaultyRowsNameFileAndByte) {
  const auto fault = [&](const std::string& last) {
    write("x.csv", "1,2,3,4\n" + last + "\n");
    return refusal<DataError>([&] { open(csv(), kMlp, 2, 1)->next(); });
  };
  EXPECT_EQ(fault("1,2,3,4"), "accepted");
  EXPECT_THAT(fault("1,2,3"), HasSubstr("x.csv, byte 8: a row of 3 columns"));
  EXPECT_THAT(fault("1,2,3,4,5"), HasSubstr("byte 8: a row of 5 columns"));
  EXPECT_THAT(fault("10,2,3,4"), HasSubstr("byte 8: the label '10' is not a whole number from 0 to 9"));
  EXPECT_THAT(fault("-1,2,3,4"), HasSubstr("label '-1'"));
  EXPECT_THAT(fault("1.5,2,3,4"), HasSubstr("label '1.5'"));
  EXPECT_THAT(fault("1,2,x,4"), HasSubstr("byte 12: 'x' is not a number"));
  EXPECT_THAT(fault("1,2,,4"), HasSubstr("byte 12: '' is not a number"));
  EXPECT_THAT(fault("1,2,3,256"), HasSubstr("byte 14: '256'"));
  EXPECT_THAT(fault("1,2,3,nan"), HasSubstr("byte 14: 'nan'"));
  EXPECT_THAT(fault("1,2,3," + std::string(1000, ' ') + "4"), HasSubstr("byte 8: a row of more than"));
  EXPECT_THAT(fault("1,2,3," + std::string(100000, '1')), HasSubstr("byte 8: a row of more than"));
  write("x.csv", "a,b\n");
  EXPECT_THAT(refusal<ConfigError>([&] { open(csv(), kMlp, 1, 1); }), HasSubstr("has 0 rows"));
}

TEST_F(SourceTest, RowsThatVanishAreErrors) {
  const fs::path file = write("x.csv", rows(3000));
  const auto source = open(csv(), kMlp, 256, 1);
  fs::resize_file(file, 100);
  EXPECT_THROW(for (int i = 0; i < 12; ++i) source->next(), DataError);
  fs::remove(file);
  EXPECT_THROW(for (int i = 0; i < 12; ++i) source->next(), IoError);
}

// --- randomness

TEST(Hash, PermutationsArePermutations) {
  for (const std::uint64_t count : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 256u, 1000u}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < count; ++i) seen.insert(permute(i, count, 42));
    EXPECT_EQ(seen.size(), count);
    EXPECT_LT(*seen.rbegin(), count);
  }
}

TEST(Hash, DrawsAreEven) {
  std::array<int, 10> counts{};
  for (std::uint64_t i = 0; i < 100000; ++i) ++counts[draw_below(10, 3, i)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
}
}  // namespace
}  // namespace cinch::data
