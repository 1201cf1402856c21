// Images and labels from CSV. Held in memory: where every 256th row begins, one block of 256 rows as text, one batch.

#include <algorithm>
#include <span>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/data/internal/csv_rows.h"
#include "cinch/data/internal/files.h"
#include "cinch/data/internal/hash.h"
#include "cinch/data/internal/sources.h"

namespace cinch::data {
namespace {
constexpr std::uint64_t kBlock = 256;

/// Random access to the rows of files, by blocks.
class RowTable {
 public:
  RowTable(std::vector<DataFile> files, std::uint64_t longest_row) : files_(std::move(files)), longest_(longest_row) {
    RowReader reader(files_, longest_);
    std::string_view line;
    RowPosition where;
    for (; reader.next(line, where); ++size_) {
      if (size_ % kBlock == 0) blocks_.push_back(where);
    }
  }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& first_file() const { return files_.front().path; }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const DataFile& file : files_) sum += file.size;
    return sum;
  }

  /// Parses one row. Rows of one block in a row cost one read of the block.
  std::int64_t read(std::uint64_t row, std::int64_t classes, std::span<float> pixels) {
    if (row / kBlock != loaded_) load(row / kBlock);
    const Row& at = rows_[row % kBlock];
    return parse_row(std::string_view(text_).substr(at.begin, at.length), files_[at.where.file], at.where.offset,
                     classes, pixels);
  }

 private:
  struct Row {
    std::size_t begin, length;
    RowPosition where;
  };

  void load(std::uint64_t block) {
    loaded_ = kNone;
    text_.clear();
    rows_.clear();
    RowReader reader(files_, longest_, blocks_[block]);
    const std::uint64_t rows = std::min(kBlock, size_ - block * kBlock);
    std::string_view line;
    RowPosition where;
    while (rows_.size() < rows) {
      if (!reader.next(line, where)) {
        throw DataError(files_.back().path, files_.back().size, "rows are missing that were here when it was opened",
                        "Leave the data alone while it is trained on.");
      }
      rows_.push_back({text_.size(), line.size(), where});
      text_ += line;
    }
    loaded_ = block;
  }

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::vector<DataFile> files_;
  std::uint64_t longest_;
  std::uint64_t size_ = 0;
  std::vector<RowPosition> blocks_;
  std::uint64_t loaded_ = kNone;
  std::string text_;
  std::vector<Row> rows_;
};

/// The order of one epoch over rows [0, count): blocks shuffled, and rows within each. From (seed, epoch), no table.
class EpochOrder {
 public:
  EpochOrder(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch)
      : count_(count), blocks_((count + kBlock - 1) / kBlock), key_(mix(seed, epoch)) {
    while (permute(short_rank_, blocks_, key_) != blocks_ - 1) ++short_rank_;
  }
  std::uint64_t row(std::uint64_t rank) const {
    // The last block may be short; ranks after it are shifted by what it lacks.
    const std::uint64_t short_begin = short_rank_ * kBlock, short_size = count_ - (blocks_ - 1) * kBlock;
    const bool after = rank >= short_begin + short_size;
    const bool in_short = rank >= short_begin && !after;
    const std::uint64_t padded = after ? rank + kBlock - short_size : rank;
    const std::uint64_t block = permute(padded / kBlock, blocks_, key_);
    return block * kBlock + permute(padded % kBlock, in_short ? short_size : kBlock, mix(key_, block));
  }

 private:
  std::uint64_t count_, blocks_, key_;
  std::uint64_t short_rank_ = 0;  ///< Where the last block comes in this epoch.
};

class CsvSource final : public Source {
 public:
  CsvSource(const job::CsvData& data, const SampleShape& shape, std::int64_t batch_size, std::uint64_t seed,
            Split split)
      // No number from 0 to 255 needs more than 32 characters.
      : table_(list_files(data.path), 64 + 32 * static_cast<std::uint64_t>(shape.features() + 1)),
        shape_(shape),
        batch_size_(batch_size),
        seed_(seed),
        split_(split) {
    std::uint64_t held = 0;
    if (data.held_out > 0) {
      held = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(table_.size()) * data.held_out));
    }
    if (table_.size() <= held) {
      throw ConfigError(table_.first_file(), 0, "data.path",
                        "the data has " + with_thousands(static_cast<std::int64_t>(table_.size())) +
                            " rows, of which " + with_thousands(static_cast<std::int64_t>(held)) +
                            " are held out: none is left to train on",
                        "Give more rows, or a smaller data.held_out.");
    }
    train_size_ = table_.size() - held;
    kind_ = split == Split::kTrain ? "csv seed=" + std::to_string(seed) : "held-out csv";
    kind_ += " bytes=" + std::to_string(table_.bytes()) + " rows=" + std::to_string(table_.size());
    std::vector<float> row(static_cast<std::size_t>(shape_.features()));
    table_.read(0, shape_.classes, row);  // A wrong shape shows before training.
  }

  Batch next() override {
    Batch batch = make_batch(shape_, batch_size_);
    const auto features = static_cast<std::size_t>(shape_.features());
    float* inputs = batch.inputs.mutable_data_ptr<float>();
    std::int64_t* targets = batch.targets.mutable_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < batch_size_; ++row, ++position_, inputs += features) {
      *targets++ = table_.read(row_at(position_), shape_.classes, {inputs, features});
    }
    return batch;
  }
  std::string state() const override { return format_state(kind_, position_); }
  void restore(std::string_view state) override { position_ = parse_state(kind_, state); }

 private:
  std::uint64_t row_at(std::uint64_t sample) {
    if (split_ == Split::kHeldOut) return train_size_ + sample % (table_.size() - train_size_);
    const std::uint64_t epoch = sample / train_size_;
    if (!order_ || epoch != epoch_) order_.emplace(train_size_, seed_, epoch);
    epoch_ = epoch;
    return order_->row(sample % train_size_);
  }

  RowTable table_;
  SampleShape shape_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  Split split_;
  std::uint64_t train_size_ = 0;  ///< Rows trained on: the first ones.
  std::string kind_;
  std::uint64_t position_ = 0;    ///< Samples given out.
  std::uint64_t epoch_ = 0;
  std::optional<EpochOrder> order_;
};
}  // namespace

std::unique_ptr<Source> open_csv(const job::CsvData& data, const SampleShape& shape, std::int64_t batch_size,
                                 std::uint64_t seed, Split split) {
  return std::make_unique<CsvSource>(data, shape, batch_size, seed, split);
}
}  // namespace cinch::data
