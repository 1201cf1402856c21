// Text as bytes: one corpus, the files joined. Held in memory: where each file begins, and one batch.

#include <algorithm>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/data/internal/files.h"
#include "cinch/data/internal/hash.h"
#include "cinch/data/internal/sources.h"

namespace cinch::data {
namespace {

class Corpus {
 public:
  explicit Corpus(std::vector<DataFile> files) : files_(std::move(files)) {
    for (const DataFile& file : files_) {
      begins_.push_back(size_);
      size_ += file.size;
    }
  }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& first_file() const { return files_.front().path; }

  /// `count` bytes from `position`, over as many files as it takes.
  void read(std::uint64_t position, std::uint64_t count, char* out) const {
    auto begin = std::upper_bound(begins_.begin(), begins_.end(), position) - 1;
    for (auto index = static_cast<std::size_t>(begin - begins_.begin()); count > 0; ++index) {
      const std::uint64_t offset = position - begins_[index];
      const std::uint64_t part = std::min(count, files_[index].size - offset);
      if (part > 0) read_at(files_[index], offset, part, out);
      position += part;
      out += part;
      count -= part;
    }
  }

 private:
  std::vector<DataFile> files_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t size_ = 0;
};

class TextSource final : public Source {
 public:
  TextSource(const job::TextData& data, const SampleShape& shape, std::int64_t batch_size, std::uint64_t seed,
             Split split)
      : corpus_(list_files(data.path)),
        shape_(shape),
        context_(static_cast<std::uint64_t>(shape.features())),
        batch_size_(batch_size),
        seed_(seed),
        split_(split),
        window_(context_ + 1) {
    const auto held = static_cast<std::uint64_t>(static_cast<double>(corpus_.size()) * data.held_out);
    train_size_ = corpus_.size() - std::min(held, corpus_.size());
    check_size("the training text", train_size_, "Give more text, or a smaller model.context_length.");
    if (data.held_out > 0) {
      check_size("the held-out text", corpus_.size() - train_size_,
                 "Raise data.held_out, or set it to 0 for no evaluation.");
    }
    kind_ = split == Split::kTrain ? "text seed=" + std::to_string(seed) : "held-out text";
    kind_ += " bytes=" + std::to_string(corpus_.size()) + " context=" + std::to_string(context_);
  }

  Batch next() override {
    Batch batch = make_batch(shape_, batch_size_);
    std::int64_t* inputs = batch.inputs.mutable_data_ptr<std::int64_t>();
    std::int64_t* targets = batch.targets.mutable_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < batch_size_; ++row, ++position_) {
      corpus_.read(window_begin(position_), context_ + 1, window_.data());
      for (std::uint64_t i = 0; i < context_; ++i) {
        *inputs++ = static_cast<unsigned char>(window_[i]);
        *targets++ = static_cast<unsigned char>(window_[i + 1]);
      }
    }
    return batch;
  }
  std::string state() const override { return format_state(kind_, position_); }
  void restore(std::string_view state) override { position_ = parse_state(kind_, state); }

 private:
  void check_size(const char* what, std::uint64_t size, const char* hint) const {
    if (size > context_) return;
    throw ConfigError(corpus_.first_file(), 0, "data.path",
                      std::string(what) + ", of " + with_thousands(static_cast<std::int64_t>(corpus_.size())) +
                          " bytes in all, has " + with_thousands(static_cast<std::int64_t>(size)) +
                          ", but one sample takes context_length + 1 = " +
                          with_thousands(static_cast<std::int64_t>(context_ + 1)),
                      hint);
  }

  std::uint64_t window_begin(std::uint64_t sample) const {
    if (split_ == Split::kTrain) return draw_below(train_size_ - context_, seed_, sample);
    const std::uint64_t windows = (corpus_.size() - train_size_ - 1) / context_;
    return train_size_ + sample % windows * context_;
  }

  Corpus corpus_;
  SampleShape shape_;
  std::uint64_t context_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  Split split_;
  std::uint64_t train_size_ = 0;  ///< Bytes trained on: the first ones.
  std::string kind_;
  std::uint64_t position_ = 0;    ///< Samples given out.
  std::vector<char> window_;
};
}  // namespace

std::unique_ptr<Source> open_text(const job::TextData& data, const SampleShape& shape, std::int64_t batch_size,
                                  std::uint64_t seed, Split split) {
  return std::make_unique<TextSource>(data, shape, batch_size, seed, split);
}
}  // namespace cinch::data
