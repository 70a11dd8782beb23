// Scenarios of one to three troubles with drawn durations: what a run takes with the remedies that
// it chooses without knowing the durations, beside the best ones in hindsight and fixed rules.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "outlook/process.h"
#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "remedy/rehearse.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

// A trouble of a scenario.
struct Drawn {
  std::string what;
  int64_t first = 0, end = 0;  // steps
  int32_t worker = 0, peer = -1;
  double speed = 0;  // of a slow worker; 0 = dead
  Duration latency{};
};

struct Scenario {
  Rehearsal rehearsal;
  std::vector<Drawn> troubles;
  int32_t stages = 1, pipelines = 1;
};

int64_t draw_between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random.below(static_cast<uint64_t>(most - least + 1)));
}

Drawn draw_trouble(Random& random, const Scenario& scenario, int64_t steps) {
  const int32_t workers = scenario.stages * scenario.pipelines;
  Drawn drawn;
  // From a handful of steps to most of the run.
  const double lasts = outlook::draw_lognormal(random, {0.15 * static_cast<double>(steps), 1.2});
  drawn.first = draw_between(random, 1, steps / 2);
  drawn.end = std::min(steps, drawn.first + std::max<int64_t>(8, static_cast<int64_t>(lasts)));
  drawn.worker = static_cast<int32_t>(draw_between(random, 0, workers - 1));
  const int64_t kind = draw_between(random, 0, scenario.pipelines > 1 ? 4 : 3);
  if (kind == 4) {
    drawn.what = cat("worker ", drawn.worker, " is dead");
  } else if (kind < 2) {
    drawn.speed = 0.3 + 0.1 * static_cast<double>(draw_between(random, 0, 4));
    drawn.what = cat("worker ", drawn.worker, " has speed ", fixed(drawn.speed, 1));
  } else {
    // Between neighbours of a pipeline, where traffic is.
    if (drawn.worker % scenario.stages == scenario.stages - 1) --drawn.worker;
    drawn.peer = drawn.worker + 1;
    drawn.latency = from_milliseconds(5.0 * static_cast<double>(draw_between(random, 1, 8)));
    drawn.what = cat("link ", drawn.worker, "-", drawn.peer, " has ",
                     fixed(to_milliseconds(drawn.latency), 0), " ms more");
  }
  return drawn;
}

Cluster cluster_at(const Scenario& scenario, int64_t step) {
  Cluster now = scenario.rehearsal.healthy;
  for (const Drawn& drawn : scenario.troubles) {
    if (step < drawn.first || step >= drawn.end) continue;
    Worker& worker = now.workers[static_cast<size_t>(drawn.worker)];
    if (drawn.peer < 0) {
      worker.alive = worker.alive && drawn.speed > 0;
      worker.speed = std::min(worker.speed, drawn.speed > 0 ? drawn.speed : 1.0);
      continue;
    }
    for (const auto& [from, to] :
         {std::pair(drawn.worker, drawn.peer), std::pair(drawn.peer, drawn.worker)}) {
      Link link = now.link({from}, {to});
      link.latency += drawn.latency;
      now.exceptions[{{from}, {to}}] = link;
    }
  }
  for (size_t w = 0; w < now.workers.size(); ++w) {
    if (now.workers[w].alive) continue;
    now.workers[w].speed = 1;
    std::erase_if(now.exceptions, [&](const auto& link) {
      return link.first.first.value == static_cast<int32_t>(w) ||
             link.first.second.value == static_cast<int32_t>(w);
    });
  }
  return now;
}

// Model, cluster, and one to three troubles, some of which may come at the same time.
Scenario draw_scenario(uint64_t seed, int64_t steps) {
  Random random(seed);
  Scenario scenario;
  scenario.stages = static_cast<int32_t>(draw_between(random, 2, 4));
  scenario.pipelines = static_cast<int32_t>(draw_between(random, 1, 3));
  Shape shape;
  shape.stages = scenario.stages;
  shape.pipelines = scenario.pipelines;
  shape.layers = scenario.stages * static_cast<int32_t>(draw_between(random, 2, 4));
  shape.micros = static_cast<int32_t>(draw_between(random, 4, 8));
  shape.split_backward = draw_between(random, 0, 1) == 1;
  shape.order = shape.split_backward ? "zb-h1" : "1f1b";
  Rehearsal& it = scenario.rehearsal;
  it.plan = with_fine_stages(make_plan(shape).value()).value();
  Layer layer{.forward = from_milliseconds(4),
              .backward_input = from_milliseconds(4),
              .backward_weight = from_milliseconds(4)};
  // The state of a layer is sent in some steps' time, or in less than a step.
  layer.parameters = {int64_t{1'000'000} * draw_between(random, 1, 60)};
  it.model.layers.assign(static_cast<size_t>(shape.layers), layer);
  it.healthy =
      uniform_cluster(scenario.stages * scenario.pipelines, {from_milliseconds(0.2), 250e6});
  it.routes = it.layers = true;
  for (int64_t i = draw_between(random, 1, 3); i > 0; --i) {
    scenario.troubles.push_back(draw_trouble(random, scenario, steps));
  }
  // At most one worker is dead, so that each stage keeps a holder.
  bool dead = false;
  std::erase_if(scenario.troubles, [&](const Drawn& drawn) {
    return drawn.peer < 0 && drawn.speed == 0 && std::exchange(dead, true);
  });
  std::vector<int64_t> moments = {0, steps};
  for (const Drawn& drawn : scenario.troubles) {
    moments.insert(moments.end(), {drawn.first, drawn.end});
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  for (size_t i = 0; i + 1 < moments.size(); ++i) {
    it.episodes.push_back({cluster_at(scenario, moments[i]), moments[i + 1] - moments[i]});
  }
  return scenario;
}

// A rule that a run could follow.
struct Rule {
  const char* name;
  bool order, routes, layers;
};
constexpr Rule kRules[] = {{"no remedy", false, false, false},
                           {"order only", true, false, false},
                           {"order and routes", true, true, false},
                           {"order and layers", true, false, true}};

double total_under(Rehearsal rehearsal, const Rule& rule) {
  rehearsal.order = rule.order;
  rehearsal.routes = rule.routes;
  rehearsal.layers = rule.layers;
  const auto run = rehearse(rehearsal);
  return run.ok() ? run.value().total_ms : 0;
}

Json parts_of(const Rehearsed& run) {
  Json parts = Json::array();
  for (const RehearsedSteps& part : run.parts) {
    parts.push_back({{"first", part.first},
                     {"end", part.end},
                     {"step_ms", to_milliseconds(part.step)},
                     {"change_ms", to_milliseconds(part.change)},
                     {"remedy", part.remedy}});
  }
  return parts;
}

Json row_of(uint64_t seed, int64_t steps) {
  const Scenario scenario = draw_scenario(seed, steps);
  const auto run = rehearse(scenario.rehearsal);
  const auto best = best_in_hindsight(scenario.rehearsal);
  Json row = {{"seed", seed}, {"workers", cat(scenario.stages, " x ", scenario.pipelines)}};
  for (const Drawn& drawn : scenario.troubles) {
    row["troubles"].push_back(cat(drawn.what, " in steps ", drawn.first, " to ", drawn.end - 1));
  }
  if (!run.ok() || !best.ok()) {
    row["error"] = run.ok() ? best.error().message : run.error().message;
    return row;
  }
  row["total_ms"] = run.value().total_ms;
  row["best_ms"] = best.value().total_ms;
  row["ratio"] = run.value().total_ms / best.value().total_ms;
  for (const Rule& rule : kRules) {
    row["rules"][rule.name] = total_under(scenario.rehearsal, rule) / best.value().total_ms;
  }
  row["parts"] = parts_of(run.value());
  row["best_parts"] = parts_of(best.value());
  return row;
}

// How long a decision takes for a cluster with a slow worker and a slow link.
Json time_of_decision(int32_t stages, int32_t pipelines, int32_t micros, bool fine) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.layers = stages * (fine ? 2 : 1);
  shape.micros = micros;
  shape.order = "zb-h1";
  shape.split_backward = true;
  Plan plan = make_plan(shape).value();
  if (fine) plan = with_fine_stages(plan).value();
  Model model;
  Layer layer{.forward = from_milliseconds(4),
              .backward_input = from_milliseconds(4),
              .backward_weight = from_milliseconds(4)};
  layer.parameters = {10'000'000};
  model.layers.assign(static_cast<size_t>(shape.layers), layer);
  Cluster now = uniform_cluster(stages * pipelines, {from_milliseconds(0.2), 250e6});
  now.workers[1].speed = 0.5;
  now.exceptions[{{0}, {1}}] = now.exceptions[{{1}, {0}}] = {from_milliseconds(10), 250e6};
  RemedyTerms terms;
  terms.routes = true;
  terms.layers = fine;
  terms.troubles.lasted = 10;
  terms.left = 1000;
  std::vector<double> times;
  for (int32_t i = 0; i < 5; ++i) {
    const Duration begin = monotonic_clock().now();
    const auto choice = choose_remedy(plan, model, now, terms);
    times.push_back(choice.ok() ? to_milliseconds(monotonic_clock().now() - begin) : -1);
  }
  std::sort(times.begin(), times.end());
  return {{"workers", cat(stages, " x ", pipelines)},
          {"micros", micros},
          {"layers", fine},
          {"ms", times[2]}};
}

void print(const Json& rows, const Json& times) {
  int64_t within = 0, failed = 0;
  double worst = 1, sum = 0;
  std::printf("| scenario | workers | troubles | over the best in hindsight |");
  for (const Rule& rule : kRules) std::printf(" %s |", rule.name);
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
  for (const Json& row : rows) {
    if (row.contains("error")) {
      std::printf("| %s | %s | | %s |\n", row["seed"].dump().c_str(),
                  row["workers"].get<std::string>().c_str(),
                  row["error"].get<std::string>().c_str());
      ++failed;
      continue;
    }
    std::string troubles;
    for (const Json& one : row["troubles"]) {
      troubles += (troubles.empty() ? "" : "; ") + one.get<std::string>();
    }
    const double ratio = row["ratio"].get<double>();
    within += ratio <= 1.03 ? 1 : 0;
    worst = std::max(worst, ratio);
    sum += ratio;
    std::printf("| %s | %s | %s | %.3f |", row["seed"].dump().c_str(),
                row["workers"].get<std::string>().c_str(), troubles.c_str(), ratio);
    for (const auto& rule : row["rules"]) std::printf(" %.3f |", rule.get<double>());
    std::printf("\n");
  }
  const auto count = static_cast<int64_t>(rows.size()) - failed;
  std::printf("\nwithin 3 %% of the best in hindsight: %lld of %lld; mean %.4f, worst %.3f\n",
              static_cast<long long>(within), static_cast<long long>(rows.size()),
              count > 0 ? sum / static_cast<double>(count) : 0.0, worst);
  std::printf("\n| workers | micro-batches of a pipeline | layers may move | decision, ms |\n");
  std::printf("|---|---|---|---|\n");
  for (const Json& row : times) {
    std::printf("| %s | %d | %s | %.1f |\n", row["workers"].get<std::string>().c_str(),
                row["micros"].get<int>(), row["layers"].get<bool>() ? "yes" : "no",
                row["ms"].get<double>());
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  int32_t scenarios = 100;
  uint64_t seed = 0;
  int64_t steps = 400;
  bool json = false;
  CLI::App app("Remedies chosen without knowing how long troubles last, and the best in hindsight");
  app.add_option("--scenarios", scenarios, "how many (100)")->check(CLI::Range(1, 100'000));
  app.add_option("--seed", seed, "of the first scenario (0)");
  app.add_option("--steps", steps, "of each (400)")->check(CLI::Range(50, 1'000'000));
  app.add_flag("--json", json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  Json rows = Json::array();
  for (int32_t i = 0; i < scenarios; ++i) {
    rows.push_back(row_of(seed + static_cast<uint64_t>(i), steps));
  }
  Json times = Json::array();
  times.push_back(time_of_decision(8, 3, 8, false));
  times.push_back(time_of_decision(8, 3, 8, true));
  times.push_back(time_of_decision(16, 64, 16, false));
  if (json) {
    std::printf("%s\n", Json{{"scenarios", rows}, {"decisions", times}}.dump().c_str());
  } else {
    print(rows, times);
  }
  return 0;
}
