#include "cinch/techniques/activation_checkpoint.h"

#include <utility>

#include "cinch/techniques/internal/frame.h"
#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques {
namespace {

class Dropped final : public SavedHandle {
 public:
  Dropped(std::shared_ptr<internal::Frame> frame, std::shared_ptr<internal::Slot> slot)
      : frame_(std::move(frame)), slot_(std::move(slot)) {}
  at::Tensor unpack() override { return frame_->take(*slot_); }

 private:
  std::shared_ptr<internal::Frame> frame_;
  std::shared_ptr<internal::Slot> slot_;
};

/// Policy of the first run: keeps nothing.
class Drop final : public SavedTensorPolicy {
 public:
  explicit Drop(std::shared_ptr<internal::Frame> frame) : frame_(std::move(frame)) {}
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override {
    return std::make_unique<Dropped>(frame_, frame_->drop(tensor));
  }

 private:
  std::shared_ptr<internal::Frame> frame_;
};

}  // namespace

namespace detail {

struct CheckpointRegion::State {
  explicit State(const std::shared_ptr<internal::Frame>& frame)
      : drop(frame), scope(drop), keeping(frame->kept_outputs()), logging(frame->op_log()) {}
  Drop drop;
  SavedTensorScope scope;
  internal::KeepingScope keeping;
  internal::OpLogScope logging;
};

CheckpointRegion::CheckpointRegion(const CheckpointPolicy& policy, c10::ArrayRef<at::Tensor> inputs, Rerun rerun)
    : state_(std::make_unique<State>(std::make_shared<internal::Frame>(policy, inputs, std::move(rerun)))) {}

CheckpointRegion::~CheckpointRegion() = default;

}  // namespace detail
}  // namespace cinch::techniques
