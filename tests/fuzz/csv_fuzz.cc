// Any bytes as a CSV file of images: batches, or an error with a sentence; never a crash.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "cinch/core/error.h"
#include "cinch/data/source.h"
#include "cinch/job/job.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::pwrite(descriptor, data, size, 0) != static_cast<::ssize_t>(size)) abort();
  const cinch::job::CsvData csv{.path = {"/proc/self/fd/" + std::to_string(descriptor)}, .held_out = 0.3};
  const cinch::job::MlpConfig model{.sizes = {3, 2}};
  try {
    for (const auto split : {cinch::data::Split::kTrain, cinch::data::Split::kHeldOut}) {
      const auto source = cinch::data::open(csv, model, 4, 1, split);
      for (int i = 0; i < 3; ++i) {
        const auto batch = source->next();
        const auto* label = batch.targets.const_data_ptr<std::int64_t>();
        const auto* pixel = batch.inputs.const_data_ptr<float>();
        for (int j = 0; j < 4; ++j) {
          if (label[j] < 0 || label[j] > 1) abort();
        }
        for (int j = 0; j < 12; ++j) {
          if (!(pixel[j] >= 0 && pixel[j] <= 1)) abort();
        }
      }
    }
  } catch (const cinch::Error&) {
  }
  ::close(descriptor);
  return 0;
}
