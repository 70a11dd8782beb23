#include "sync/chooser.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "sync/heuristic.h"

namespace tenuto {

namespace {

class LookAheadChooser : public Chooser {
 public:
  SyncMode first(std::span<const IterationTime> times, double kappa) const override {
    return first_mode(times, kappa);
  }
  Result<SyncChoice> choose(const ChooseInput& input) override {
    return choose_by_look_ahead(input);
  }
};

class PublishedChooser : public Chooser {
 public:
  SyncMode first(std::span<const IterationTime>, double) const override { return {}; }
  Result<SyncChoice> choose(const ChooseInput& input) override {
    auto choice = choose_as_published(input);
    if (!choice.ok()) return choice;
    std::vector<ReplicaId> slow = stragglers(means_of(input.samples));
    if (slow == stragglers_) {
      choice.value().mode = input.current;
      choice.value().reason =
          cat(to_text(input.current), " stays: the same replicas straggle as before");
    }
    stragglers_ = std::move(slow);
    return choice;
  }

 private:
  std::vector<ReplicaId> stragglers_;  // at the last choice
};

class LearnedChooser : public Chooser {
 public:
  explicit LearnedChooser(const ChooserModel& model) : model_(model) {}

  SyncMode first(std::span<const IterationTime> times, double kappa) const override {
    return leads() ? first_mode(times, kappa) : SyncMode{};
  }

  Result<SyncChoice> choose(const ChooseInput& input) override {
    model_promise_.reset();
    auto choice = choose_by_model(model_, input);
    if (!choice.ok()) return choice;
    if (!leads()) choice = choose_as_published(input);
    if (!choice.ok()) return choice;
    const SyncMode& mode = choice.value().mode;
    const auto published = published_promise(mode, means_of(input.samples));
    if (!published) return choice;
    published_promise_ = published->gradients_per_second;
    model_promise_ = promise_of(model_, input, mode).gradients_per_second;
    return choice;
  }

  void achieved(double gradients_per_second) override {
    if (!model_promise_) return;
    run_.add(std::abs(std::log(published_promise_ / gradients_per_second)) -
             std::abs(std::log(*model_promise_ / gradients_per_second)));
    model_promise_.reset();  // one outcome for each promise
  }

 private:
  bool leads() const {
    return surely_above_zero(model_.held_out) && !surely_below_zero(run_.gain());
  }

  const ChooserModel model_;
  GainSum run_;  // of the model over the heuristic, in this run
  // What both promise of the mode in force, in gradients per second, if both know it.
  std::optional<double> model_promise_;
  double published_promise_ = 0;
};

}  // namespace

std::unique_ptr<Chooser> look_ahead_chooser() { return std::make_unique<LookAheadChooser>(); }

std::unique_ptr<Chooser> published_chooser() { return std::make_unique<PublishedChooser>(); }

std::unique_ptr<Chooser> learned_chooser(const ChooserModel& model) {
  return std::make_unique<LearnedChooser>(model);
}

Result<SyncChoice> choose_as_published(const ChooseInput& input) {
  const auto modes = modes_to_compare(input);
  if (!modes.ok()) return modes.error();
  const std::vector<IterationTime> means = means_of(input.samples);
  auto mode = choose_by_heuristic({means, input.noise, static_cast<double>(input.micros)});
  if (!mode.ok()) return mode.error();
  const auto replicas = static_cast<int32_t>(means.size());
  SyncChoice choice;
  choice.mode = std::move(mode).value();
  choice.reason = cat(to_text(choice.mode), ": by the published formula, with ",
                      stragglers(means).size(), " of ", replicas, " replicas that straggle");
  for (const SyncMode& one : modes.value()) {
    auto promise = published_promise(one, means);
    if (!promise) continue;
    const double score = progress_of(*promise, replicas, input.kappa);
    choice.alternatives.push_back({one, std::move(*promise), score});
  }
  std::stable_sort(choice.alternatives.begin(), choice.alternatives.end(),
                   [](const auto& left, const auto& right) { return left.score > right.score; });
  return choice;
}

}  // namespace tenuto
