// train::fit: a job trained under a plan and a cap, what was predicted beside what was measured.

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/data/source.h"
#include "cinch/interchange/huggingface_weights.h"
#include "cinch/record/arena.h"
#include "cinch/record/recorder.h"
#include "cinch/report/summarize.h"
#include "cinch/trace/scope.h"
#include "cinch/train/checkpoint.h"
#include "cinch/train/internal/run_recording.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/run_folder.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;
using trace::Phase;
using trace::PhaseScope;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSampleBytes = 400;
constexpr std::int64_t kNothing = -1;  ///< As a step: before all.

/// What asks for memory alike, to the arena.
constexpr std::int64_t kTraining = 0, kEvaluation = 1;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Whether something that happens every `every` steps (0: never) and at the end is due after `step`.
bool due(std::int64_t step, std::int64_t every, std::int64_t last) {
  return step == last || (every > 0 && step % every == 0);
}

/// The first step of at least `from` after which it is due.
std::int64_t next_due(std::int64_t from, std::int64_t every, std::int64_t last) {
  if (every == 0 || from >= last) return last;
  return std::min(last, (from + every - 1) / every * every);
}

/// A run writes into a folder of its own: an older training's weights are neither mixed with it nor overwritten.
std::optional<fs::path> checkpoint_to_resume(const std::string& run_dir, bool resume) {
  if (run_dir.empty()) {
    if (resume) throw UsageError("nothing to resume: the job has no train.run_dir", "Set train.run_dir.");
    return std::nullopt;
  }
  auto newest = newest_checkpoint(run_dir);
  if (resume && !newest) {
    throw UsageError("nothing to resume: there is no checkpoint in " + run_dir, "Leave --resume out to begin.");
  }
  if (!resume && newest) {
    throw UsageError(run_dir + " already holds a training, saved as " + newest->filename().string(),
                     "Go on with it (--resume), or set another train.run_dir.");
  }
  return newest;
}

/// A checkpoint with weights that are not finite could never be resumed from.
void check_finite(const torch::nn::Module& model, std::int64_t step) {
  for (const auto& [name, tensor] : weights_of(model)) {
    if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) continue;
    const float* values = tensor.const_data_ptr<float>();
    if (std::all_of(values, values + tensor.numel(), [](float value) { return std::isfinite(value); })) continue;
    throw Error("after step " + std::to_string(step) + " the weights '" + name + "' are not finite",
                "Lower train.learning_rate, or set train.max_grad_norm. Nothing was saved of this step.");
  }
}

/// A prediction ends with an evaluation, if there is one, and then a save: so must what is kept.
RecordingWindows windows_of(const job::TrainConfig& train, std::int64_t start, bool evaluates) {
  const std::int64_t last = std::min(start + 2, train.steps);
  const std::int64_t evaluation = evaluates ? next_due(last, train.evaluate_every, train.steps) : last;
  return {.last_step = static_cast<std::uint32_t>(last),
          .evaluation_step = static_cast<std::uint32_t>(evaluation),
          .save_step = static_cast<std::uint32_t>(next_due(evaluation, train.save_every, train.steps))};
}

/// What of `predicted` the recording can be held against: it may be of one step, or have been stopped early.
trace::Trace comparable_part(const trace::Trace& predicted, const trace::Trace& recorded) {
  bool evaluated = false, saved = false;
  for (const trace::Event& event : recorded.events()) {
    evaluated |= event.phase == Phase::kEvaluation;
    saved |= event.phase == Phase::kSave;
  }
  std::uint32_t evaluation = kNoStep, save = kNoStep;
  for (const trace::Event& event : predicted.events()) {
    if (evaluated && event.phase == Phase::kEvaluation) evaluation = event.step;
    if (saved && event.phase == Phase::kSave) save = event.step;
  }
  RunRecording part({std::min(recorded.steps(), predicted.steps()), evaluation, save});
  predicted.replay(part);
  return part.take();
}

/// One training: everything that lives between its first and its last tensor.
class Fit {
 public:
  Fit(const job::Job& job, const plan::Plan& plan, const FitOptions& options)
      : job_(job),
        plan_(plan),
        options_(options),
        checkpoint_(begin(job, options)),
        start_(checkpoint_ ? read_checkpoint_state(*checkpoint_).step : 0),
        source_(data::open(job.data, job.model, job.train.batch_size, job.train.seed)),
        held_out_(data::open(job.data, job.model, job.train.batch_size, job.train.seed, data::Split::kHeldOut)),
        held_out_begin_(held_out_ ? held_out_->state() : ""),
        predicted_(simulator(job, device::find("cpu", at::get_num_threads()))(plan)),
        recording_(windows_of(job.train, start_, held_out_ != nullptr)),
        recorder_(recording_, {.cap = options.cap}),
        session_(make_session(job, plan)) {
    if (job.memory.arena) arena_.emplace();
  }

  report::FitSummary run() {
    restore();
    train();
    trace::Trace measured = recording_.kept();  // Without the sample, which no prediction has.
    if (!summary_.interrupted) write_sample();
    summarize(std::move(measured));
    return std::move(summary_);
  }

 private:
  /// Before anything is computed: the lock, and what to resume from.
  std::optional<fs::path> begin(const job::Job& job, const FitOptions& options) {
    set_threads(job.train.threads);
    if (!job.train.run_dir.empty()) lock_.emplace(job.train.run_dir);
    return checkpoint_to_resume(job.train.run_dir, options.resume);
  }

  static Session make_session(const job::Job& job, const plan::Plan& plan) {
    const PhaseScope init(Phase::kInit, 0);
    return Session(job, plan);
  }

  void restore() {
    if (checkpoint_) {
      const PhaseScope init(Phase::kInit, 0);
      source_->restore(load_checkpoint(*checkpoint_, session_).data_position);
      saved_ = start_;
    } else if (!job_.weights.empty()) {
      const PhaseScope init(Phase::kInit, 0);
      const auto loaded = interchange::load_huggingface(session_.model(), job_.model, job_.weights);
      const std::string note = interchange::describe(loaded);
      if (options_.on_note && !note.empty()) options_.on_note(note);
    }
    summary_.resumed_at = start_;
    if (job_.train.run_dir.empty()) return;
    const fs::path run_dir = job_.train.run_dir;
    write_file(run_dir / "job.toml", job::to_toml(job_));
    write_file(run_dir / "plan.toml", plan::to_toml(plan_));
    log_.emplace(run_dir, checkpoint_ ? start_ : kNothing, summary_.steps, summary_.evaluations);
  }

  template <class Work>
  auto in_arena(std::int64_t kind, const Work& work) {
    std::optional<record::Arena::Step> step;
    if (arena_) step.emplace(*arena_, kind);
    return work();
  }

  void train() {
    if (held_out_ && !checkpoint_) append({.evaluation = evaluate(0)});
    for (std::int64_t step = start_ + 1; step <= job_.train.steps; ++step) {
      if (options_.stop.stop_requested()) break;
      const LogLine line = train_step(step);
      append(line);
      report_progress(line);
      if (due(step, job_.train.save_every, job_.train.steps)) save();
    }
    summary_.interrupted = session_.steps_done() < job_.train.steps;
    save();
  }

  LogLine train_step(std::int64_t step) {
    const Clock::time_point begin = Clock::now();
    const auto position = static_cast<std::uint32_t>(step);
    const StepNumbers numbers = in_arena(kTraining, [&] {
      return run_step(session_, [&] { return source_->next(); }, position);
    });
    check_finite_number("loss of", numbers.loss, step);
    check_finite_number("gradient of", numbers.grad_norm.value_or(0), step);
    LogLine line{.step = step,
                 .loss = numbers.loss,
                 .learning_rate = job::learning_rate_at(job_.train, step),
                 .seconds = seconds_since(begin)};
    seconds_.push_back(line.seconds);
    seconds_sum_ += line.seconds;
    if (held_out_ && due(step, job_.train.evaluate_every, job_.train.steps)) line.evaluation = evaluate(step);
    line.live = recorder_.live();
    line.peak = recorder_.peak();
    return line;
  }

  void check_finite_number(const char* what, double value, std::int64_t step) const {
    if (std::isfinite(value)) return;
    std::ostringstream text;
    text << "the " << what << " step " << step << " is not finite (" << value << ")";
    throw Error(text.str(), "Lower train.learning_rate, or set train.max_grad_norm." +
                                (saved_ > 0 ? " Step " + std::to_string(saved_) + " is saved." : std::string()));
  }

  /// Every time on the same batches, so that evaluations compare. Training's own position is another source's.
  double evaluate(std::int64_t step) {
    held_out_->restore(held_out_begin_);
    const double loss = in_arena(kEvaluation, [&] {
      return run_evaluation(session_, [&] { return held_out_->next(); }, job_.train.evaluation_batches,
                            static_cast<std::uint32_t>(step));
    });
    check_finite_number("evaluation after", loss, step);
    return loss;
  }

  void append(const LogLine& line) {
    if (line.step > 0) summary_.steps.push_back({line.step, line.loss});
    if (line.evaluation) summary_.evaluations.push_back({line.step, *line.evaluation});
    if (log_) log_->append(line);
  }

  void report_progress(const LogLine& line) const {
    if (!options_.on_progress) return;
    const double mean = seconds_sum_ / static_cast<double>(seconds_.size());
    options_.on_progress({.step = line.step,
                          .steps = job_.train.steps,
                          .loss = line.loss,
                          .evaluation = line.evaluation,
                          .live = line.live,
                          .peak = line.peak,
                          .samples_per_second = static_cast<double>(job_.train.batch_size) / mean,
                          .seconds_left = mean * static_cast<double>(job_.train.steps - line.step)});
  }

  /// Once a step at most.
  void save() {
    const std::int64_t step = session_.steps_done();
    if (!log_ || saved_ == step) return;
    check_finite(session_.model(), step);
    log_->sync();
    run_save(
        [&](const at::Tensor& generator) {
          save_checkpoint(job_.train.run_dir, session_, generator,
                          {.step = step,
                           .seed = job_.train.seed,
                           .data_position = source_->state(),
                           .plan = plan::to_toml(plan_),
                           .job = job::to_toml(job_)});
        },
        static_cast<std::uint32_t>(step));
    saved_ = step;
  }

  void write_sample() {
    if (!std::holds_alternative<job::TextData>(job_.data)) return;
    const PhaseScope sampling(Phase::kOther, static_cast<std::uint32_t>(job_.train.steps));
    summary_.sample = models::write_sample(session_.model(), "\n", kSampleBytes, job_.train.seed);
  }

  void summarize(trace::Trace measured) {
    trace::classify(measured);
    trace::adopt_shapes(measured, predicted_);
    summary_.environment = {libtorch_version(), "cpu", at::get_num_threads()};
    summary_.plan = plan_;
    summary_.modules = session_.policies().called().size();
    summary_.budget = options_.cap;
    summary_.predicted = report::summarize_peak(predicted_);
    summary_.measured = report::summarize_peak(measured);
    summary_.predicted_curve = report::thin(predicted_);
    summary_.measured_curve = report::thin(measured);
    summary_.predicted_history = report::history(predicted_);
    summary_.measured_history = report::history(measured);
    if (!checkpoint_) {
      summary_.divergence = trace::compare_phase_ends(comparable_part(predicted_, measured), measured);
    }
    note_later_peak();
    summarize_time();
    summary_.reserved = recorder_.reserved_peak();
    summary_.resident = record::resident_peak();
    summary_.run_dir = job_.train.run_dir;
  }

  /// A peak outside the part that was kept is one that no prediction had.
  void note_later_peak() {
    report::PeakSummary& measured = summary_.measured;
    const Bytes excess = recording_.peak() - measured.requested;
    if (excess.count() <= 0) return;
    const trace::Event& event = recording_.peak_event();
    measured.requested = recording_.peak();
    measured.step = event.step;
    measured.phase = event.phase;
    measured.categories[trace::Category::kUnknown] += excess;
    if (summary_.divergence || measured.requested <= summary_.predicted.requested) return;
    summary_.divergence = "peak: predicted " + with_thousands(summary_.predicted.requested.count()) + " B, recorded " +
                          with_thousands(measured.requested.count()) + " B in " + std::string(name_of(event.phase)) +
                          " of step " + std::to_string(event.step) + ".";
  }

  void summarize_time() {
    summary_.elapsed_seconds = seconds_since(begin_);
    if (seconds_.empty()) return;
    summary_.samples_per_second =
        static_cast<double>(job_.train.batch_size) * static_cast<double>(seconds_.size()) / seconds_sum_;
    std::sort(seconds_.begin(), seconds_.end());
    const auto at_share = [&](double share) {
      return seconds_[static_cast<std::size_t>(std::lround(share * static_cast<double>(seconds_.size() - 1)))];
    };
    summary_.step_seconds = {at_share(0.5), at_share(0.99), seconds_.back()};
  }

  const Clock::time_point begin_ = Clock::now();
  const job::Job& job_;
  const plan::Plan& plan_;
  const FitOptions& options_;
  std::optional<RunLock> lock_;
  std::optional<fs::path> checkpoint_;
  std::int64_t start_;                   ///< Steps done before this run.
  std::unique_ptr<data::Source> source_, held_out_;
  std::string held_out_begin_;
  trace::Trace predicted_;
  RunRecording recording_;
  record::Recorder recorder_;
  std::optional<record::Arena> arena_;
  Session session_;                      ///< After the recorder: its tensors go first.
  std::optional<RunLog> log_;
  std::int64_t saved_ = kNothing;            ///< The step of the last checkpoint.
  std::vector<double> seconds_;          ///< Of each step of this run.
  double seconds_sum_ = 0;
  report::FitSummary summary_;
};
}  // namespace

std::int64_t check_run_dir(const job::Job& job, bool resume) {
  const auto checkpoint = checkpoint_to_resume(job.train.run_dir, resume);
  return checkpoint ? read_checkpoint_state(*checkpoint).step : 0;
}

report::FitSummary fit(const job::Job& job, const plan::Plan& plan, const FitOptions& options) {
  if (const auto done = options.resume ? check_run_dir(job, true) : 0; done >= job.train.steps) {
    report::FitSummary summary;
    summary.environment = {libtorch_version(), "cpu", set_threads(job.train.threads)};
    summary.budget = options.cap;
    summary.resumed_at = done;
    summary.already_done = job.train.steps;
    summary.run_dir = job.train.run_dir;
    return summary;
  }
  return Fit(job, plan, options).run();
}
}  // namespace cinch::train
