#include <nlohmann/json.hpp>
#include <set>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/interchange/huggingface_weights.h"

namespace cinch::interchange {
namespace {
using nlohmann::json;
constexpr std::size_t kMostShown = 200;

/// A file beside the index, nowhere else.
bool is_plain_name(const std::string& name) {
  return name.size() < 256 && name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

/// Receives the index while it is read: {"metadata": …, "weight_map": {TENSOR: FILE}}. What is not weight_map is
/// skipped.
class IndexReader final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(std::int64_t) override { return other(); }
  bool number_unsigned(std::uint64_t) override { return other(); }
  bool number_float(double, const std::string&) override { return other(); }
  bool binary(json::binary_t&) override { return other(); }
  bool string(std::string& text) override {
    if (depth_ == 0 || !in_map_) return other();
    if (!is_plain_name(text))
      return fail("'" + text.substr(0, kMostShown) + "' is no name of a .safetensors file in this folder");
    files[tensor_] = text;
    return true;
  }
  bool key(std::string& key) override {
    if (depth_ == 1 && !keys_.insert(key).second) return fail("'" + key.substr(0, kMostShown) + "' occurs twice");
    if (depth_ == 1) section_ = key;
    if (depth_ == 2 && in_map_) {
      tensor_ = key;
      if (files.contains(key)) return fail("'" + key.substr(0, kMostShown) + "' occurs twice");
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_map_) return fail("weight_map holds an object");
    in_map_ = ++depth_ == 2 && section_ == "weight_map";
    has_map |= in_map_;
    return true;
  }
  bool end_object() override {
    --depth_;
    in_map_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || in_map_ || (depth_ == 1 && section_ == "weight_map"))
      return fail("a list where an object belongs");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    offset = position > 0 ? position - 1 : 0;
    problem = "this is no JSON";
    return false;
  }

  std::map<std::string, std::string> files;
  bool has_map = false;
  std::string problem;
  std::uint64_t offset = 0;

 private:
  bool fail(const std::string& what) {
    problem = printable(what);
    return false;
  }
  bool other() {
    if (depth_ == 0) return fail("this is no JSON object");
    if (in_map_) return fail("weight_map holds something else than the names of files");
    if (depth_ == 1 && section_ == "weight_map") return fail("weight_map is no object");
    return true;
  }

  int depth_ = 0;
  bool in_map_ = false;
  std::string section_, tensor_;
  std::set<std::string> keys_;
};
}  // namespace

std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::filesystem::path& file) {
  IndexReader reader;
  if (!json::sax_parse(text, &reader)) throw DataError(file, reader.offset, reader.problem);
  if (!reader.has_map) throw DataError(file, 0, "there is no weight_map in it");
  return std::move(reader.files);
}
}  // namespace cinch::interchange
