// Replays a trace of slow links with every mode; the adapting mode gets no hint. Shows the
// iteration times of each period of the trace, when its slow links were detected, when another plan
// was in force, and the total time.
//
// Source: Wu et al., "Adaptra", arXiv 2504.19232v1, section 7.5 (trace and published minutes)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bench/slow_link.h"
#include "world/cluster.h"
#include "world/fault_trace.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Minutes of 1200 iterations of a 140B model on 128 GPUs, by mode; 0 = not published.
const std::vector<double> kPublished = {45.4, 46.9, 0, 33.2};

// The adapting mode begins with this fixed order, which is made for no delay, and returns to it.
constexpr const char *kFirstOrder = "zb-h2", *kFirstDispatch = "listed";

// Default number of steps after the last line of the trace.
constexpr int64_t kAfter = 20;

// Steps [first, end) with the same links.
struct Period {
  int64_t first = 0, end = 0;
  std::vector<Fault> faults;
};

// A plan and the first step that ran under it.
struct InForce {
  int64_t serial = 1, from = 0;
};

// The results of a mode.
struct Replayed {
  std::vector<double> iterations;  // ms on the devices' clock, by step
  double wall_ms = 0;              // sum of the steps' times on this machine
  int64_t late_looks = 0, looks = 0;
  std::vector<InForce> plans;
  std::vector<double> medians, priced;  // by period; price of the period's last plan
  std::vector<std::string> repairs;     // broken connections that were mended, in words
};

// How the adapting mode reacted in a period.
struct Answer {
  int64_t found = -1;    // steps until all slow links were detected; -1 = not all
  int64_t planned = -1;  // steps until the period's last plan was in force; -1 = none
  int64_t plans = 0;     // that came into force in the period
};

std::vector<Period> periods_of(const std::vector<Fault>& faults, int64_t steps) {
  std::vector<int64_t> ends = change_steps(faults);
  std::erase_if(ends, [&](int64_t end) { return end >= steps; });
  ends.push_back(steps);
  std::vector<Period> periods;
  int64_t first = 0;
  for (const int64_t end : ends) {
    Period period{first, end, {}};
    for (const Fault& fault : faults) {
      if (lasts(fault) && in_force(fault, first)) period.faults.push_back(fault);
    }
    periods.push_back(std::move(period));
    first = end;
  }
  return periods;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void each_line(const fs::path& path, const std::function<void(const Json&)>& take) {
  std::istringstream lines(read_all(path));
  std::string line;
  while (std::getline(lines, line)) take(Json::parse(line));
}

double price_of(const Settings& settings, const Mode& mode, const Plan& plan, Period period) {
  for (Fault& fault : period.faults) fault.latency_ms /= settings.faster;
  const Cluster base = uniform_cluster(kStages, {});
  const LinkStates states = links_at(period.faults, period.first, kStages, base);
  PriceOptions options = pricing_of(mode);
  options.lower_bound = options.update = false;
  const auto priced = price(plan, model_of(settings, plan), with_links(base, states), options);
  if (!priced.ok()) give_up(priced.error().message);
  return to_milliseconds(priced.value().makespan);
}

std::vector<InForce> plans_of(const fs::path& run) {
  static const std::regex form(R"(plan (\d+) \(.*\) is in force from step (\d+))");
  std::vector<InForce> plans = {{1, 0}};
  each_line(run / "events.jsonl", [&](const Json& line) {
    const std::string reason = line["reason"];
    std::smatch found;
    if (line["event"] != "decision" || !std::regex_search(reason, found, form)) return;
    plans.push_back({std::stoll(found[1]), std::stoll(found[2])});
  });
  return plans;
}

// Copies the pictures and records of a mode to the folder of kept results.
void keep(const Settings& settings, const Mode& mode, const fs::path& run) {
  if (settings.kept.empty()) return;
  fs::create_directories(settings.kept);
  for (const char* file : {"steps.svg", "metrics.jsonl", "events.jsonl"}) {
    fs::copy_file(run / file, fs::path(settings.kept) / cat(file_name(mode), "-", file),
                  fs::copy_options::overwrite_existing);
  }
}

// When the slow links of each period were detected, and when plans for them were in force.
std::vector<Answer> answers_of(const fs::path& run, const std::vector<Period>& periods,
                               const std::vector<InForce>& plans) {
  static const std::regex form(R"(link (\d+)-\d+ .* is slow since)");
  std::vector<Answer> answers;
  for (const Period& period : periods) {
    Answer answer;
    std::set<int32_t> missing;
    for (const Fault& fault : period.faults) missing.insert(fault.link);
    const bool slow = !missing.empty();
    int64_t last = -1;
    each_line(run / "events.jsonl", [&](const Json& line) {
      const std::string reason = line["reason"];
      const int64_t step = line["step"];
      std::smatch found;
      if (line["event"] != "detection" || step <= period.first || step > period.end) return;
      if (!std::regex_search(reason, found, form)) return;
      if (missing.erase(static_cast<int32_t>(std::stol(found[1]))) > 0) last = step;
    });
    if (slow && missing.empty()) answer.found = last - period.first;
    for (const InForce& plan : plans) {
      if (plan.serial == 1 || plan.from <= period.first || plan.from >= period.end) continue;
      answer.planned = plan.from - period.first;
      answer.plans += 1;
    }
    answers.push_back(answer);
  }
  return answers;
}

Replayed replay(const Settings& settings, const Mode& mode, const std::vector<Fault>& faults,
                const std::vector<Period>& periods, std::vector<Answer>* answers) {
  const fs::path run = train(settings, {mode, settings.steps, faults, {}});
  Replayed replayed;
  each_line(run / "metrics.jsonl", [&](const Json& line) {
    if (!line.contains("iteration_ms")) give_up("a step does not tell its iteration_ms");
    replayed.iterations.push_back(line["iteration_ms"]);
    replayed.wall_ms += line["step_ms"].get<double>();
    if (line["lag_p99_ms"].get<double>() == 0) return;
    replayed.looks += 1;
    replayed.late_looks += line["lag_valid"].get<bool>() ? 0 : 1;
  });
  replayed.plans = plans_of(run);
  each_line(run / "events.jsonl", [&](const Json& line) {
    if (line["event"] == "repair") replayed.repairs.push_back(line["reason"]);
  });
  for (const Period& period : periods) {
    const auto at = replayed.iterations.begin();
    replayed.medians.push_back(median({at + period.first, at + period.end}));
    int64_t serial = 1;
    for (const InForce& plan : replayed.plans) {
      if (plan.from < period.end) serial = plan.serial;
    }
    replayed.priced.push_back(price_of(settings, mode, plan_of(run, serial), period));
  }
  if (answers != nullptr) *answers = answers_of(run, periods, replayed.plans);
  keep(settings, mode, run);
  return replayed;
}

double total_of(const Replayed& replayed) {
  double total = 0;
  for (const double iteration : replayed.iterations) total += iteration;
  return total;
}

std::string links_of(const Period& period) {
  if (period.faults.empty()) return "none";
  std::map<double, std::string> by_delay;
  for (const Fault& fault : period.faults) {
    std::string& links = by_delay[fault.latency_ms];
    links += cat(links.empty() ? "" : ",", fault.link, "-", fault.link + 1);
  }
  std::string text;
  for (const auto& [delay, links] : by_delay) {
    text += cat(text.empty() ? "" : "; ", links, " ", delay, " ms");
  }
  return text;
}

// The largest relative difference of a median from its price.
double furthest(const std::vector<Replayed>& all) {
  double worst = 0;
  for (const Replayed& replayed : all) {
    for (size_t p = 0; p < replayed.medians.size(); ++p) {
      worst = std::max(worst, std::abs(replayed.medians[p] / replayed.priced[p] - 1));
    }
  }
  return worst;
}

std::string step_count(int64_t steps) { return steps < 0 ? "-" : cat(steps); }

void print(const Settings& settings, const std::vector<Period>& periods,
           const std::vector<Replayed>& all, const std::vector<Answer>& answers) {
  std::printf(
      "one iteration in ms, op times and delays divided by %g: median of each "
      "stretch (price)\n%-11s %-20s %5s %7s",
      settings.faster, "steps", "slow links", "found", "planned");
  for (const Mode& mode : modes()) std::printf(" %15s", mode.name.c_str());
  std::printf("\n");
  for (size_t p = 0; p < periods.size(); ++p) {
    std::printf("%-11s %-20s %5s %7s", cat(periods[p].first, "-", periods[p].end - 1).c_str(),
                links_of(periods[p]).c_str(), step_count(answers[p].found).c_str(),
                step_count(answers[p].planned).c_str());
    for (const Replayed& replayed : all) {
      std::printf(" %7.2f (%5.1f)", replayed.medians[p], replayed.priced[p]);
    }
    std::printf("\n");
  }
  const double adapted = total_of(all.back());
  for (size_t m = 0; m < all.size(); ++m) {
    std::printf("%-14s %8.2f s in all, %.3fx the adapted one", modes()[m].name.c_str(),
                total_of(all[m]) / 1000, total_of(all[m]) / adapted);
    if (kPublished[m] > 0) {
      std::printf(" (published: %.1f min, %.2fx)", kPublished[m],
                  kPublished[m] / kPublished.back());
    }
    std::printf("; on this machine %.0f s, late in %lld of %lld samples of the lag\n",
                all[m].wall_ms / 1000, static_cast<long long>(all[m].late_looks),
                static_cast<long long>(all[m].looks));
    for (const std::string& repair : all[m].repairs) std::printf("  %s\n", repair.c_str());
  }
  std::printf("furthest of a median from its price: %.2f %%\n", 100 * furthest(all));
}

Json to_json(const Settings& settings, const std::vector<Period>& periods,
             const std::vector<Replayed>& all, const std::vector<Answer>& answers) {
  Json rows = Json::array(), totals;
  for (size_t p = 0; p < periods.size(); ++p) {
    Json row = {{"first_step", periods[p].first}, {"end_step", periods[p].end}};
    row["links"] = Json::array();
    for (const Fault& fault : periods[p].faults) {
      row["links"].push_back({{"link", fault.link}, {"delay_ms", fault.latency_ms}});
    }
    row["found_after"] = answers[p].found;
    row["planned_after"] = answers[p].planned;
    row["plans"] = answers[p].plans;
    for (size_t m = 0; m < all.size(); ++m) {
      row[modes()[m].name] = {{"median_ms", all[m].medians[p]}, {"priced_ms", all[m].priced[p]}};
    }
    rows.push_back(std::move(row));
  }
  for (size_t m = 0; m < all.size(); ++m) {
    totals[modes()[m].name] = {
        {"total_ms", total_of(all[m])}, {"over_adapted", total_of(all[m]) / total_of(all.back())},
        {"wall_ms", all[m].wall_ms},    {"published_minutes", kPublished[m]},
        {"looks", all[m].looks},        {"late_looks", all[m].late_looks},
        {"repairs", all[m].repairs}};
  }
  return {{"steps", settings.steps},
          {"faster", settings.faster},
          {"stretches", std::move(rows)},
          {"totals", std::move(totals)},
          {"furthest_from_price", furthest(all)}};
}

}  // namespace

int run_replay(Settings settings, const std::string& trace, bool json) {
  const auto traced = read_fault_trace(read_all(trace), trace);
  if (!traced.ok()) give_up(traced.error().message);
  std::vector<Fault> faults;
  int64_t last = 0;
  for (const TracedFault& of : traced.value()) {
    if (of.fault.link + 1 >= kStages) {
      give_up(cat(trace, ":", of.line, ":", of.column, ": there is no link ", of.fault.link,
                  " between ", kStages, " stages"));
    }
    faults.push_back(of.fault);
    last = std::max({last, of.fault.at_step, of.fault.until_step});
  }
  if (settings.steps == 0) settings.steps = static_cast<int32_t>(last + kAfter);
  const auto in_run = [&](const Fault& fault) {
    return !lasts(fault) && fault.at_step < settings.steps;
  };
  const auto breaks = std::count_if(faults.begin(), faults.end(), in_run);
  const std::vector<Period> periods = periods_of(faults, settings.steps);
  std::vector<Replayed> all;
  std::vector<Answer> answers;
  for (Mode mode : modes()) {
    if (mode.adapts) {
      mode.order = kFirstOrder;
      mode.dispatch = kFirstDispatch;
    }
    all.push_back(replay(settings, mode, faults, periods, mode.adapts ? &answers : nullptr));
    if (std::cmp_less(all.back().repairs.size(), breaks)) {
      give_up(cat(mode.name, ": ", breaks, " connections were to break, ",
                  all.back().repairs.size(), " did"));
    }
    std::fprintf(stderr, "%s: %.1f s on the devices' clock\n", mode.name.c_str(),
                 total_of(all.back()) / 1000);
  }
  if (json) {
    std::printf("%s\n", to_json(settings, periods, all, answers).dump().c_str());
  } else {
    print(settings, periods, all, answers);
  }
  return 0;
}

}  // namespace tenuto
