// One slow worker: how many micro-batches count per second with each way to deal with it. Our
// remedies keep all gradients; backup workers and dropped work do not.
//
// Sources: Chen, Pan, Monga, Bengio, Jozefowicz, "Revisiting distributed synchronous SGD", 2016
// (backup workers); Giladi et al., "DropCompute: simple and more robust distributed synchronous
// training via compute variance reduction", NeurIPS 2023 (dropped micro-batches).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/text.h"
#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "remedy/rehearse.h"
#include "sim/price.h"
#include "sync/simulator.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

// The command line.
struct Setting {
  int32_t pipelines = 3, stages = 8, micros = 16;  // micro-batches of a pipeline
  int32_t layers = 2;                              // of a stage
  std::vector<double> speeds = {0.75, 0.5, 0.25};
  int64_t steps = 2000;  // that the trouble lasts
  bool json = false;

  int32_t workers() const { return pipelines * stages; }
  // In the middle of the first pipeline.
  WorkerId slow() const { return {stages / 2}; }
};

// A way to deal with the slow worker.
struct Way {
  std::string name, how;
  double update_ms = 0;  // from one update to the next one
  double micros = 0;     // whose gradients are in an update
  double dropped = 0;    // share of the computed micro-batches that are in no update
};

Plan plan_of(const Setting& setting, int32_t pipelines, int32_t micros) {
  Shape shape;
  shape.stages = setting.stages;
  shape.pipelines = pipelines;
  shape.layers = setting.stages * setting.layers;
  shape.micros = micros;
  shape.order = "zb-h1";
  shape.split_backward = true;
  return with_fine_stages(make_plan(shape).value()).value();
}

Model model_of(const Setting& setting) {
  Layer layer{.forward = from_milliseconds(4),
              .backward_input = from_milliseconds(4),
              .backward_weight = from_milliseconds(4)};
  layer.activation = {1'000'000};
  layer.parameters = {10'000'000};
  Model model;
  model.layers.assign(static_cast<size_t>(setting.stages * setting.layers), layer);
  return model;
}

Cluster healthy_cluster(int32_t workers) {
  return uniform_cluster(workers, {from_milliseconds(0.2), 1.25e9});
}

// The cluster with the slow worker; speed 0 = it is left out.
Cluster cluster_with(const Setting& setting, double speed) {
  Cluster cluster = healthy_cluster(setting.workers());
  Worker& slow = cluster.workers[static_cast<size_t>(setting.slow().value)];
  slow.alive = speed > 0;
  slow.speed = speed > 0 ? speed : 1;
  return cluster;
}

double step_ms(const Plan& plan, const Model& model, const Cluster& cluster) {
  return to_milliseconds(whole_step_time(plan, model, cluster).value());
}

// What a run has come to at the end: it decides as a live run does.
Way remedies(const Setting& setting, const std::string& name, double speed, bool routes,
             bool layers) {
  Rehearsal rehearsal;
  rehearsal.plan = plan_of(setting, setting.pipelines, setting.micros);
  rehearsal.model = model_of(setting);
  rehearsal.healthy = healthy_cluster(setting.workers());
  rehearsal.episodes.push_back({cluster_with(setting, speed), setting.steps});
  rehearsal.routes = routes;
  rehearsal.layers = layers;
  const Rehearsed run = rehearse(rehearsal).value();
  Way way{name, "", to_milliseconds(run.parts.back().step), 0, 0};
  for (const RehearsedSteps& part : run.parts) {
    if (part.remedy == "the present plan" || part.remedy == "layers move") continue;
    way.how += (way.how.empty() ? "" : ", then ") + part.remedy;
  }
  way.micros = setting.pipelines * setting.micros;
  return way;
}

// Backup workers as published: an update has the gradients of the pipelines without the slow
// worker, whose own gradient always comes too late.
Way backup(const Setting& setting, double healthy_ms) {
  const int32_t taken = setting.pipelines - 1;
  return {cat("backup workers, the first ", taken, " pipelines"), "", healthy_ms,
          static_cast<double>(taken * setting.micros), 0};
}

// The sync mode of this name (ir/sync_mode.h), which never drops two gradients of a replica in a
// row. A replica is a pipeline, and the time of its iteration that of a step with its sums.
Way sync_mode(const Setting& setting, const std::string& mode, double healthy_ms, double slow_ms) {
  SyncSetting simulated;
  simulated.start.mode = sync_mode_from_text(mode).value();
  simulated.start.replicas = setting.pipelines;
  simulated.start.micros = setting.micros;
  simulated.times = [=](int32_t replica, int64_t, Duration) {
    return IterationTime{from_milliseconds(replica == 0 ? slow_ms : healthy_ms), {}};
  };
  SyncLimits limits;
  limits.warm_up_offers = int64_t{20} * setting.pipelines;
  limits.offers = int64_t{2000} * setting.pipelines;
  const SyncMeasure made = simulate_sync(simulated, limits).value();
  const double per_update = made.gradients_per_second / made.updates_per_second;
  return {cat("sync mode ", mode), "", 1000 / made.updates_per_second, per_update * setting.micros,
          made.dropped_fraction};
}

// The pipeline of the slow worker runs fewer micro-batches of each step: as many as make most
// micro-batches per second. The others run all of theirs.
Way drop_micros(const Setting& setting, double speed, double healthy_ms) {
  const Cluster now = cluster_with(setting, speed);
  Way best;
  for (int32_t micros = 1; micros <= setting.micros; ++micros) {
    const double slow_ms =
        step_ms(plan_of(setting, setting.pipelines, micros), model_of(setting), now);
    Way way{"micro-batches dropped", "", std::max(healthy_ms, slow_ms), 0, 0};
    way.micros = (setting.pipelines - 1) * setting.micros + micros;
    if (best.update_ms > 0 && way.micros / way.update_ms <= best.micros / best.update_ms) continue;
    const int32_t dropped = setting.micros - micros;
    way.how = cat(dropped, " of ", setting.micros, " at its pipeline");
    way.dropped = static_cast<double>(dropped) / (setting.pipelines * setting.micros);
    best = std::move(way);
  }
  return best;
}

// The other pipelines alone.
Way drop_pipeline(const Setting& setting) {
  const int32_t others = setting.pipelines - 1;
  return {"its pipeline left out", "",
          step_ms(plan_of(setting, others, setting.micros), model_of(setting),
                  healthy_cluster(others * setting.stages)),
          static_cast<double>(others * setting.micros), 0};
}

Json ways_at(const Setting& setting, double speed) {
  const Plan plan = plan_of(setting, setting.pipelines, setting.micros);
  const Model model = model_of(setting);
  const double healthy_ms = step_ms(plan, model, healthy_cluster(setting.workers()));
  const double slow_ms = step_ms(plan, model, cluster_with(setting, speed));
  const double all = setting.pipelines * setting.micros;
  // Late gradients of backup workers are computed as often as a slow iteration fits.
  Way first = backup(setting, healthy_ms);
  const double late = setting.micros * healthy_ms / slow_ms;
  first.dropped = late / (first.micros + late);
  const std::vector<Way> ways = {
      {"synchronous, the present plan", "", slow_ms, all, 0},
      remedies(setting, "routes", speed, true, false),
      remedies(setting, "layers", speed, false, true),
      remedies(setting, "the decision: routes and layers", speed, true, true),
      remedies(setting, "the worker left out", 0, true, true),
      first,
      sync_mode(setting, cat("backup:", setting.pipelines - 1), healthy_ms, slow_ms),
      drop_micros(setting, speed, healthy_ms),
      drop_pipeline(setting),
  };
  Json rows = Json::array();
  for (const Way& way : ways) {
    const double per_second = 1000 * way.micros / way.update_ms;
    rows.push_back({{"way", way.name},
                    {"how", way.how},
                    {"update_ms", way.update_ms},
                    {"micros", way.micros},
                    {"micros_per_second", per_second},
                    {"of_healthy", per_second / (1000 * all / healthy_ms)},
                    {"dropped", way.dropped}});
  }
  return {{"speed", speed}, {"healthy_ms", healthy_ms}, {"ways", rows}};
}

void print(const Setting& setting, const Json& cases) {
  for (const Json& one : cases) {
    std::printf(
        "%d pipelines x %d stages, %d micro-batches each; worker %d has speed %s; a step "
        "takes %.1f ms when all are well\n\n",
        setting.pipelines, setting.stages, setting.micros, setting.slow().value,
        one["speed"].dump().c_str(), one["healthy_ms"].get<double>());
    std::printf(
        "| way | update, ms | micro-batches in it | per second | of a healthy cluster | "
        "dropped | what is done |\n|---|---|---|---|---|---|---|\n");
    for (const Json& way : one["ways"]) {
      std::printf("| %s | %.1f | %.1f | %.1f | %.3f | %.3f | %s |\n",
                  way["way"].get<std::string>().c_str(), way["update_ms"].get<double>(),
                  way["micros"].get<double>(), way["micros_per_second"].get<double>(),
                  way["of_healthy"].get<double>(), way["dropped"].get<double>(),
                  way["how"].get<std::string>().c_str());
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  Setting setting;
  CLI::App app("One slow worker: remedies, backup workers and dropped work");
  app.add_option("--pipelines", setting.pipelines, "(3)")->check(CLI::Range(2, 64));
  app.add_option("--stages", setting.stages, "of a pipeline (8)")->check(CLI::Range(2, 64));
  app.add_option("--micros", setting.micros, "micro-batches of a pipeline (16)")
      ->check(CLI::Range(1, 512));
  app.add_option("--layers", setting.layers, "of a stage (2)")->check(CLI::Range(1, 16));
  app.add_option("--speed", setting.speeds, "of the slow worker (0.75, 0.5 and 0.25)")
      ->check(CLI::Range(0.01, 0.99));
  app.add_option("--steps", setting.steps, "that it is slow for (2000)")
      ->check(CLI::Range(50, 1'000'000));
  app.add_flag("--json", setting.json, "one JSON array");
  CLI11_PARSE(app, count, arguments);
  Json cases = Json::array();
  for (const double speed : setting.speeds) cases.push_back(ways_at(setting, speed));
  if (setting.json) {
    std::printf("%s\n", cases.dump().c_str());
  } else {
    print(setting, cases);
  }
  return 0;
}
