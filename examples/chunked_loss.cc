// A language model's head whose logits never exist as a whole.
#include <iostream>

#include <torch/nn/modules/linear.h>

#include "cinch/record/recorder.h"
#include "cinch/techniques/linear_cross_entropy.h"
#include "cinch/trace/trace.h"

int main() {
  torch::nn::Linear head(torch::nn::LinearOptions(64, 5000).bias(false));
  const auto hidden = at::randn({4, 128, 64}).requires_grad_();
  const auto next = at::randint(5000, {4, 128}, at::kLong);

  for (const std::int64_t chunk : {0, 32}) {
    cinch::trace::Trace trace;
    const cinch::record::Recorder recorder(trace);
    const auto loss = cinch::linear_cross_entropy(hidden, head->weight, {}, next, {.chunk_size = chunk});
    loss.backward();
    std::cout << "chunk size " << chunk << ": loss " << loss.item<float>() << ", peak " << to_string(recorder.peak())
              << '\n';
    hidden.mutable_grad().reset();
    head->zero_grad();
  }

  const auto rows = cinch::techniques::loss_chunk_size_for(cinch::Bytes::parse("1MiB"), 4 * 128, 5000);
  std::cout << "1 MiB holds the logits of " << rows << " rows\n";
}
