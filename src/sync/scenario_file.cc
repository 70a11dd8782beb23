#include "sync/scenario_file.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/sentence.h"
#include "base/text.h"
#include "base/unit.h"
#include "sync/trial.h"
#include "world/keys.h"
#include "world/toml_reading.h"

namespace tenuto {

namespace {

constexpr size_t kMostName = 100;  // bytes

// A number that a key takes, and what it is in sentences.
struct NumberRule {
  std::string_view key;
  std::string_view what;
  Range range;
};

// The largest time times the largest factors and a rare draw still fits a Duration. The least time
// times the least factor is above a nanosecond, so that the clock of a trial goes on.
constexpr Range kTime{.low = 0.001, .high = 10'000};
constexpr Range kJitter{.low = 0, .high = 2};
constexpr Range kFactor{.low = 0.01, .high = 1'000};
constexpr NumberRule kCompute{"compute_ms", "a number of milliseconds", kTime};
constexpr NumberRule kTransfer{"transfer_ms", "a number of milliseconds", kTime};
constexpr NumberRule kApply{"apply_ms", "a number of milliseconds", kTime};
constexpr NumberRule kComputeJitter{"compute_jitter", "a deviation", kJitter};
constexpr NumberRule kTransferJitter{"transfer_jitter", "a deviation", kJitter};
constexpr NumberRule kSeconds{"seconds", "a number of seconds", {.low = 0, .high = 10'000}};
constexpr NumberRule kChance{"chance", "a chance", {.low = 0, .high = 1}};
constexpr NumberRule kPhaseTransfer{"transfer", "a factor", kFactor};
constexpr NumberRule kSlowCompute{"compute", "a factor", kFactor};
constexpr NumberRule kSlowTransfer{"transfer", "a factor", kFactor};

// "a factor from 0.01 to 1000".
std::string expected(const NumberRule& rule) {
  return cat(rule.what, " from ", rule.range.low, " to ", rule.range.high);
}

std::string expected_whole(int32_t least, int32_t most) {
  return cat("a whole number from ", least, " to ", most);
}

// A table of the file.
struct Part {
  const toml::table* table = nullptr;
  std::string name;  // with a dot at its end: "phase[0]."; "" = the whole file
  TextPlace place;   // where it begins
};

class ScenarioReader {
 public:
  explicit ScenarioReader(std::string_view source) : source_(source) {}

  Result<SyncScenario> read(const toml::table& root) {
    const Part file{&root, "", {source_, 1, 1}};
    check_keys(file, "a scenario",
               {"name", "replicas", kCompute.key, kTransfer.key, kComputeJitter.key,
                kTransferJitter.key, kApply.key, "phase"});
    read_name(file);
    // Stays if the number is wrong: then no replica of a phase is refused because of it.
    scenario_.replicas = kMostTrialReplicas;
    take_whole(file, "replicas", {2, kMostTrialReplicas}, scenario_.replicas);
    scenario_.base.compute = needed_time(file, kCompute);
    scenario_.base.transfer = needed_time(file, kTransfer);
    scenario_.apply = needed_time(file, kApply);
    take_number(file, kComputeJitter, scenario_.compute_jitter);
    take_number(file, kTransferJitter, scenario_.transfer_jitter);
    const std::vector<Part> phases = tables_of(file, "phase", "[[phase]]");
    for (const Part& phase : phases) read_phase(phase);
    if (flaws_.empty() && !has_right_phases(scenario_)) {
      refuse(phases.front().place,
             "the phases have no length: expected seconds above 0 in one of them, or a phase "
             "without seconds, which lasts for ever, found seconds = 0 in each");
    }
    if (auto flaw = first_flaw(flaws_)) return *flaw;
    return std::move(scenario_);
  }

 private:
  // The least and the most of a whole number.
  struct Bounds {
    int32_t least, most;
  };

  void refuse(const TextPlace& place, const std::string& sentence) {
    flaws_.push_back({place, sentence});
  }

  void refuse_value(const Part& part, std::string_view key, const toml::node& node,
                    const std::string& wanted) {
    refuse(place_of(source_, node.source()),
           cat(part.name, key, " expects ", wanted, ", found ", found_text(node)));
  }

  void refuse_missing(const Part& part, std::string_view key, const std::string& wanted) {
    refuse(part.place, cat(part.name, key, " is missing: expected ", wanted));
  }

  void check_keys(const Part& part, std::string_view what,
                  std::initializer_list<std::string_view> known) {
    const std::vector<std::string_view> names(known);
    std::string all;
    for (const std::string_view name : names) all += cat(all.empty() ? "" : ", ", name);
    for (const auto& [key, node] : *part.table) {
      if (std::find(names.begin(), names.end(), key.str()) != names.end()) continue;
      const std::string hint = did_you_mean(key.str(), names);
      refuse(place_of(source_, key.source()), cat(what, " has no key ", excerpt(key.str()),
                                                  hint.empty() ? "; it has " + all : hint));
    }
  }

  void read_name(const Part& file) {
    const std::string wanted = cat("a text of 1 to ", kMostName, " bytes in one line");
    const toml::node* node = file.table->get("name");
    if (node == nullptr) return refuse_missing(file, "name", wanted);
    const auto* text = node->as_string();
    const auto is_control = [](char letter) {
      return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    };
    if (text != nullptr) scenario_.name = text->get();
    const std::string& name = scenario_.name;  // empty if the value is no text
    if (name.empty() || name.size() > kMostName ||
        std::any_of(name.begin(), name.end(), is_control)) {
      refuse_value(file, "name", *node, wanted);
    }
  }

  // The value stays as it is if the key is missing or wrong. True = the key is there.
  bool take_number(const Part& part, const NumberRule& rule, double& value) {
    const toml::node* node = part.table->get(rule.key);
    if (node == nullptr) return false;
    const auto found = number_of(*node);
    if (found && rule.range.contains(*found)) {
      value = *found;
    } else {
      refuse_value(part, rule.key, *node, expected(rule));
    }
    return true;
  }

  Duration needed_time(const Part& part, const NumberRule& rule) {
    double milliseconds = 0;
    if (!take_number(part, rule, milliseconds)) refuse_missing(part, rule.key, expected(rule));
    return from_milliseconds(milliseconds);
  }

  // The key must be there. The value stays as it is if it is missing or wrong; false then.
  bool take_whole(const Part& part, std::string_view key, Bounds bounds, int32_t& value) {
    const std::string wanted = expected_whole(bounds.least, bounds.most);
    const toml::node* node = part.table->get(key);
    if (node == nullptr) {
      refuse_missing(part, key, wanted);
      return false;
    }
    const auto found = whole_number_of(*node);
    if (!found || *found < bounds.least || *found > bounds.most) {
      refuse_value(part, key, *node, wanted);
      return false;
    }
    value = static_cast<int32_t>(*found);
    return true;
  }

  // The tables of a list, none if the key is missing. `form` says how an entry is written.
  std::vector<Part> tables_of(const Part& part, std::string_view key, std::string_view form) {
    std::vector<Part> tables;
    const toml::node* node = part.table->get(key);
    if (node == nullptr) return tables;
    const toml::array* list = node->as_array();
    const std::string wanted = cat("a list of tables, ", form);
    if (list == nullptr) {
      refuse_value(part, key, *node, wanted);
      return tables;
    }
    for (size_t i = 0; i < list->size(); ++i) {
      const toml::node& entry = *list->get(i);
      const toml::table* table = entry.as_table();
      if (table == nullptr) {
        refuse_value(part, key, entry, wanted);
        continue;
      }
      tables.push_back(
          {table, cat(part.name, key, "[", i, "]."), place_of(source_, entry.source())});
    }
    return tables;
  }

  void read_phase(const Part& part) {
    check_keys(part, "[[phase]]", {kSeconds.key, "slow", kChance.key, kPhaseTransfer.key, "pairs"});
    SlowPhase phase;
    double seconds = 0;
    if (take_number(part, kSeconds, seconds)) phase.length = from_milliseconds(1000 * seconds);
    take_number(part, kChance, phase.chance);
    take_number(part, kPhaseTransfer, phase.transfer);
    if (const toml::node* node = part.table->get("pairs")) {
      const auto* pairs = node->as_boolean();
      if (pairs == nullptr) refuse_value(part, "pairs", *node, "true or false");
      phase.in_pairs = pairs != nullptr && pairs->get();
    }
    std::set<int32_t> replicas;
    for (const Part& entry : tables_of(part, "slow", "{replica = 0, compute = 2, transfer = 1}")) {
      const SlowReplica one = slow_replica(entry);
      if (one.replica >= 0 && !replicas.insert(one.replica).second) {
        refuse(entry.place, cat(entry.name, "replica: replica ", one.replica,
                                " stands twice in this phase: leave one out"));
      }
      phase.slow.push_back(one);
    }
    scenario_.phases.push_back(std::move(phase));
  }

  // Its number is -1 if that is wrong.
  SlowReplica slow_replica(const Part& part) {
    check_keys(part, "an entry of slow", {"replica", kSlowCompute.key, kSlowTransfer.key});
    SlowReplica one;
    one.replica = -1;
    take_whole(part, "replica", {0, scenario_.replicas - 1}, one.replica);
    take_number(part, kSlowCompute, one.compute);
    take_number(part, kSlowTransfer, one.transfer);
    return one;
  }

  const std::string source_;
  SyncScenario scenario_;
  std::vector<TomlFlaw> flaws_;
};

// ---- writing ---------------------------------------------------------------------------------

std::string slow_text(const std::vector<SlowReplica>& slow) {
  std::string text;
  for (const SlowReplica& one : slow) {
    text += cat(text.empty() ? "" : ", ", "{replica = ", one.replica);
    if (one.compute != 1) text += cat(", ", kSlowCompute.key, " = ", one.compute);
    if (one.transfer != 1) text += cat(", ", kSlowTransfer.key, " = ", one.transfer);
    text += "}";
  }
  return cat("slow = [", text, "]\n");
}

// What is as usual is left out.
std::string phase_text(const SlowPhase& phase) {
  std::string text = "\n[[phase]]\n";
  if (phase.length) text += cat(kSeconds.key, " = ", to_milliseconds(*phase.length) / 1000, "\n");
  if (!phase.slow.empty()) text += slow_text(phase.slow);
  if (phase.chance != 0) text += cat(kChance.key, " = ", phase.chance, "\n");
  if (phase.transfer != 1) text += cat(kPhaseTransfer.key, " = ", phase.transfer, "\n");
  if (phase.in_pairs) text += "pairs = true\n";
  return text;
}

}  // namespace

Result<SyncScenario> sync_scenario_from_toml(std::string_view text, std::string_view source) {
  const auto tree = parse_toml(text, std::string(source));
  if (!tree.ok()) return tree.error();
  return ScenarioReader(source).read(tree.value());
}

std::string to_toml(const SyncScenario& scenario) {
  std::string text =
      cat("name = ", toml_string(scenario.name), "\nreplicas = ", scenario.replicas, "\n");
  const auto put = [&text](const NumberRule& rule, double number) {
    text += cat(rule.key, " = ", number, "\n");
  };
  put(kCompute, to_milliseconds(scenario.base.compute));
  put(kTransfer, to_milliseconds(scenario.base.transfer));
  put(kComputeJitter, scenario.compute_jitter);
  put(kTransferJitter, scenario.transfer_jitter);
  put(kApply, to_milliseconds(scenario.apply));
  for (const SlowPhase& phase : scenario.phases) text += phase_text(phase);
  return text;
}

}  // namespace tenuto
