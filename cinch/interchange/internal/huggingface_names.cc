// Names: huggingface/transformers, models/{gpt2,bert,vit,llama,resnet}/modeling_*.py.

#include "cinch/interchange/internal/huggingface_names.h"

#include <optional>
#include <variant>

#include "cinch/core/error.h"

namespace cinch::interchange {
namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A module or tensor here, and its name there; * in both is the number of a layer. `theirs` may be several names with
/// | between them: equal parts of our rows.
struct Rule {
  std::string ours, theirs;
  enum Kind { kPlain, kTransposed, kHead, kPositions } kind = kPlain;
};

struct Family {
  std::string prefix;
  std::vector<Rule> rules;
  std::vector<std::string> unused;
};

/// If `name` begins with `rule.ours` up to a dot or its end: what the * stood for, and the rest.
struct Match {
  std::string number, rest;
};
std::optional<Match> match(std::string_view name, std::string_view ours) {
  Match found;
  std::size_t at = 0;
  for (const char c : ours) {
    if (c == '*') {
      const std::size_t begin = at;
      while (at < name.size() && is_digit(name[at])) ++at;
      if (at == begin) return std::nullopt;
      found.number = name.substr(begin, at - begin);
    } else if (at < name.size() && name[at] == c) {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  if (at < name.size() && name[at] != '.') return std::nullopt;
  found.rest = name.substr(at);
  return found;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find('|'); end != std::string::npos; end = text.find('|', begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

void add_pieces(const Rule& rule, const Match& match, const at::Tensor& tensor, std::vector<Piece>& pieces) {
  const std::vector<std::string> parts = split(rule.theirs);
  const auto count = static_cast<std::int64_t>(parts.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::string name = parts[static_cast<std::size_t>(i)];
    if (const std::size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, match.number);
    at::Tensor view = tensor;
    if (count > 1) view = tensor.narrow(0, i * (tensor.size(0) / count), tensor.size(0) / count);
    // GPT-2's Conv1D keeps its weights as inputs × outputs.
    if (rule.kind == Rule::kTransposed && tensor.dim() == 2) view = view.t();
    pieces.push_back({name + match.rest, view, rule.kind == Rule::kHead, rule.kind == Rule::kPositions});
  }
}

Family family_of(const job::GptConfig& config) {
  Family family{"transformer.",
                {{"wte", "wte"},
                 {"wpe", "wpe", Rule::kPositions},
                 {"layers.*.norm1", "h.*.ln_1"},
                 {"layers.*.norm2", "h.*.ln_2"},
                 {"layers.*.attention.qkv", "h.*.attn.c_attn", Rule::kTransposed},
                 {"layers.*.attention.proj", "h.*.attn.c_proj", Rule::kTransposed},
                 {"layers.*.mlp.fc", "h.*.mlp.c_fc", Rule::kTransposed},
                 {"layers.*.mlp.proj", "h.*.mlp.c_proj", Rule::kTransposed},
                 {"norm", "ln_f"},
                 {"head", "lm_head", Rule::kHead}},
                {"h.*.attn.bias", "h.*.attn.masked_bias"}};
  if (config.tie_weights) family.unused.emplace_back("lm_head.weight");
  return family;
}

Family family_of(const job::ResNetConfig& config) {
  const int convolutions = config.depth < 50 ? 2 : 3;
  Family family{"resnet.",
                {{"conv1", "embedder.embedder.convolution"},
                 {"bn1", "embedder.embedder.normalization"},
                 {"fc", "classifier.1", Rule::kHead}},
                {}};
  for (int stage = 0; stage < 4; ++stage) {
    const std::string ours = "layer" + std::to_string(stage + 1), theirs = "encoder.stages." + std::to_string(stage);
    const auto add = [&](const std::string& module, const std::string& name) {
      family.rules.push_back(
          {std::string(ours).append(".*.").append(module), std::string(theirs).append(".layers.*.").append(name)});
    };
    for (int i = 0; i < convolutions; ++i) {
      const std::string number = std::to_string(i + 1), layer = "layer." + std::to_string(i);
      add("conv" + number, layer + ".convolution");
      add("bn" + number, layer + ".normalization");
    }
    add("downsample.0", "shortcut.convolution");
    add("downsample.1", "shortcut.normalization");
  }
  return family;
}

// Modules that are named here as there: a rule's name stands for all below it.
Family family_of(const job::BertConfig&) {
  return {"bert.",
          {{"embeddings.position_embeddings", "embeddings.position_embeddings", Rule::kPositions},
           {"embeddings", "embeddings"},
           {"encoder", "encoder"},
           {"pooler", "pooler"},
           {"classifier", "classifier", Rule::kHead},
           {"cls", "cls", Rule::kHead}},
          {"embeddings.position_ids", "embeddings.token_type_ids", "pooler.", "cls.seq_relationship.",
           "cls.predictions.decoder."}};
}

Family family_of(const job::VitConfig&) {
  return {"vit.",
          {{"embeddings", "embeddings"},
           {"encoder", "encoder"},
           {"layernorm", "layernorm"},
           {"classifier", "classifier", Rule::kHead}},
          {"pooler."}};
}

Family family_of(const job::LlamaConfig& config) {
  Family family{
      "model.",
      {{"embed_tokens", "embed_tokens"}, {"layers", "layers"}, {"norm", "norm"}, {"lm_head", "lm_head", Rule::kHead}},
      {"layers.*.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}};
  if (config.tie_weights) family.unused.emplace_back("lm_head.weight");
  return family;
}

template <typename Config>
Family family_of(const Config&) {
  throw UsageError("only gpt, bert, vit, llama and resnet have weights that Hugging Face names",
                   "Leave model.weights out.");
}
}  // namespace

bool matches(std::string_view name, std::string_view pattern) {
  const bool any_rest = pattern.ends_with('.');
  const auto found = match(name, any_rest ? pattern.substr(0, pattern.size() - 1) : pattern);
  return found && (any_rest ? !found->rest.empty() : found->rest.empty());
}

Names names_of(const torch::nn::Module& model, const job::ModelConfig& config) {
  Family family = std::visit([](const auto& kind) { return family_of(kind); }, config);
  Names names{std::move(family.prefix), {}, std::move(family.unused)};
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    for (const Rule& rule : family.rules) {
      const auto found = match(name, rule.ours);
      if (!found) continue;
      add_pieces(rule, *found, tensor.detach(), names.pieces);
      return;
    }
    throw UsageError("the model's '" + name + "' has no name in Hugging Face's files");
  };
  for (const auto& parameter : model.named_parameters()) add(parameter.key(), parameter.value());
  for (const auto& buffer : model.named_buffers()) {
    if (!names.pieces.empty() && buffer.key().ends_with("inv_freq")) continue;
    add(buffer.key(), buffer.value());
  }
  return names;
}
}  // namespace cinch::interchange
