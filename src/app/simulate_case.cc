#include "app/simulate_case.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

#include "adapt/sums.h"
#include "app/config.h"
#include "app/flags.h"
#include "app/make_job_plan.h"
#include "app/plan_file.h"
#include "base/contains.h"
#include "base/file.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "sim/trace_times.h"
#include "world/cluster_file.h"
#include "world/job_model.h"
#include "world/layer_chain.h"
#include "world/load.h"

namespace tenuto {
namespace {

constexpr double kOpMilliseconds = 10;  // of every op that no flag gives a time
// With more ops, the critical path is found only where spans are asked for.
constexpr size_t kMostOpsOfPath = 300'000;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Refuses impossible values of flags, with the name of the flag.
Status check_flags(const SimulateOptions& options) {
  const auto one_of = [](const char* flag, const std::optional<std::string>& given,
                         const std::vector<std::string>& choices) -> Status {
    if (!given || contains(choices, *given)) return ok();
    std::string names;
    for (const std::string& each : choices) names += cat(names.empty() ? "" : " or ", each);
    return invalid(cat(flag, " ", *given, ": expected ", names));
  };
  for (const Status& status :
       {one_of("--send", options.send, {"offloaded", "blocking"}),
        one_of("--optimizer", options.optimizer, {"barrier", "in-turn", "staggered"}),
        one_of("--duplex", options.duplex, {"full", "half"})}) {
    if (!status.ok()) return status;
  }
  if (options.weight_memory && !(*options.weight_memory >= 0 && *options.weight_memory <= 1)) {
    return invalid(cat("--weight-memory ", *options.weight_memory,
                       ": expected a share of a micro-batch from 0 to 1"));
  }
  if (options.per_op_ms && !(*options.per_op_ms >= 0 && *options.per_op_ms <= 1e9)) {
    return invalid(
        cat("--per-op-ms ", *options.per_op_ms, ": expected milliseconds from 0 to 1e9"));
  }
  if (options.chunks && *options.chunks < 1) {
    return invalid(cat("--chunks ", *options.chunks, ": expected at least 1"));
  }
  if (!options.measured.empty() && options.page.empty()) {
    return invalid(cat("--measured ", options.measured, " is shown on a page: add --page FILE"));
  }
  if (options.seed < 0) {
    return invalid(cat("--seed ", options.seed, ": expected a whole number from 0 on"));
  }
  if (options.seconds && !(*options.seconds > 0 && *options.seconds <= 1e6)) {
    return invalid(cat("--seconds ", *options.seconds, ": expected more than 0 and up to 1e6"));
  }
  if (options.micro_rows > 0 && options.chain.empty()) {
    return invalid(cat("--micro-rows ", options.micro_rows,
                       ": belongs to a model file: name it with --chain, or leave the flag out"));
  }
  if (options.iterations < 1 || options.iterations > 1'000'000'000) {
    return invalid(cat("--iterations ", options.iterations, ": expected 1 to 1,000,000,000"));
  }
  return ok();
}

// The number n of workers of a pipeline. For each i < n, the p-th holder of stage i is worker i of
// pipeline p, however many stages a worker holds.
int32_t workers_of_pipeline(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const Stage& stage : plan.stages) {
    if (!stage.holders.empty()) workers.insert(stage.holders.front());
  }
  return static_cast<int32_t>(workers.size());
}

// One number for all workers of a pipeline, or one for each.
Result<std::vector<double>> per_worker(const char* flag, const std::vector<double>& given,
                                       int32_t workers) {
  std::vector<double> all = given.empty() ? std::vector<double>{kOpMilliseconds} : given;
  for (const double value : all) {
    if (std::isfinite(value) && value >= 0 && value <= 1e9) continue;
    return invalid(cat(flag, " ", value, ": expected milliseconds from 0 to 1e9"));
  }
  if (all.size() == 1) all.assign(at(workers), all[0]);
  if (all.size() == at(workers)) return all;
  return invalid(cat(flag, " has ", all.size(), " numbers for ", workers,
                     " stages: give one, or one for each stage"));
}

Result<WorkerTimes> times_of(const SimulateOptions& options, int32_t workers) {
  WorkerTimes times;
  const auto forward = per_worker("--forward-ms", options.forward_ms, workers);
  if (!forward.ok()) return forward.error();
  const auto input = per_worker("--backward-input-ms", options.backward_input_ms, workers);
  if (!input.ok()) return input.error();
  const auto weight = per_worker("--backward-weight-ms", options.backward_weight_ms, workers);
  if (!weight.ok()) return weight.error();
  times.forward = forward.value();
  times.backward_input = input.value();
  times.backward_weight = weight.value();
  return times;
}

Result<bool> yes_or_no(const char* flag, const std::string& text) {
  if (text == "yes" || text == "no") return text == "yes";
  return invalid(cat(flag, " ", text, ": expected yes or no"));
}

Result<Shape> shape_of(const SimulateOptions& options) {
  Shape shape;
  shape.stages = options.stages.value_or(4);
  shape.pipelines = options.pipelines.value_or(1);
  shape.micros = options.micros.value_or(8);
  shape.chunks = options.chunks.value_or(0);
  shape.order = options.order.value_or("1f1b");
  shape.memory = options.memory.value_or(0);
  if (options.memory && *options.memory < 1) {
    return invalid(cat("--memory ", *options.memory, ": expected at least 1 micro-batch"));
  }
  const bool open = shape.order == kAutoOrder;
  const std::string dispatch = options.dispatch.value_or(open ? "ready" : "listed");
  if (dispatch != "listed" && dispatch != "ready") {
    return invalid(cat("--dispatch ", dispatch, ": expected listed or ready"));
  }
  // The search for an open order starts from ready dispatch, whichever dispatch the result has.
  shape.dispatch = open || dispatch == "ready" ? Dispatch::Ready : Dispatch::Listed;
  shape.split_backward = splits_by_default(shape.order);
  shape.late_share = options.weight_memory.value_or(1);
  if (options.split_backward) {
    const auto split = yes_or_no("--split-backward", *options.split_backward);
    if (!split.ok()) return split.error();
    shape.split_backward = split.value();
  }
  if (options.recompute) {
    const auto recompute = yes_or_no("--recompute", *options.recompute);
    if (!recompute.ok()) return recompute.error();
    shape.recompute = recompute.value();
  }
  return shape;
}

bool gives_shape(const SimulateOptions& options) {
  return options.stages || options.pipelines || options.micros || options.memory || options.order ||
         options.dispatch || options.split_backward || options.chunks || options.recompute;
}

Result<SimulationCase> case_of_flags(const SimulateOptions& options) {
  const auto shape = shape_of(options);
  if (!shape.ok()) return shape.error();
  auto plan = make_plan(shape.value());
  if (!plan.ok()) return plan.error();
  const auto times = times_of(options, shape.value().stages);
  if (!times.ok()) return times.error();
  SimulationCase it{
      std::move(plan).value(), {}, {}, false, cat("order ", shape.value().order, " as asked")};
  it.model = model_of(it.plan, times.value());
  const Link link{from_milliseconds(options.link_ms.value_or(0)), 0};
  it.cluster = uniform_cluster(shape.value().stages * shape.value().pipelines, link);
  return it;
}

// Replaces the model by the layers of a file.
Status take_chain(const SimulateOptions& options, SimulationCase& it) {
  if (options.chain.empty()) return ok();
  if (!options.forward_ms.empty() || !options.backward_input_ms.empty() ||
      !options.backward_weight_ms.empty()) {
    return invalid("--chain replaces --forward-ms and the other op times: give one of the two");
  }
  auto chain = load_chain(options.chain, options.micro_rows);
  if (!chain.ok()) return chain.error();
  if (options.micro_rows > 0 && chain.value().rows == 0) {
    return invalid(cat("--micro-rows ", options.micro_rows, ": ", options.chain,
                       " has the times of a whole micro-batch: leave the flag out, or name a model "
                       "file with --chain"));
  }
  const size_t layers = chain.value().model.layers.size(),
               expected = at(it.plan.stages.back().layer_end);
  if (layers != expected) {
    return invalid(cat(options.chain, " has ", layers, " layers and ", options.file, " ", expected,
                       ": give the layers that the plan was made for"));
  }
  it.kept.emplace().optimizer = std::move(chain.value().optimizer);
  it.model = std::move(chain).value().model;
  it.update = true;
  return ok();
}

// Replaces the cluster by the devices of a file.
Status take_cluster(const SimulateOptions& options, SimulationCase& it) {
  if (options.cluster.empty()) return ok();
  if (options.link_ms) return invalid("--cluster replaces --link-ms: give one of the two");
  auto cluster = load_cluster(options.cluster);
  if (!cluster.ok()) return cluster.error();
  const size_t devices = cluster.value().workers.size(), workers = it.plan.schedule.lists.size();
  if (devices < workers) {
    return invalid(cat(options.cluster, " has ", devices,
                       devices == 1 ? " device and " : " devices and ", options.file, " ", workers,
                       " workers: give the devices that the plan was made for"));
  }
  it.cluster = std::move(cluster).value();
  keep_first(it.cluster, static_cast<int32_t>(workers));
  return ok();
}

Result<SimulationCase> case_of_plan(const SimulateOptions& options) {
  auto plan = plan_from_file(options.file);
  if (!plan.ok()) return plan.error();
  if (const Status status = check(plan.value()); !status.ok()) {
    Error error = status.error();
    error.message = cat(options.file, " is refused: ", error.message);
    return error;
  }
  const auto times = times_of(options, workers_of_pipeline(plan.value()));
  if (!times.ok()) return times.error();
  SimulationCase it{std::move(plan).value(), {}, {}, false, cat("the plan of ", options.file)};
  it.model = model_of(it.plan, times.value());
  const Link link{from_milliseconds(options.link_ms.value_or(0)), 0};
  it.cluster = uniform_cluster(static_cast<int32_t>(it.plan.schedule.lists.size()), link);
  if (const Status taken = take_chain(options, it); !taken.ok()) return taken.error();
  if (const Status taken = take_cluster(options, it); !taken.ok()) return taken.error();
  return it;
}

Result<SimulationCase> case_of_job(const SimulateOptions& options, Watch& watch) {
  const auto loaded = load_effective_job(options.file, {});
  if (!loaded.ok()) return loaded.error();
  const Job& job = loaded.value().job;
  if (job.is_served()) {
    const char* key = job.has_servers() ? "sync.architecture" : "sync.mode";
    const std::string& value = job.has_servers() ? job.sync.architecture : job.sync.mode;
    return invalid(cat(options.file, " has ", key, " = \"", value,
                       "\", and only synchronous steps of a job can be priced: take tenuto "
                       "simulate --sync MODE --replicas ",
                       job.parallel.pipelines, " with the times of an iteration"));
  }
  auto plan = make_job_plan(job, &watch);
  if (!plan.ok()) return plan.error();
  if (job.device.layers != nullptr) {
    for (const auto& [flag, times] :
         {std::pair("--forward-ms", &options.forward_ms),
          std::pair("--backward-input-ms", &options.backward_input_ms),
          std::pair("--backward-weight-ms", &options.backward_weight_ms)}) {
      if (times->empty()) continue;
      return invalid(cat(flag, " and device.profile both say how long ops last: leave one out"));
    }
  }
  if (job.network.devices != nullptr && options.link_ms) {
    return invalid("--link-ms and network.cluster both say what links are like: leave one out");
  }
  SimulateOptions merged = options;
  const auto fill = [](std::vector<double>& flag, const std::vector<double>& setting) {
    if (flag.empty()) flag = setting;
  };
  fill(merged.forward_ms, job.device.forward_ms);
  fill(merged.backward_input_ms, job.device.backward_input_ms);
  fill(merged.backward_weight_ms, job.device.backward_weight_ms);
  auto times = times_of(merged, job.parallel.stages);
  if (!times.ok()) return times.error();
  WorkerTimes stage_times = std::move(times).value();
  stage_times.message = {job.device.message_bytes};
  stage_times.parameters = {job.device.parameter_bytes};
  SimulationCase it{
      std::move(plan).value(),
      {},
      {},
      true,
      cat("the job of ", options.file,
          job.device.kind == "paced" ? "" : ", with the op times of [device], not measured ones")};
  const bool profiled = job.device.layers != nullptr;
  it.model = profiled ? job_model(job, it.plan) : model_of(it.plan, stage_times);
  it.cluster = cluster_of(job);
  if (options.link_ms) {
    it.cluster = uniform_cluster(job.worker_count(), {from_milliseconds(*options.link_ms),
                                                      job.network.megabytes_per_second * 1e6});
  }
  it.send = job.network.send;
  if (it.send == "blocking") it.update = false;  // blocking sends are priced without the update
  it.faults = job.faults;
  it.seats = job.seats();
  const ResilienceSettings& resilience = job.resilience;
  it.remedies = {
      resilience.mode == "act" && resilience.slow_links == "adapt" && it.send != "blocking",
      resilience.slow_workers == "adapt", resilience.layers == "adapt"};
  return it;
}

// A whole number and what follows it.
bool take_number(std::string_view& text, int32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take_letter(std::string_view& text, char letter) {
  if (text.empty() || text.front() != letter) return false;
  text.remove_prefix(1);
  return true;
}

bool take_real(std::string_view text, double& value) {
  const auto number = number_of(text);
  value = number.value_or(0);
  return number.has_value();
}

Error named_twice(const char* flag, const std::string& what) {
  return invalid(cat(flag, " names ", what, " twice: name it once"));
}

Status slow_links(const SimulateOptions& options, SimulationCase& it) {
  if (options.link_ms && !(*options.link_ms >= 0 && *options.link_ms <= 1e9)) {
    return invalid(cat("--link-ms ", *options.link_ms, ": expected milliseconds from 0 to 1e9"));
  }
  const int32_t links = workers_of_pipeline(it.plan) - 1;
  std::set<int32_t> named;
  for (const std::string& given : options.slow_links) {
    std::string_view text = given;
    int32_t link = 0;
    double extra = 0;
    if (!take_number(text, link) || !take_letter(text, ':') || !take_real(text, extra) ||
        extra < 0 || extra > 1e9) {
      return invalid(cat("--slow-link ", given, ": expected LINK:MILLISECONDS, such as 0:20"));
    }
    if (link >= links) {
      return invalid(cat("--slow-link ", given, ": ", links + 1, " stages have ", links, " links",
                         links > 0 ? cat(", 0 to ", links - 1) : std::string()));
    }
    if (!named.insert(link).second) return named_twice("--slow-link", cat("link ", link));
    const auto& before = it.plan.stages[at(link)].holders;
    const auto& behind = it.plan.stages[at(link) + 1].holders;
    for (size_t p = 0; p < std::min(before.size(), behind.size()); ++p) {
      for (const auto& ends : {std::pair(before[p], behind[p]), std::pair(behind[p], before[p])}) {
        Link slow = it.cluster.link(ends.first, ends.second);
        slow.latency = plus(slow.latency, from_milliseconds(extra));
        it.cluster.exceptions[ends] = slow;
      }
    }
  }
  return ok();
}

// Takes PIPELINE.STAGE from the front of `text`.
Result<WorkerId> take_worker(const char* flag, const std::string& given, const char* form,
                             std::string_view& text, const Plan& plan) {
  int32_t pipeline = 0, stage = 0;
  if (!take_number(text, pipeline) || !take_letter(text, '.') || !take_number(text, stage)) {
    return invalid(cat(flag, " ", given, ": expected ", form));
  }
  const int32_t workers = workers_of_pipeline(plan);
  if (stage >= workers || at(pipeline) >= plan.stages[at(stage)].holders.size()) {
    return invalid(cat(flag, " ", given, ": there is no such worker among ",
                       plan.stages.front().holders.size(), " pipelines of ", workers, " stages"));
  }
  return plan.stages[at(stage)].holders[at(pipeline)];
}

Status slow_workers(const SimulateOptions& options, SimulationCase& it) {
  constexpr const char* kForm = "PIPELINE.STAGE:FACTOR, such as 0.2:0.5 for half speed";
  std::set<WorkerId> named;
  for (const std::string& given : options.slow_workers) {
    std::string_view text = given;
    double factor = 0;
    const auto worker = take_worker("--slow-worker", given, kForm, text, it.plan);
    if (!worker.ok()) return worker.error();
    if (!take_letter(text, ':') || !take_real(text, factor) || factor < 1e-6 || factor > 1e6) {
      return invalid(cat("--slow-worker ", given, ": expected ", kForm));
    }
    if (!named.insert(worker.value()).second) {
      return named_twice("--slow-worker", cat("worker ", given.substr(0, given.find(':'))));
    }
    it.cluster.workers[at(worker.value().value)].speed = factor;
  }
  return ok();
}

Status lost_workers(const SimulateOptions& options, SimulationCase& it) {
  constexpr const char* kForm = "PIPELINE.STAGE, such as 0.2";
  std::set<WorkerId> named;
  for (const std::string& given : options.lost) {
    std::string_view text = given;
    const auto worker = take_worker("--lost", given, kForm, text, it.plan);
    if (!worker.ok()) return worker.error();
    if (!text.empty()) return invalid(cat("--lost ", given, ": expected ", kForm));
    if (!named.insert(worker.value()).second) return named_twice("--lost", cat("worker ", given));
    it.cluster.workers[at(worker.value().value)].alive = false;
  }
  return ok();
}

// Measured times take the place of the given ones.
Status measured_times(const SimulateOptions& options, SimulationCase& it) {
  if (options.times.empty()) return ok();
  if (!options.forward_ms.empty() || !options.backward_input_ms.empty() ||
      !options.backward_weight_ms.empty()) {
    return invalid("--times replaces --forward-ms and the other op times: give one of the two");
  }
  TraceSamples samples;
  std::set<std::string> named;
  for (const std::string& path : options.times) {
    if (!named.insert(path).second) return named_twice("--times", path);
    const auto text = read_file(path);
    if (!text.ok()) return text.error();
    if (const Status added = add_trace(text.value(), path, samples); !added.ok()) return added;
  }
  const auto times = times_of_traces(samples);
  if (!times.ok()) return times.error();
  if (times.value().forward.size() != it.plan.stages.size()) {
    return invalid(cat(options.times.front(), ": has times of ", times.value().forward.size(),
                       " stages, expected ", it.plan.stages.size(),
                       ": give --stages, or the traces of all workers"));
  }
  for (size_t s = 0; s < it.plan.stages.size(); ++s) {
    Layer& layer = it.model.layers[at(it.plan.stages[s].layer_first)];
    layer.forward = times.value().forward[s];
    layer.backward_input = times.value().backward_input[s];
    layer.backward_weight = times.value().backward_weight[s];
  }
  it.reason += cat(", with the median times of ", times.value().ops, " measured ops");
  return ok();
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// True when some worker has no ops.
bool lacks_workers(const Plan& plan) {
  return std::any_of(plan.schedule.lists.begin(), plan.schedule.lists.end(),
                     [](const std::vector<Op>& list) { return list.empty(); });
}

// An order and a routing made for the times, links and lost workers of the case.
Result<SimulationCase> order_of(const SimulateOptions& options, Watch& watch, SimulationCase it) {
  AdaptOptions adapting;
  adapting.price = price_options_of(options, it);
  if (adapting.price.sending == Sending::Blocking) {
    return invalid(cat(options.lost.empty() ? "--order auto" : "--lost",
                       " makes orders for offloaded messages: leave --send out"));
  }
  // This is no live run: every gain counts, and there is time to look for it.
  adapting.least_gain = adapting.listed_gain = 0;
  adapting.moves = true;
  adapting.route_effort = {3000, 8'000'000};
  adapting.watch = &watch;
  if (options.dispatch) {
    adapting.dispatch = *options.dispatch == "ready" ? Dispatch::Ready : Dispatch::Listed;
  }
  auto adapted = adapt(it.plan, it.model, it.cluster, adapting);
  if (!adapted.ok()) return adapted.error();
  it.reason = adapted.value().reason;
  if (watch.was_heeded()) {
    it.reason += cat("; the limit of ", *options.seconds, " s (--seconds) ended the search");
  }
  it.routed = adapted.value().routed || lacks_workers(it.plan);
  it.moves = std::move(adapted.value().moves);
  it.plan = std::move(adapted).value().plan;
  return it;
}

// Chooses all-reduces as the flag says; where the flag leaves that open, those that are fastest in
// the first step.
Status choose_all_reduce(const SimulateOptions& options, SimulationCase& it) {
  if (!options.all_reduce) return ok();
  if (const Status known = check_all_reduce(*options.all_reduce); !known.ok()) return known;
  if (!it.update) {
    return invalid(
        cat("--all-reduce ", *options.all_reduce,
            " concerns gradient sums, which are priced with the update: add --update yes"));
  }
  it.plan = with_all_reduce(std::move(it.plan), *options.all_reduce);
  const Cluster now = with_faults(it.cluster, it.faults, 0, it.seats);
  auto chosen = choose_sums(it.plan, it.model, now, price_options_of(options, it), 0);
  if (!chosen.ok()) return chosen.error();
  if (chosen.value().changed) it.reason += "; " + chosen.value().reason;
  it.plan = std::move(chosen.value().plan);
  return ok();
}

}  // namespace

Result<Timeline> priced(const SimulateOptions& options, const SimulationCase& it) {
  const PriceOptions pricing = price_options_of(options, it);
  auto timeline = price(it.plan, it.model, it.cluster, pricing);
  if (!timeline.ok() || !it.routed) return timeline;
  const auto bound = bound_of_routings(it.plan, it.model, it.cluster, pricing);
  if (!bound.ok()) return bound.error();
  // If steps overlap, the period is a mean over few steps; the bound is for many and may be higher.
  Timeline& found = timeline.value();
  if (bound.value()) found.lower_bound = std::min(*bound.value(), found.period);
  return timeline;
}

Result<SimulationCase> case_of(const SimulateOptions& options, Watch& watch) {
  if (const Status status = check_flags(options); !status.ok()) return status.error();
  if (!options.file.empty() && gives_shape(options)) {
    return invalid(
        cat(options.file, " already gives stages, order and the like: leave those flags out"));
  }
  const bool job = ends_with(options.file, ".toml");
  if ((job || options.file.empty()) && !(options.chain.empty() && options.cluster.empty())) {
    return invalid("--chain and --cluster belong to a plan's file: name it, or leave them out");
  }
  watch.begin("making the plan");
  Result<SimulationCase> it = options.file.empty() ? case_of_flags(options)
                              : job                ? case_of_job(options, watch)
                                                   : case_of_plan(options);
  if (!it.ok()) return it;
  if (options.duplex) it.value().cluster.half_duplex = *options.duplex == "half";
  if (options.update) {
    const auto update = yes_or_no("--update", *options.update);
    if (!update.ok()) return update.error();
    it.value().update = update.value();
  }
  if (options.send) it.value().send = *options.send;
  if (options.optimizer) {
    it.value().plan = with_update(std::move(it.value().plan), *options.optimizer == "staggered");
  }
  if (it.value().update && it.value().send == "blocking") {
    return invalid("--send blocking is priced without the update: add --update no");
  }
  for (const Status& status :
       {measured_times(options, it.value()), slow_links(options, it.value()),
        slow_workers(options, it.value()), lost_workers(options, it.value())}) {
    if (!status.ok()) return status.error();
  }
  const bool open = it.value().plan.order == kAutoOrder && (options.file.empty() || job);
  if (open || !options.lost.empty()) it = order_of(options, watch, it.value());
  if (!it.ok()) return it;
  if (const Status status = choose_all_reduce(options, it.value()); !status.ok()) {
    return status.error();
  }
  return it;
}

PriceOptions price_options_of(const SimulateOptions& options, const SimulationCase& it) {
  PriceOptions price_options;
  price_options.update = it.update;
  price_options.sending = it.send == "blocking" ? Sending::Blocking : Sending::Offloaded;
  price_options.staggered = it.plan.update.staggered;
  price_options.in_turn = options.optimizer == "in-turn";
  price_options.per_op = from_milliseconds(options.per_op_ms.value_or(0));
  price_options.weight_share = options.weight_memory.value_or(1);
  for (const Layer& layer : it.model.layers) {
    if (layer.activation.count > 0 || layer.stash.count > 0) price_options.bytes = true;
  }
  size_t ops = 0;
  for (const auto& list : it.plan.schedule.lists) ops += list.size();
  price_options.spans =
      options.gantt || !options.trace.empty() || !options.page.empty() || ops <= kMostOpsOfPath;
  return price_options;
}

PriceOptions stretch_options_of(const SimulateOptions& options, const SimulationCase& it) {
  PriceOptions pricing = price_options_of(options, it);
  if (!it.remedies || !it.update || options.optimizer) return pricing;
  const PriceOptions run = options_of_run(it.plan);
  pricing.staggered = run.staggered;
  pricing.in_turn = run.in_turn;
  pricing.steps = run.steps;
  return pricing;
}

}  // namespace tenuto
