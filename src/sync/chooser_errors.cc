#include "sync/chooser_errors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sync/estimate.h"
#include "sync/heuristic.h"

namespace tenuto {

namespace {

// Gradients per second if nobody waited for anybody.
double free_rate(const ChooseInput& input) {
  SyncMode mode;
  mode.kind = SyncKind::Asynchronous;
  return RecentRounds(input).estimate(mode).gradients;
}

// The alternative of this mode; nullptr = there is none.
const SyncAlternative* listed(const std::vector<SyncAlternative>& all, const SyncMode& mode) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const SyncAlternative& one) { return one.mode == mode; });
  return found == all.end() ? nullptr : &*found;
}

// What was promised of each mode, and what it achieved.
void count_promises(ChooserErrors& errors, const std::vector<SyncAlternative>& promised,
                    const DecisionRecord& record) {
  const std::vector<IterationTime> means = means_of(record.input.samples);
  for (const SyncAlternative& one : promised) {
    const SyncAlternative* achieved = listed(record.achieved, one.mode);
    if (achieved == nullptr || !(achieved->score > 0) || !(one.score > 0)) continue;
    const double error = std::abs(std::log(one.score / achieved->score));
    errors.error += error;
    ++errors.promises;
    if (!published_promise(one.mode, means)) continue;
    errors.known_error += error;
    ++errors.known_promises;
  }
}

void count_choice(ChooserErrors& errors, const SyncMode& mode, const DecisionRecord& record) {
  double best = 0;
  for (const SyncAlternative& one : record.achieved) best = std::max(best, one.score);
  const SyncAlternative* chosen = listed(record.achieved, mode);
  if (chosen == nullptr || !(best > 0)) return;
  const double progress = chosen->score / best;
  errors.progress += progress;
  errors.least_progress = std::min(errors.least_progress, progress);
  ++errors.choices;
}

// Whether something is promised of modes that the heuristic does not know.
bool knows_all(const ChooserErrors& of) { return of.promises > of.known_promises; }

double mean(double sum, int64_t count) {
  return sum / static_cast<double>(std::max<int64_t>(1, count));
}

std::string factor(double sum, int64_t count) {
  return count == 0 ? std::string("-") : cat(fixed(std::exp(mean(sum, count)), 2), "x");
}

std::string percent(double share, const ChooserErrors& of) {
  return of.choices == 0 ? std::string("-") : cat(fixed(100 * share, 1), " %");
}

// Whether the constant's error is larger, on the modes of which both promise something.
bool beats(const ChooserErrors& of, const ChooserErrors& constant) {
  if (of.promises == 0) return false;
  if (knows_all(of)) {
    return mean(of.error, of.promises) < mean(constant.error, constant.promises);
  }
  return mean(of.known_error, of.known_promises) <
         mean(constant.known_error, constant.known_promises);
}

std::string verdict(const std::vector<ChooserErrors>& all) {
  const auto constant = std::find_if(all.begin(), all.end(),
                                     [](const ChooserErrors& of) { return of.name == "constant"; });
  std::string text, not_beaten;
  const ChooserErrors* least = nullptr;
  for (const ChooserErrors& of : all) {
    const bool less =
        least == nullptr || mean(of.error, of.promises) < mean(least->error, least->promises);
    if (knows_all(of) && less) least = &of;
    if (constant == all.end() || &of == &*constant || beats(of, *constant)) continue;
    not_beaten += cat(not_beaten.empty() ? "" : ", ", of.name);
  }
  if (constant != all.end()) {
    text += not_beaten.empty()
                ? "a constant must lose: it does, against each of the others\n"
                : cat("a constant must lose: it does not against ", not_beaten, "\n");
  }
  if (least != nullptr) text += cat("the least error over all modes: ", least->name, "\n");
  return text;
}

}  // namespace

ChooserErrors& ChooserErrors::operator+=(const ChooserErrors& more) {
  name = more.name;
  promises += more.promises;
  known_promises += more.known_promises;
  error += more.error;
  known_error += more.known_error;
  choices += more.choices;
  progress += more.progress;
  least_progress = std::min(least_progress, more.least_progress);
  return *this;
}

Choose constant_chooser(std::span<const DecisionRecord> training) {
  CHECK(!training.empty(), "a record");
  double rates = 0, ages = 0;
  int64_t count = 0;
  for (const DecisionRecord& record : training) {
    const double free = free_rate(record.input);
    const auto replicas = static_cast<double>(record.input.samples.size());
    for (const SyncAlternative& one : record.achieved) {
      const double rate = one.measure.gradients_per_second;
      if (!(rate > 0)) continue;
      rates += std::log(rate / free);
      ages += one.measure.mean_age / replicas;
      ++count;
    }
  }
  const double rate = std::exp(mean(rates, count)), age = mean(ages, count);
  return [rate, age](const ChooseInput& input) -> Result<SyncChoice> {
    const auto modes = modes_to_compare(input);
    if (!modes.ok()) return modes.error();
    const auto replicas = static_cast<int32_t>(input.samples.size());
    SyncMeasure measure;
    measure.gradients_per_second = rate * free_rate(input);
    measure.mean_age = age * replicas;
    const double score = progress_of(measure, replicas, input.kappa);
    std::vector<SyncAlternative> alternatives;
    for (const SyncMode& mode : modes.value()) alternatives.push_back({mode, measure, score});
    return choose_best(std::move(alternatives), input.current);
  };
}

Result<ChooserErrors> chooser_errors(const std::string& name, const Choose& choose,
                                     std::span<const DecisionRecord> records) {
  ChooserErrors errors;
  errors.name = name;
  for (const DecisionRecord& record : records) {
    const auto choice = choose(record.input);
    if (!choice.ok()) return choice.error();
    count_promises(errors, choice.value().alternatives, record);
    count_choice(errors, choice.value().mode, record);
  }
  return errors;
}

std::string chooser_table(const std::vector<ChooserErrors>& all) {
  std::string text = "chooser     all modes  x:K modes  progress    least\n";
  for (const ChooserErrors& of : all) {
    const std::string every = knows_all(of) ? factor(of.error, of.promises) : std::string("-");
    const std::string known = factor(of.known_error, of.known_promises);
    const std::string progress = percent(mean(of.progress, of.choices), of);
    const std::string least = percent(of.least_progress, of);
    char line[160];
    std::snprintf(line, sizeof(line), "%-10s %10s %10s %9s %8s\n", of.name.c_str(), every.c_str(),
                  known.c_str(), progress.c_str(), least.c_str());
    text += line;
  }
  return text + verdict(all);
}

}  // namespace tenuto
