#include "sync/report.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/text.h"
#include "sync/aggregation_tree.h"
#include "sync/formed.h"

namespace tenuto {

namespace {

// Offers of one simulation, which takes some seconds then. With many replicas each costs more:
// kManyReplicas more of them cost as much as an offer itself.
constexpr double kMostOffers = 5e6, kManyReplicas = 256;
constexpr int32_t kMostForAuto = 512;  // replicas: "auto" simulates every candidate
constexpr int64_t kMicros = 16;        // of a replica's iteration, so that shares can be uneven
constexpr double kWarmUpShare = 0.2;   // of the time
constexpr size_t kShown = 8;           // alternatives, or parents, in people's text
constexpr double kUsualPort = 1000;    // MB/s
constexpr Duration kLongestUpdate = std::chrono::hours(24);
constexpr int64_t kDraws = 24;  // iterations of each replica that "auto" is told of
constexpr uint64_t kTrial = 1;  // sets the seed of these apart from the run's

struct Case {
  std::vector<IterationTime> means;
  IterationTimes times;  // of the run
  IterationTimes trial;  // drawn apart from the run's: what "auto" has measured before it
  uint64_t trial_seed = 0;
  double offers = 0;  // at most, in the time asked for
};

// Lognormal times around the compute times of `means`; transfers take no time.
IterationTimes drawn(const std::vector<IterationTime>& means, double deviation, uint64_t seed) {
  return [means, deviation, seed](int32_t replica, int64_t iteration, Duration) {
    const double factor = lognormal(
        deviation, mix(seed, static_cast<uint64_t>(replica), static_cast<uint64_t>(iteration)));
    const auto mean = static_cast<double>(means[static_cast<size_t>(replica)].compute.count());
    return IterationTime{Duration(std::max<int64_t>(1, std::llround(mean * factor))), Duration{}};
  };
}

Result<Case> case_of(const SyncQuestion& question) {
  const auto replicas = static_cast<size_t>(std::max(question.replicas, 1));
  std::vector<double> given = question.iteration_ms;
  if (given.empty()) given = {100};
  if (given.size() != 1 && given.size() != replicas) {
    return invalid(cat("--iteration-ms: expected one time, or one for each of ", replicas,
                       " replicas, found ", given.size()));
  }
  given.resize(replicas, given.front());
  Case made;
  for (const double ms : given) {
    const Duration time = from_milliseconds(ms);
    if (time.count() <= 0)
      return invalid(cat("--iteration-ms: expected times above 0, found ", ms));
    made.means.push_back({time, Duration{}});
    made.offers +=
        question.seconds * 1000 / ms * (1 + static_cast<double>(replicas) / kManyReplicas);
  }
  if (made.offers > kMostOffers) {
    // Rounded down, so that the advice is taken.
    const double most = std::floor(question.seconds * kMostOffers / made.offers * 1e6) / 1e6;
    return invalid(cat("--seconds: expected at most ", fixed(most, 6), " s for ", replicas,
                       " replicas with these times, because the simulation would take too long, "
                       "found ",
                       question.seconds));
  }
  const double deviation = question.jitter_percent / 100;
  made.times = drawn(made.means, deviation, question.seed);
  made.trial_seed = mix(question.seed, 0, 0, kTrial);
  made.trial = drawn(made.means, deviation, made.trial_seed);
  return made;
}

// The look-ahead's choice for these replicas, from a few iterations of each. They are not those
// that are run then, which nobody could know before.
Result<SyncChoice> chosen(const SyncQuestion& question, const Case& made) {
  ChooseInput input;
  for (int32_t replica = 0; replica < question.replicas; ++replica) {
    input.samples.emplace_back();
    for (int64_t i = 0; i < kDraws; ++i) {
      input.samples.back().push_back(made.trial(replica, i, Duration{}));
    }
  }
  input.apply = from_milliseconds(question.apply_ms);
  input.micros = kMicros;
  input.kappa = question.kappa;
  input.current = first_mode(made.means, question.kappa);
  input.seed = made.trial_seed;
  return choose_by_look_ahead(input);
}

// A host of which only the port is known.
PlacementHost host_with_port(const std::string& name, double mb_per_second) {
  const auto rate = static_cast<int64_t>(std::llround(mb_per_second * 1e6));
  PlacementHost host{name, {}, {}};
  host.capacity[static_cast<size_t>(HostResource::Transmit)] = rate;
  host.capacity[static_cast<size_t>(HostResource::Receive)] = rate;
  return host;
}

// The best tree for updates of all replicas, which follow each other as with the star: when the
// slowest replica has computed, all gradients have come, and the update is applied.
Result<TreeReport> priced_tree(const SyncQuestion& question, const SyncMode& mode,
                               const std::vector<IterationTime>& means) {
  const bool waits = mode.kind == SyncKind::Synchronous || mode.kind == SyncKind::Rebalanced;
  if (!waits) {
    return invalid(cat("--gradient-mb: a tree sums the gradients of all replicas, and ",
                       to_text(mode), " does not wait for all: take synchronous"));
  }
  std::vector<double> ports = question.port_mb_per_second;
  if (ports.empty()) ports = {kUsualPort};
  if (ports.size() != 1 && ports.size() != means.size()) {
    return invalid(cat("--port-mb-per-second: expected one rate, or one for each of ", means.size(),
                       " replicas, found ", ports.size()));
  }
  ports.resize(means.size(), ports.front());
  TreeInput input;
  Duration longest{};
  for (size_t i = 0; i < means.size(); ++i) {
    input.replicas.push_back(host_with_port(cat("of replica ", i), ports[i]));
    longest = std::max(longest, means[i].compute);
  }
  const double shard = question.shard_mb_per_second;
  input.shard = host_with_port("of the shard", shard > 0 ? shard : ports.front());
  input.gradient = {static_cast<int64_t>(std::llround(question.gradient_mb * 1e6))};
  TreeReport report;
  report.star = price_tree(input, std::vector<int32_t>(means.size(), kToShard));
  if (report.star > kLongestUpdate) {
    return invalid(cat("--gradient-mb: expected gradients that the ports carry within ",
                       kLongestUpdate.count() / 1'000'000'000, " s, found ", question.gradient_mb,
                       " MB of each of ", means.size(), " replicas"));
  }
  input.interval = longest + report.star + from_milliseconds(question.apply_ms);
  auto tree = make_tree(input);
  if (!tree.ok()) return tree.error();
  report.parents = std::move(tree.value().parents);
  report.time = tree.value().time;
  return report;
}

std::string milliseconds_text(Duration time) { return cat(fixed(to_milliseconds(time), 3), " ms"); }

// The star, and the tree if it is another one.
std::string tree_text(const TreeReport& report) {
  std::string text =
      cat("star        ", milliseconds_text(report.star), " until the shard has all gradients\n");
  std::string nodes;
  size_t count = 0;
  for (size_t i = 0; i < report.parents.size(); ++i) {
    const auto children =
        std::count(report.parents.begin(), report.parents.end(), static_cast<int32_t>(i));
    if (children == 0) continue;
    if (count++ < kShown) nodes += cat(nodes.empty() ? "" : ", ", i, " (", children, ")");
  }
  if (count > kShown) nodes += cat(" and ", count - kShown, " more");
  return text + (count == 0 ? std::string("tree        none is faster than the star\n")
                            : cat("tree        ", milliseconds_text(report.time),
                                  " with sums at replicas ", nodes, ", of so many others each\n"));
}

}  // namespace

Result<SyncReport> answer(const SyncQuestion& question) {
  if (const Status fault = check(SyncMode{}, question.replicas); !fault.ok()) return fault.error();
  auto found = case_of(question);
  if (!found.ok()) return found.error();
  const Case& made = found.value();
  SyncReport report;
  report.replicas = question.replicas;
  if (question.mode == "auto") {
    if (question.replicas > kMostForAuto) {
      return invalid(cat("--sync auto: expected at most ", kMostForAuto, " replicas, found ",
                         question.replicas, ": give a mode"));
    }
    auto choice = chosen(question, made);
    if (!choice.ok()) return choice.error();
    report.mode = choice.value().mode;
    report.reason = choice.value().reason;
    report.alternatives = std::move(choice.value().alternatives);
  } else {
    const auto mode = sync_mode_from_text(question.mode);
    if (!mode.ok()) return invalid(cat(mode.error().message, "; or auto"));
    auto formed = form(mode.value(), made.means, kMicros);
    if (!formed.ok()) return formed.error();
    report.mode = std::move(formed).value();
    const double steps = static_cast<double>(question.replicas) * report.mode.local_steps;
    if (steps > kMostOffers) {
      return invalid(cat("--sync: expected at most ", kMostOffers,
                         " local steps of all replicas together, found ", steps));
    }
  }
  const double ms = question.seconds * 1000;
  auto measure =
      simulate_sync({{report.mode, question.replicas, kMicros, {}, {}},
                     made.times,
                     from_milliseconds(question.apply_ms)},
                    {0, from_milliseconds(kWarmUpShare * ms), 0, 0, from_milliseconds(ms)});
  if (!measure.ok()) return measure.error();
  report.measure = std::move(measure).value();
  report.target_gradients = question.target_gradients;
  const double rate = progress_of(report.measure, question.replicas, question.kappa);
  report.target_seconds = rate > 0 ? question.target_gradients / rate : 0;
  if (question.gradient_mb > 0) {
    auto tree = priced_tree(question, report.mode, made.means);
    if (!tree.ok()) return tree.error();
    report.tree = std::move(tree).value();
  }
  return report;
}

std::string to_text(const SyncReport& report) {
  const SyncMeasure& measure = report.measure;
  std::string text = cat(to_text(report.mode), ": ", report.replicas, " replicas\n");
  if (!report.reason.empty()) text += cat("chosen      ", report.reason, "\n");
  text += cat("gradients   ", fixed(measure.gradients_per_second, 3),
              " per second, one replica's iteration each\n");
  text += cat("updates     ", fixed(measure.updates_per_second, 3), " per second\n");
  text += cat("age         ", fixed(measure.mean_age, 3), " gradients on average\n");
  text += cat("dropped     ", fixed(100 * measure.dropped_fraction, 2), " % of all gradients\n");
  text += report.target_seconds > 0
              ? cat("target      ", fixed(report.target_seconds, 3), " s for the progress of ",
                    report.target_gradients, " gradients of age 0\n")
              : std::string("target      not reached: too few updates in this time\n");
  if (report.tree) text += tree_text(*report.tree);
  const size_t shown = std::min(kShown, report.alternatives.size());
  for (size_t i = 0; i < shown; ++i) {
    const SyncAlternative& one = report.alternatives[i];
    text += cat(i == 0 ? "\nprogress/s  gradients/s     age  mode\n" : "");
    const auto column = [](double value, size_t width) {
      const std::string number = fixed(value, 2);
      return std::string(width - std::min(width, number.size()), ' ') + number;
    };
    text += cat(column(one.score, 10), column(one.measure.gradients_per_second, 13),
                column(one.measure.mean_age, 8), "  ", to_text(one.mode), "\n");
  }
  return text;
}

Json to_json(const SyncReport& report) {
  const SyncMeasure& measure = report.measure;
  Json tree = {{"gradients_per_second", measure.gradients_per_second},
               {"updates_per_second", measure.updates_per_second},
               {"mean_age", measure.mean_age},
               {"dropped_fraction", measure.dropped_fraction},
               {"applied_fraction", measure.applied_fraction},
               {"updates", measure.updates},
               {"mode", to_text(report.mode)},
               {"replicas", report.replicas},
               {"target_gradients", report.target_gradients},
               {"target_seconds", nullptr}};
  if (report.target_seconds > 0) tree["target_seconds"] = report.target_seconds;
  if (!report.reason.empty()) tree["reason"] = report.reason;
  if (report.tree) {
    tree["tree"] = {{"parents", report.tree->parents},
                    {"seconds", to_milliseconds(report.tree->time) / 1000},
                    {"star_seconds", to_milliseconds(report.tree->star) / 1000}};
  }
  for (const SyncAlternative& one : report.alternatives) {
    tree["alternatives"].push_back({{"mode", to_text(one.mode)},
                                    {"gradients_per_second", one.measure.gradients_per_second},
                                    {"mean_age", one.measure.mean_age},
                                    {"progress_per_second", one.score}});
  }
  return tree;
}

}  // namespace tenuto
