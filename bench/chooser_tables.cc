#include "bench/chooser_tables.h"

#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "sync/chooser.h"
#include "sync/chooser_errors.h"
#include "sync/decision_record.h"

namespace tenuto {

namespace {

constexpr int kTrainingClusters = 150, kHeldOutClusters = 50;
constexpr int64_t kDecisions = 2;  // of each cluster, and of each seed of a scenario

// Seeds of training lie far from those that are counted up for the measurement.
uint64_t training_seed(int32_t replicas, int i) {
  return mix(0x6368'6f6f'7365, static_cast<uint64_t>(replicas), static_cast<uint64_t>(i));
}

// Decisions of the drawn clusters with these numbers.
std::vector<DecisionRecord> drawn(int32_t replicas, int first, int count, double kappa) {
  std::vector<DecisionRecord> records;
  for (int i = first; i < first + count; ++i) {
    const uint64_t seed = training_seed(replicas, i);
    for (DecisionRecord& one :
         record_decisions(draw_scenario(replicas, seed), seed, kDecisions, kappa)) {
      records.push_back(std::move(one));
    }
  }
  return records;
}

const std::vector<DecisionRecord>& training(int32_t replicas) {
  static std::map<int32_t, std::vector<DecisionRecord>> all;
  const auto found = all.find(replicas);
  if (found != all.end()) return found->second;
  // Choosers learn rates and ages, which are the same for any kappa.
  return all[replicas] = drawn(replicas, 0, kTrainingClusters, ChooseInput().kappa);
}

const ChooserModel& trained(int32_t replicas) {
  static std::map<int32_t, ChooserModel> all;
  const auto found = all.find(replicas);
  if (found != all.end()) return found->second;
  const auto held_out = drawn(replicas, kTrainingClusters, kHeldOutClusters, ChooseInput().kappa);
  return all[replicas] = train_chooser(training(replicas), held_out);
}

Status print_table(const std::string& name,
                   const std::map<int32_t, std::vector<DecisionRecord>>& of,
                   const std::string& file) {
  std::vector<ChooserErrors> sums;
  for (const auto& [replicas, records] : of) {
    const auto model = chooser_for(replicas, file);
    if (!model.ok()) return model.error();
    const std::vector<std::pair<std::string, Choose>> choosers = {
        {"constant", constant_chooser(training(replicas))},
        {"heuristic", choose_as_published},
        {"look-ahead", choose_by_look_ahead},
        {"learned",
         [&model](const ChooseInput& input) { return choose_by_model(model.value(), input); }},
    };
    for (size_t i = 0; i < choosers.size(); ++i) {
      const auto errors = chooser_errors(choosers[i].first, choosers[i].second, records);
      if (!errors.ok()) return errors.error();
      if (sums.size() == i) sums.emplace_back();
      sums[i] += errors.value();
    }
  }
  std::printf("%s\n%s\n", name.c_str(), chooser_table(sums).c_str());
  std::fflush(stdout);
  return ok();
}

}  // namespace

Result<ChooserModel> chooser_for(int32_t replicas, const std::string& file) {
  if (file.empty()) return trained(replicas);
  const auto text = read_file(file);
  if (!text.ok()) return text.error();
  return chooser_from_text(text.value(), file, replicas);
}

Status print_choosers(const ChooserQuestion& question) {
  std::map<int32_t, std::vector<DecisionRecord>> together;
  std::set<int32_t> numbers;
  for (const SyncScenario& of : question.scenarios) numbers.insert(of.replicas);
  if (!question.write.empty() && numbers.size() != 1) {
    return invalid(cat("--write-chooser: expected scenarios of one number of replicas, found ",
                       numbers.size(), " numbers: name scenarios with --scenario"));
  }
  for (const SyncScenario& of : question.scenarios) {
    std::map<int32_t, std::vector<DecisionRecord>> own;
    for (int i = 0; i < question.seeds; ++i) {
      const uint64_t seed = question.first_seed + static_cast<uint64_t>(i);
      for (DecisionRecord& one : record_decisions(of, seed, kDecisions, question.kappa)) {
        together[of.replicas].push_back(one);
        own[of.replicas].push_back(std::move(one));
      }
    }
    if (const Status printed = print_table(of.name, own, question.file); !printed.ok()) {
      return printed;
    }
  }
  if (question.scenarios.size() > 1) {
    const Status printed = print_table("all of them", together, question.file);
    if (!printed.ok()) return printed;
  }
  if (question.write.empty()) return ok();
  const auto model = chooser_for(*numbers.begin(), question.file);
  if (!model.ok()) return model.error();
  return write_file(question.write, to_text(model.value()));
}

}  // namespace tenuto
