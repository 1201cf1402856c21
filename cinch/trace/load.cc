#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <concepts>
#include <fstream>
#include <limits>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/trace/internal/format.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
using internal::Tag;

// Numbers and texts of a file of known size. Nothing is read, or room made for it, before it is known to be there.
class Input {
 public:
  Input(std::istream& in, std::uint64_t size, const std::filesystem::path& file) : in_(in), size_(size), file_(file) {}

  std::uint64_t left() const { return size_ - offset_; }

  template <std::integral Number>
  Number number(const char* what) {
    std::array<char, sizeof(Number)> bytes;
    read(bytes.data(), bytes.size(), what);
    std::make_unsigned_t<Number> value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      value = static_cast<decltype(value)>((std::uint64_t{value} << 8) | static_cast<unsigned char>(bytes[i]));
    }
    return static_cast<Number>(value);
  }

  // A number that must be below `limit`.
  template <std::integral Number>
  Number number_below(std::uint64_t limit, const char* what) {
    const Number value = number<Number>(what);
    if (value >= limit) {
      fail(std::string(what) + " is " + std::to_string(value) + ", which must be below " + std::to_string(limit));
    }
    return value;
  }

  std::int64_t not_negative(const char* what) {
    const auto value = number<std::int64_t>(what);
    if (value < 0) fail(std::string(what) + " is negative: " + std::to_string(value));
    return value;
  }

  std::string text(const char* what) {
    const auto length = number<std::uint32_t>(what);
    if (length > left()) {
      fail(std::string(what) + " claims " + with_thousands(length) + " bytes, but " +
           with_thousands(static_cast<std::int64_t>(left())) + " are left");
    }
    std::string text(length, '\0');
    read(text.data(), text.size(), what);
    return text;
  }

  void read(char* into, std::size_t length, const char* what) {
    field_ = offset_;
    if (length > left()) fail(std::string("the file ends inside ") + what);
    in_.read(into, static_cast<std::streamsize>(length));
    if (static_cast<std::size_t>(in_.gcount()) != length) fail(std::string("cannot read ") + what);
    offset_ += length;
  }

  // At the field read last.
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(file_, field_, problem, "The file is damaged or was not written by cinch: record it again.");
  }

 private:
  std::istream& in_;
  std::uint64_t size_;
  const std::filesystem::path& file_;
  std::uint64_t offset_ = 0;
  std::uint64_t field_ = 0;
};

// Pushes records on, once it has checked them against those before.
class Reader {
 public:
  Reader(Input& in, Sink& sink) : in_(in), sink_(sink) {}

  void header() {
    std::array<char, internal::kMagic.size()> magic;
    in_.read(magic.data(), magic.size(), "the first bytes");
    if (magic != internal::kMagic) in_.fail("this is not a trace of cinch");
    const auto version = in_.number<std::uint32_t>("the version");
    if (version != internal::kFormatVersion) {
      in_.fail("version " + std::to_string(version) + " of the format; this program reads version " +
               std::to_string(internal::kFormatVersion));
    }
    TraceHeader header;
    header.source = static_cast<TraceHeader::Source>(in_.number_below<std::uint8_t>(2, "the source"));
    header.threads = static_cast<int>(
        in_.number_below<std::uint32_t>(std::numeric_limits<std::int32_t>::max(), "the number of threads"));
    header.producer = in_.text("the producer");
    header.device_name = in_.text("the device");
    sink_.on_begin(header, names_);
  }

  void records() {
    for (std::uint64_t count = 0;; ++count) {
      switch (static_cast<Tag>(in_.number<std::uint8_t>("the next record"))) {
        case Tag::kEnd:
          end(count);
          return;
        case Tag::kName:
          name();
          break;
        case Tag::kOp:
          op();
          break;
        case Tag::kEvent:
          event();
          break;
        case Tag::kTensor:
          tensor();
          break;
        case Tag::kLabel:
          label();
          break;
        default:
          in_.fail("unknown kind of record");
      }
    }
  }

 private:
  static constexpr std::int64_t kFreed = -1;

  void end(std::uint64_t count) {
    if (in_.number<std::uint64_t>("the number of records") != count) {
      in_.fail("there are " + std::to_string(count) + " records, not as many as it says");
    }
    if (ops_named_ > ops_) in_.fail("an event names op " + std::to_string(ops_named_ - 1) + ", which is not there");
    if (in_.left() != 0) in_.fail(with_thousands(static_cast<std::int64_t>(in_.left())) + " bytes follow the end");
  }

  void name() {
    const std::size_t before = names_.size();
    names_.intern(in_.text("a name"));
    if (names_.size() == before) in_.fail("a name comes twice");
  }

  NameId name_id(const char* what) { return NameId{in_.number_below<std::uint32_t>(names_.size(), what)}; }

  Phase phase() { return static_cast<Phase>(in_.number_below<std::uint8_t>(kPhaseCount, "a phase")); }

  bool flag() { return in_.number_below<std::uint8_t>(2, "the recompute flag") != 0; }

  DType dtype() { return static_cast<DType>(in_.number_below<std::uint8_t>(kDTypeCount, "a dtype")); }

  void op() {
    OpCall call;
    call.name = name_id("an op's name");
    call.module = name_id("an op's module");
    call.phase = phase();
    call.recompute = flag();
    call.dtype = dtype();
    call.step = in_.number<std::uint32_t>("an op's step");
    call.flops = std::bit_cast<double>(in_.number<std::uint64_t>("an op's flops"));
    if (!std::isfinite(call.flops) || call.flops < 0) in_.fail("an op's flops are negative or no number");
    call.read = Bytes(in_.not_negative("bytes read by an op"));
    call.written = Bytes(in_.not_negative("bytes written by an op"));
    if (ops_ == static_cast<std::uint32_t>(kNoOp)) in_.fail("too many ops");
    sink_.on_op(OpId{ops_++}, call);
  }

  void event() {
    Event event;
    event.action = static_cast<Action>(in_.number<std::uint8_t>("an action"));
    if (event.action != Action::kAlloc && event.action != Action::kFreeCompleted && event.action != Action::kOom &&
        event.action != Action::kMark) {
      in_.fail("unknown action " + std::to_string(static_cast<int>(event.action)));
    }
    event.phase = phase();
    event.recompute = flag();
    event.step = in_.number<std::uint32_t>("a step");
    event.allocation = AllocationId{in_.number<std::uint32_t>("an allocation")};
    check_allocation(event);
    event.op = OpId{in_.number<std::uint32_t>("an op")};
    if (event.op != kNoOp) ops_named_ = std::max(ops_named_, std::uint64_t{static_cast<std::uint32_t>(event.op)} + 1);
    event.module = name_id("a module");
    event.bytes = Bytes(in_.not_negative("bytes"));
    apply(event);
    event.time_ns = in_.number<std::int64_t>("a time");
    if (event.time_ns < -1) in_.fail("a time is negative");
    sink_.on_event(event);
  }

  // Right after its field was read, so that the offset is that field's.
  void check_allocation(const Event& event) {
    const auto id = static_cast<std::uint32_t>(event.allocation);
    const std::string text = "allocation " + std::to_string(id);
    if (event.action == Action::kAlloc && id != sizes_.size()) {
      in_.fail(text + " is out of order; the next is " + std::to_string(sizes_.size()));
    }
    if (event.action != Action::kFreeCompleted) return;
    if (id >= sizes_.size()) in_.fail(text + " is freed but was never made");
    if (sizes_[id] == kFreed) in_.fail(text + " is freed twice");
  }

  void apply(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (event.action == Action::kAlloc) {
      if (event.bytes.count() > std::numeric_limits<std::int64_t>::max() - live_) in_.fail("live bytes leave 64 bits");
      live_ += event.bytes.count();
      sizes_.push_back(event.bytes.count());
    } else if (event.action == Action::kFreeCompleted) {
      if (sizes_[id] != event.bytes.count()) {
        in_.fail("allocation " + std::to_string(id) + " was made with " + with_thousands(sizes_[id]) +
                 " bytes and is freed with " + with_thousands(event.bytes.count()));
      }
      live_ -= event.bytes.count();
      sizes_[id] = kFreed;
    }
  }

  AllocationId allocation_id(const char* what) {
    return AllocationId{in_.number_below<std::uint32_t>(sizes_.size(), what)};
  }

  void tensor() {
    const AllocationId allocation = allocation_id("a tensor's allocation");
    TensorInfo info;
    info.dtype = dtype();
    info.sizes.resize(in_.number_below<std::uint8_t>(internal::kMaxRank + 1, "a tensor's rank"));
    for (std::int64_t& size : info.sizes) size = in_.not_negative("a tensor's size");
    sink_.on_tensor(allocation, info);
  }

  void label() {
    const AllocationId allocation = allocation_id("a label's allocation");
    const auto category = static_cast<Category>(in_.number_below<std::uint8_t>(kCategoryCount, "a category"));
    sink_.on_label(allocation, category, name_id("a label's name"));
  }

  Input& in_;
  Sink& sink_;
  NameTable names_;
  std::vector<std::int64_t> sizes_;  // By allocation; kFreed.
  std::int64_t live_ = 0;
  std::uint32_t ops_ = 0;
  std::uint64_t ops_named_ = 0;  // One more than the largest op an event names.
};
}  // namespace

void internal::read_trace(std::istream& in, std::uint64_t size, const std::filesystem::path& file, Sink& sink) {
  Input input(in, size, file);
  Reader reader(input, sink);
  reader.header();
  reader.records();
}

void load(const std::filesystem::path& file, Sink& sink) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(file, error);
  if (error) throw IoError(file, "read", error.value());
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(file, "read", errno);
  internal::read_trace(in, size, file, sink);
}
}  // namespace cinch::trace
