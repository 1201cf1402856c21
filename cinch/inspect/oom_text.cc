#include "cinch/inspect/oom_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/inspect/internal/plain_text.h"

namespace cinch::inspect {
namespace {

constexpr std::size_t kLongestMessage = 50'000;  // Letters; a thousand processes on one card.
constexpr std::size_t kLookBack = 200;           // For what stands before "Tried to allocate".

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
/// PyTorch's "GB" (of MPS, until 2.4) is 2^30 bytes too.
constexpr std::array<Unit, 9> kUnits{{{"bytes", 1},
                                      {"kib", std::int64_t{1} << 10},
                                      {"mib", std::int64_t{1} << 20},
                                      {"gib", std::int64_t{1} << 30},
                                      {"tib", std::int64_t{1} << 40},
                                      {"kb", std::int64_t{1} << 10},
                                      {"mb", std::int64_t{1} << 20},
                                      {"gb", std::int64_t{1} << 30},
                                      {"tb", std::int64_t{1} << 40}}};

std::int64_t power_of_ten(std::size_t digits) {
  std::int64_t power = 1;
  for (std::size_t i = 0; i < digits; ++i) power *= 10;
  return power;
}

/// "22.78" and its unit. Nothing if it is no number or past 2^62 bytes: what PyTorch prints for "no limit".
std::optional<Printed> figure(std::string_view number, std::int64_t unit) {
  const std::size_t dot = std::min(number.find('.'), number.size());
  const std::string_view whole = number.substr(0, dot);
  const std::string_view decimals = number.substr(std::min(dot + 1, number.size()));
  if (whole.empty() || whole.size() > 18 || decimals.size() > 6) return std::nullopt;
  std::int64_t value = 0, fraction = 0;
  for (const char c : whole) value = value * 10 + (c - '0');
  for (const char c : decimals) fraction = fraction * 10 + (c - '0');
  if (value >= (std::int64_t{1} << 62) / unit) return std::nullopt;
  const std::int64_t scale = power_of_ten(decimals.size());
  const std::int64_t bytes = value * unit + fraction * unit / scale;
  const std::int64_t half = unit == 1 ? 0 : (unit + 2 * scale - 1) / (2 * scale);
  return Printed{Bytes(bytes), Bytes(std::max<std::int64_t>(0, bytes - half)), Bytes(bytes + half)};
}

/// The figure that `text` begins with.
std::optional<Printed> figure_at(std::string_view text) {
  std::size_t length = 0;
  bool dot = false;
  while (length < text.size() && (is_digit(text[length]) || (text[length] == '.' && !dot)))
    dot |= text[length++] == '.';
  for (const Unit& unit : kUnits) {
    if (text.substr(length).starts_with(unit.name)) return figure(text.substr(0, length), unit.bytes);
  }
  return std::nullopt;
}

/// The figure that `text` ends with.
std::optional<Printed> figure_before(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::size_t end = text.size() - unit.name.size();
    std::size_t begin = end;
    bool dot = false;
    while (begin > 0 && (is_digit(text[begin - 1]) || (text[begin - 1] == '.' && !dot))) dot |= text[--begin] == '.';
    while (begin < end && text[begin] == '.') ++begin;  // The full stop of the sentence before.
    return figure(text.substr(begin, end - begin), unit.bytes);
  }
  return std::nullopt;
}

/// One message, squeezed: "triedtoallocate…" to where the next begins.
class Message {
 public:
  explicit Message(std::string_view text) : text_(text) {}

  bool has(std::string_view words) const { return text_.find(words) != std::string_view::npos; }
  std::optional<Printed> before(std::string_view words) const {
    const std::size_t at = text_.find(words);
    return at == std::string_view::npos ? std::nullopt : figure_before(text_.substr(0, at));
  }
  std::optional<Printed> after(std::string_view words) const {
    const std::size_t at = text_.find(words);
    return at == std::string_view::npos ? std::nullopt : figure_at(text_.substr(at + words.size()));
  }
  std::optional<std::int64_t> number_after(std::string_view words) const {
    const std::size_t at = text_.find(words);
    return at == std::string_view::npos ? std::nullopt : number_at(at + words.size()).first;
  }
  /// "Process 1839 has 322.23 MiB memory in use."
  std::vector<OomError::Process> processes() const {
    constexpr std::string_view word = "process";
    std::vector<OomError::Process> found;
    for (std::size_t at = text_.find(word); at != std::string_view::npos; at = text_.find(word, at + 1)) {
      const auto [id, end] = number_at(at + word.size());
      const std::string_view rest = text_.substr(end);
      if (!id || !rest.starts_with("has")) continue;
      if (const auto used = figure_at(rest.substr(3))) found.push_back({*id, *used});
    }
    return found;
  }

 private:
  std::pair<std::optional<std::int64_t>, std::size_t> number_at(std::size_t at) const {
    std::size_t end = at;
    std::int64_t value = 0;
    while (end < text_.size() && is_digit(text_[end]) && end - at < 18) value = value * 10 + (text_[end++] - '0');
    return {end == at ? std::nullopt : std::optional(value), end};
  }

  std::string_view text_;
};

Printed sum(const Printed& a, const Printed& b) { return {a.bytes + b.bytes, a.least + b.least, a.most + b.most}; }
Printed difference(const Printed& a, const Printed& b) {
  const auto no_less_than_zero = [](Bytes bytes) { return std::max(bytes, Bytes(0)); };
  return {no_less_than_zero(a.bytes - b.bytes), no_less_than_zero(a.least - b.most),
          no_less_than_zero(a.most - b.least)};
}
Printed smaller(const Printed& a, const Printed& b) {
  return {std::min(a.bytes, b.bytes), std::min(a.least, b.least), std::min(a.most, b.most)};
}

/// Of PyTorch 2.1 and later.
void read_sentences(const Message& message, OomError& error) {
  error.capacity = message.after("hasatotalcapacityof");
  if (!error.capacity) error.capacity = message.after("hasatotalcapactyof");  // As 2.1 spells it.
  error.free = message.before("isfree.");
  error.allowed = message.before("allowed;");
  error.allocated = message.before("isallocatedbypytorch");
  error.private_pools = message.before("allocatedinprivatepools");
  error.unallocated = message.before("isreservedbypytorchbutunallocated");
  error.this_process = message.after("thisprocesshas");
  error.processes = message.processes();
}

/// Of PyTorch 1.0 to 2.0: "(GPU 0; 15.90 GiB total capacity; …". "cached" (until 1.3) is what is reserved but
/// unallocated.
void read_parenthesis(const Message& message, OomError& error) {
  error.capacity = message.before("totalcapacity");
  error.free = message.before("free;");
  error.allowed = message.before("allowed;");
  error.allocated = message.before("alreadyallocated");
  error.unallocated = message.before("cached)");
  const auto reserved = message.before("reservedintotalbypytorch");
  if (reserved && error.allocated) error.unallocated = difference(*reserved, *error.allocated);
}

std::string advice_of(const Message& message) {
  if (message.has("expandable_segments:true")) return "expandable_segments:True";
  if (message.has("max_split_size_mb")) return "max_split_size_mb";
  if (message.has("empty_cache")) return "empty_cache";
  return message.has("pytorch_mps_high_watermark_ratio") ? "PYTORCH_MPS_HIGH_WATERMARK_RATIO" : "";
}

/// In a container a process is listed under a number that it does not know: the one that holds about as much as PyTorch
/// says it has reserved, and a context.
void find_itself(OomError& error) {
  if (error.this_process || !error.allocated || !error.unallocated) return;
  constexpr Bytes kMostBeside(std::int64_t{3} << 30);  // Contexts, libraries' and NCCL's buffers.
  const Bytes reserved = error.allocated->least + error.unallocated->least;
  OomError::Process* best = nullptr;
  for (OomError::Process& process : error.processes) {
    const bool near = process.in_use.most >= reserved && process.in_use.least <= reserved + kMostBeside;
    if (near && (best == nullptr || process.in_use.bytes < best->in_use.bytes)) best = &process;
  }
  if (best != nullptr) best->perhaps_this = true;
}

/// What one request could have had: exact sentences, or bounds where the message leaves something out.
std::optional<Printed> room_of(const OomError& error) {
  if (error.free && error.unallocated) {
    Printed usable = *error.free;
    if (error.allowed && error.allocated) {
      usable = smaller(usable, difference(*error.allowed, sum(*error.allocated, *error.unallocated)));
    }
    return sum(usable, *error.unallocated);
  }
  if (error.capacity && error.allocated) {
    const Printed limit = error.allowed ? smaller(*error.capacity, *error.allowed) : *error.capacity;
    const Printed most = difference(limit, *error.allocated);
    const Bytes least = error.free ? std::min(error.free->least, most.bytes) : Bytes(0);
    return Printed{most.bytes, least, most.most};
  }
  return std::nullopt;
}

/// Held on the card by what the message does not name.
std::optional<Printed> elsewhere_of(const OomError& error) {
  if (!error.capacity || !error.free || !error.allocated || !error.unallocated) return std::nullopt;
  const auto larger = [](const Printed& a, const Printed& b) { return a.bytes < b.bytes ? b : a; };
  const Printed reserved = sum(*error.allocated, *error.unallocated);
  Printed named = error.this_process ? larger(reserved, *error.this_process) : reserved;
  for (const OomError::Process& process : error.processes) {
    named = process.perhaps_this ? larger(named, process.in_use) : sum(named, process.in_use);
  }
  return difference(*error.capacity, sum(*error.free, named));
}

void judge(OomError& error) {
  using Source = OomError::Source;
  if (error.source == Source::kDriver || !error.asked) return;
  if (error.source == Source::kCpu) {  // malloc has no settings, and the system has refused.
    error.verdict = Verdict::kNo;
    return;
  }
  if (error.source == Source::kMps) {  // The limit that was met is itself a setting.
    error.verdict = Verdict::kPossible;
    return;
  }
  error.room = room_of(error);
  const Printed asked = *error.asked;
  if (error.room) error.short_by_range = {asked.least - error.room->most, asked.most - error.room->least};
  if (error.block_limit && asked.least > error.block_limit->most) {
    error.verdict = Verdict::kNo;
    return;
  }
  const std::optional<Printed> bound = error.room ? error.room : error.capacity;
  if (bound && asked.least > bound->most) {
    error.verdict = Verdict::kNo;
    error.short_by = difference(asked, *bound);
    if (!error.short_by_range) error.short_by_range = {error.short_by->least, error.short_by->most};
  } else if (error.free && asked.most <= error.free->least && !error.allowed) {
    error.verdict = Verdict::kNotFragmentation;
  } else if ((error.room && asked.most <= error.room->least) || (error.free && asked.most <= error.free->least)) {
    error.verdict = Verdict::kPossible;
  }
}

void finish(const Message& message, OomError& error) {
  if (const auto gpu = message.number_after("gpu"))
    error.device = static_cast<int>(std::min<std::int64_t>(*gpu, 1 << 20));
  error.advice = advice_of(message);
  if (error.asked && (error.source == OomError::Source::kCuda || error.source == OomError::Source::kHip)) {
    const std::int64_t asked = error.asked->bytes.count();
    error.asked_is_segment = asked == 2 << 20 || asked == 20 << 20;
  }
  find_itself(error);
  error.elsewhere = elsewhere_of(error);
  judge(error);
}

/// "… out of memory. Tried to allocate X…", whoever says it; `before` is what stands before these words.
std::optional<OomError> read_tried(std::string_view before, const Message& message) {
  using Source = OomError::Source;
  OomError error;
  error.asked = message.after("triedtoallocate");
  if (!error.asked) return std::nullopt;
  const auto said = [&](std::string_view words) { return before.rfind(words) != std::string_view::npos; };
  if (before.ends_with("you")) {
    error.source = Source::kCpu;
  } else if (said("mpsbackendoutofmemory")) {
    error.source = Source::kMps;
    const Message limits(before.substr(before.rfind("mpsbackendoutofmemory")));
    error.allocated = limits.after("(mpsallocated:");
    error.allowed = limits.after("maxallowed:");
  } else if (before.ends_with("outofmemory.") || message.has("totalcapac")) {
    if (before.ends_with("hipoutofmemory.")) error.source = Source::kHip;
    if (before.ends_with("xpuoutofmemory.") || said("currentplatformcannotallocatememoryblock"))
      error.source = Source::kXpu;
    error.block_limit = Message(before).after("blockwithsizelargerthan");
    message.has("totalcapacity;") ? read_parenthesis(message, error) : read_sentences(message, error);
  } else {
    return std::nullopt;  // Somebody else's sentence.
  }
  finish(message, error);
  return error;
}

/// "Allocation on device 0 would exceed allowed memory. (out of memory)", and a list.
std::optional<OomError> read_async(std::string_view before, const Message& message) {
  OomError error;
  error.source = OomError::Source::kCudaAsync;
  error.allocated = message.after("currentlyallocated:");
  error.asked = message.after("requested:");
  error.capacity = message.after("devicelimit:");
  error.free = message.after("free(accordingtocuda):");
  error.allowed = message.after("user-suppliedmemoryfraction):");
  finish(message, error);
  const std::size_t digit = before.find_last_not_of("0123456789");
  const std::string_view number = before.substr(digit == std::string_view::npos ? 0 : digit + 1);
  if (!number.empty() && number.size() < 6) error.device = std::stoi(std::string(number));
  return error;
}

std::optional<OomError> read_driver(std::string_view /*before*/, const Message& /*message*/) {
  OomError error;
  error.source = OomError::Source::kDriver;
  return error;
}

/// "CUDA out of memory" alone. With figures it is read elsewhere; cut off within them it says no more than this.
std::optional<OomError> read_bare(std::string_view before, const Message& /*message*/) {
  OomError error;
  if (before.ends_with("hip")) {
    error.source = OomError::Source::kHip;
  } else if (before.ends_with("xpu")) {
    error.source = OomError::Source::kXpu;
  } else if (!before.ends_with("cuda")) {
    return std::nullopt;
  }
  return error;
}

/// Words by which an error is found, and who reads it. Those with figures first.
struct Anchor {
  std::string_view words;
  std::optional<OomError> (*read)(std::string_view before, const Message& message);
};
constexpr std::array<Anchor, 10> kAnchors{{{"triedtoallocate", read_tried},
                                           {"wouldexceedallowedmemory.(outofmemory)", read_async},
                                           {"cudaerror:outofmemory", read_driver},
                                           {"hiperror:outofmemory", read_driver},
                                           {"cudaruntimeerror(2):outofmemory", read_driver},
                                           {"cuda_error_out_of_memory", read_driver},
                                           {"cudafailedwitherroroutofmemory", read_driver},
                                           {"cublas_status_alloc_failed", read_driver},
                                           {"cudnn_status_alloc_failed", read_driver},
                                           {"outofmemory", read_bare}}};
constexpr std::size_t kWithFigures = 2;  // The first of kAnchors.

struct Hit {
  std::size_t at;
  const Anchor* anchor;
};

std::vector<Hit> find(std::string_view text, std::size_t first, std::size_t last) {
  std::vector<Hit> hits;
  for (std::size_t i = first; i < last; ++i) {
    const std::string_view words = kAnchors[i].words;
    for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + words.size())) {
      hits.push_back({at, &kAnchors[i]});
    }
  }
  std::stable_sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.at < b.at; });
  return hits;
}

/// Equal for what is the same error, printed again by a handler or another logger.
std::string identity(const OomError& error) {
  std::string key = std::to_string(static_cast<int>(error.source)) + "/" + std::to_string(error.device.value_or(-1));
  for (const auto& figure : {error.asked, error.capacity, error.free, error.allocated, error.unallocated}) {
    key += "/" + std::to_string(figure ? figure->bytes.count() : -1);
  }
  return key;
}

std::vector<OomError> read(std::string_view squeezed, const std::vector<Hit>& hits) {
  std::vector<OomError> errors;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < hits.size(); ++i) {
    const std::size_t at = hits[i].at;
    const std::size_t end = std::min(i + 1 < hits.size() ? hits[i + 1].at : squeezed.size(), at + kLongestMessage);
    const std::size_t begin = std::max(i > 0 ? hits[i - 1].at : 0, at > kLookBack ? at - kLookBack : 0);
    auto error = hits[i].anchor->read(squeezed.substr(begin, at - begin), Message(squeezed.substr(at, end - at)));
    if (!error) continue;
    error->offset = at;
    const auto [place, fresh] = known.emplace(identity(*error), errors.size());
    if (fresh) {
      errors.push_back(std::move(*error));
    } else {
      ++errors[place->second].times;
    }
  }
  return errors;
}
}  // namespace

OomReport parse_oom_text(std::string_view text, std::string_view name) {
  const std::string squeezed = internal::squeeze(text);
  std::vector<OomError> errors = read(squeezed, find(squeezed, 0, kWithFigures));
  if (errors.empty()) errors = read(squeezed, find(squeezed, kWithFigures, kAnchors.size()));
  if (errors.empty()) {
    throw DataError(std::string(name), 0, "no out-of-memory error of PyTorch in this text",
                    "Paste the whole message, from \"CUDA out of memory. Tried to allocate\" on.");
  }
  std::vector<std::size_t> places;
  places.reserve(errors.size());
  for (const OomError& error : errors) places.push_back(error.offset);
  places = internal::origins(text, places);
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i].offset = places[i];
  return {std::move(errors)};
}
}  // namespace cinch::inspect
