#include <bit>
#include <concepts>

#include "cinch/core/atomic_file.h"
#include "cinch/core/error.h"
#include "cinch/trace/internal/format.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
using internal::Tag;

// Writes what is replayed into it. Names are written as they are met, which is before their first use.
class Writer final : public Sink {
 public:
  explicit Writer(const std::filesystem::path& file) : out_(file) {}

  void on_begin(const TraceHeader& header, const NameTable& names) override {
    if (header.source == TraceHeader::Source::kSnapshot) {
      throw UsageError("cinch's own format does not hold snapshots", "Write a pickle or JSON.");
    }
    names_ = &names;
    put_bytes({internal::kMagic.data(), internal::kMagic.size()});
    put(internal::kFormatVersion);
    put(static_cast<std::uint8_t>(header.source));
    put(static_cast<std::uint32_t>(header.threads));
    put_text(header.producer);
    put_text(header.device_name);
    flush();
  }

  void on_op(OpId, const OpCall& call) override {
    put_names_up_to(call.name);
    put_names_up_to(call.module);
    begin(Tag::kOp);
    put(static_cast<std::uint32_t>(call.name));
    put(static_cast<std::uint32_t>(call.module));
    put(static_cast<std::uint8_t>(call.phase));
    put(static_cast<std::uint8_t>(call.recompute));
    put(static_cast<std::uint8_t>(call.dtype));
    put(call.step);
    put(std::bit_cast<std::uint64_t>(call.flops));
    put(call.read.count());
    put(call.written.count());
    flush();
  }

  void on_event(const Event& event) override {
    put_names_up_to(event.module);
    begin(Tag::kEvent);
    put(static_cast<std::uint8_t>(event.action));
    put(static_cast<std::uint8_t>(event.phase));
    put(static_cast<std::uint8_t>(event.recompute));
    put(event.step);
    put(static_cast<std::uint32_t>(event.allocation));
    put(static_cast<std::uint32_t>(event.op));
    put(static_cast<std::uint32_t>(event.module));
    put(event.bytes.count());
    put(event.time_ns);
    flush();
  }

  void on_tensor(AllocationId allocation, const TensorInfo& info) override {
    begin(Tag::kTensor);
    put(static_cast<std::uint32_t>(allocation));
    put(static_cast<std::uint8_t>(info.dtype));
    put(static_cast<std::uint8_t>(info.sizes.size()));
    for (std::int64_t size : info.sizes) put(size);
    flush();
  }

  void on_label(AllocationId allocation, Category category, NameId name) override {
    put_names_up_to(name);
    begin(Tag::kLabel);
    put(static_cast<std::uint32_t>(allocation));
    put(static_cast<std::uint8_t>(category));
    put(static_cast<std::uint32_t>(name));
    flush();
  }

  void finish() {
    const std::uint64_t before = records_;
    begin(Tag::kEnd);
    put(before);
    flush();
    out_.commit();
  }

 private:
  void begin(Tag tag) {
    put(static_cast<std::uint8_t>(tag));
    ++records_;
  }

  template <std::integral Number>
  void put(Number number) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      record_.push_back(static_cast<char>(static_cast<std::make_unsigned_t<Number>>(number) >> (8 * i)));
    }
  }

  void put_bytes(std::string_view bytes) { record_.append(bytes); }

  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(text);
  }

  void put_names_up_to(NameId id) {
    for (; names_written_ <= static_cast<std::uint32_t>(id); ++names_written_) {
      begin(Tag::kName);
      put_text((*names_)[NameId{names_written_}]);
    }
  }

  void flush() {
    out_.write(record_);
    record_.clear();
  }

  AtomicFile out_;
  const NameTable* names_ = nullptr;
  std::uint32_t names_written_ = 1;
  std::uint64_t records_ = 0;
  std::string record_;
};
}  // namespace

void save(const Trace& trace, const std::filesystem::path& file) {
  Writer writer(file);
  trace.replay(writer);
  writer.finish();
}
}  // namespace cinch::trace
