#include "run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "run/record.h"

namespace tenuto {
namespace {

constexpr Duration kPlainInterval = std::chrono::seconds(5);
constexpr Duration kLivingInterval = std::chrono::milliseconds(100);
// How much a new step counts in the rate that is shown.
constexpr double kFreshness = 0.2;

std::string rate_text(double rate) {
  if (rate >= 1e6) return fixed(rate / 1e6, 2) + "M";
  if (rate >= 1e4) return fixed(rate / 1e3, 1) + "k";
  return fixed(rate, 0);
}

// "2x4" for 2 pipelines of 4 stages, "5-3" for stages with 5 and 3 holders.
std::string shape_text(const Job& job) {
  const ParallelSettings& parallel = job.parallel;
  if (parallel.holders.empty()) return cat(parallel.pipelines, "x", parallel.stages);
  std::string text;
  for (const int32_t width : job.seats().widths(1)) text += cat(text.empty() ? "" : "-", width);
  return text;
}

size_t width_of(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

double Figures::tokens_per_second() const {
  const double seconds = to_milliseconds(duration) / 1000;
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

Progress::Progress(std::FILE* stream, const Job& job)
    : stream_(stream), job_(job), terminal_(isatty(fileno(stream)) == 1) {}

void Progress::open_with(const std::string& sentence) {
  if (figures_.steps_done > 0) return event(sentence);
  if (!sentence.empty()) opening_ += (opening_.empty() ? "" : "\n") + sentence;
}

std::string Progress::line(const Shown& step) const {
  std::string text = cat("step ", step.step + 1, "/", job_.steps);
  text += step.loss ? cat("  loss ", fixed(*step.loss, 4)) : std::string("  loss unknown");
  if (terminal_ ? figures_.validation_loss : step.validation_loss) {
    text += cat("  validation ", fixed(*figures_.validation_loss, 4));
    if (figures_.validation_accuracy) {
      text += cat(", ", fixed(100 * *figures_.validation_accuracy, 1), " % right");
    }
    text += cat(" (step ", figures_.validation_step, ")");
  }
  text += cat("  ", rate_text(recent_rate_), " tokens/s  ", step.how);
  return text;
}

void Progress::step(const StepRecord& step, Duration now) {
  Shown shown;
  shown.step = step.step;
  if (step.has_loss()) shown.loss = step.loss;
  shown.validation_loss = step.validation_loss;
  shown.validation_accuracy = step.validation_accuracy;
  shown.duration = step.duration;
  shown.lag_valid = step.lag_valid;
  shown.counts = !step.only_evaluated;
  shown.how = cat(step.plan->order, " ", shape_text(job_));
  show(shown, now);
}

void Progress::step(const ServedStep& step, Duration now) {
  Shown shown;
  shown.step = step.step;
  shown.loss = step.loss;
  shown.validation_loss = step.validation_loss;
  shown.validation_accuracy = step.validation_accuracy;
  shown.duration = step.duration;
  shown.how =
      cat(step.mode, " age ", fixed(step.age, 2), "  ", job_.parallel.pipelines, " replicas");
  if (job_.has_servers()) shown.how += cat(", ", job_.sync.servers, " servers");
  show(shown, now);
}

void Progress::show(const Shown& step, Duration now) {
  if (figures_.steps_done == 0 && !opening_.empty()) {
    std::fprintf(stream_, "%s\n", opening_.c_str());
  }
  figures_.steps_done += step.counts ? 1 : 0;
  if (step.loss) {
    if (!figures_.first_loss) figures_.first_loss = step.loss;
    figures_.last_loss = step.loss;
  }
  if (step.validation_loss) {
    figures_.validation_loss = step.validation_loss;
    figures_.validation_accuracy = step.validation_accuracy;
    figures_.validation_step = step.step + 1;
  }
  figures_.lag_valid = figures_.lag_valid && step.lag_valid;
  if (step.duration.count() > 0) {
    const int64_t tokens = tokens_of_step(job_);
    figures_.tokens += tokens;
    figures_.duration += step.duration;
    const double rate = static_cast<double>(tokens) / (to_milliseconds(step.duration) / 1000);
    recent_rate_ = recent_rate_ == 0 ? rate : recent_rate_ + kFreshness * (rate - recent_rate_);
  }
  const int64_t tenth = std::max<int64_t>(1, job_.steps / 10);
  const bool last = step.step + 1 == job_.steps;
  if (terminal_) {
    if (!last && living_ && now - written_at_ < kLivingInterval) return;
    std::string text = line(step);
    if (!last_event_.empty()) text += "  " + last_event_;
    text.resize(std::min(text.size(), width_of(stream_) - 1));
    std::fprintf(stream_, "\r%s\x1b[K", text.c_str());
    living_ = true;
  } else {
    const bool due = figures_.steps_done == 1 || last || (step.step + 1) % tenth == 0 ||
                     step.validation_loss || now - written_at_ >= kPlainInterval;
    if (!due) return;
    std::fprintf(stream_, "%s\n", line(step).c_str());
  }
  written_at_ = now;
  std::fflush(stream_);
}

void Progress::event(const std::string& sentence) {
  last_event_ = sentence;
  if (terminal_ && living_) return;  // it stands in the living line from now on
  std::fprintf(stream_, "%s\n", sentence.c_str());
  std::fflush(stream_);
}

void Progress::finish() {
  if (living_) std::fprintf(stream_, "\n");
  living_ = false;
  std::fflush(stream_);
}

}  // namespace tenuto
