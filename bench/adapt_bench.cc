// The quality of the search for orders: gaps to the bound on random pipelines, compared with
// published adaptations and proved optimal orders; how much memory is needed; orders under varying
// delays; the time of a search.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapt/exact.h"
#include "adapt/jitter.h"
#include "adapt/order.h"
#include "adapt/published.h"
#include "adapt/random_line.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kOp = std::chrono::milliseconds(10);

// Mean, median and largest of some values.
Json spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  return {{"mean", sum / static_cast<double>(values.size())},
          {"median", values[values.size() / 2]},
          {"max", values.back()}};
}

double percent_above(Duration time, Duration bound) {
  return 100 * (static_cast<double>(time.count()) / static_cast<double>(bound.count()) - 1);
}

struct Timed {
  OrderSearch found;
  double milliseconds = 0;
};

Timed search(const Line& line) {
  const Duration start = monotonic_clock().now();
  auto found = search_order(line);
  const double took = to_milliseconds(monotonic_clock().now() - start);
  CHECK(found.has_value(), "memory for a micro-batch");
  return {std::move(*found), took};
}

Line draw(const LineKind& kind, uint64_t seed) {
  const auto shape = static_cast<uint64_t>(kind.stages * 1000 + kind.micros * 10 + kind.limited);
  Random random(mix(2, shape, seed));
  return random_line(random, kind);
}

Json json_of(const LineKind& kind) {
  return {{"stages", kind.stages}, {"micros", kind.micros}, {"limited", kind.limited}};
}

// How often a published order is faster or slower than the search's, and by how much on average.
struct Score {
  int faster = 0, equal = 0, slower = 0, refused = 0;
  double above = 0;  // sum of percent above the search's
};

// Random lines of every kind: gaps to the bound, and every published order on the same lines.
Json measure_kinds(int instances) {
  Json rows;
  std::map<std::string, Score> scores;
  int faster_published = 0, lines = 0;
  const int each = (instances + static_cast<int>(line_kinds().size()) - 1) /
                   static_cast<int>(line_kinds().size());
  for (const LineKind& kind : line_kinds()) {
    std::vector<double> listed, ready, published, plain, took;
    for (int i = 0; i < each; ++i, ++lines) {
      const Line line = draw(kind, static_cast<uint64_t>(i));
      const auto [found, milliseconds] = search(line);
      took.push_back(milliseconds);
      listed.push_back(percent_above(found.listed.makespan, found.bound));
      ready.push_back(percent_above(found.ready.makespan, found.bound));
      const std::vector<Published> orders = published_orders(line);
      const Duration fast = fastest(line, orders);
      published.push_back(percent_above(fast, found.bound));
      faster_published += fast < found.listed.makespan;
      for (const Published& order : orders) {
        Score& score = scores[order.name];
        if (!order.sequences) {
          ++score.refused;
          continue;
        }
        const Duration time = fastest(line, {order});
        ++(time < found.listed.makespan    ? score.faster
           : time == found.listed.makespan ? score.equal
                                           : score.slower);
        score.above += percent_above(time, found.listed.makespan);
        if (order.name == "priority") plain.push_back(percent_above(time, found.bound));
      }
    }
    Json row = json_of(kind);
    row["listed"] = spread(listed);
    row["ready"] = spread(ready);
    row["published"] = spread(published);
    row["priority"] = spread(plain);
    row["search_ms"] = spread(took);
    rows.push_back(row);
  }
  Json against;
  for (const auto& [name, score] : scores) {
    const int ran = score.faster + score.equal + score.slower;
    against.push_back({{"order", name},
                       {"faster", score.faster},
                       {"equal", score.equal},
                       {"slower", score.slower},
                       {"refused", score.refused},
                       {"mean_percent_above", score.above / std::max(1, ran)}});
  }
  return {{"lines", lines},
          {"published_faster", faster_published},
          {"kinds", rows},
          {"against", against}};
}

// Tiny lines, whose optimal order is found exactly.
Json measure_tiny(int each) {
  Json rows;
  for (const bool limited : {false, true}) {
    int lines = 0, best = 0, best_published = 0, tight = 0;
    double worst = 0, worst_published = 0;
    for (const LineKind& kind : tiny_kinds(limited)) {
      for (int i = 0; i < each; ++i, ++lines) {
        const Line line = draw(kind, static_cast<uint64_t>(i));
        const OrderSearch found = search(line).found;
        const Duration fast = fastest(line, published_orders(line));
        const auto exact = exact_makespan(line, std::min(fast, found.listed.makespan));
        CHECK(exact.has_value(), "tiny lines are solved");
        CHECK(exact->makespan >= found.bound, "the bound is below every order");
        best += found.listed.makespan == exact->makespan;
        best_published += fast == exact->makespan;
        tight += found.bound == exact->makespan;
        worst = std::max(worst, percent_above(found.listed.makespan, exact->makespan));
        worst_published = std::max(worst_published, percent_above(fast, exact->makespan));
      }
    }
    rows.push_back({{"limited", limited},
                    {"lines", lines},
                    {"best", best},
                    {"worst_percent", worst},
                    {"published_best", best_published},
                    {"published_worst_percent", worst_published},
                    {"bound_tight", tight}});
  }
  return rows;
}

// The cost of little memory against unlimited memory: eight equal stages and one slow link; the
// worst over all links and over 24 and 48 micro-batches.
Json measure_memory_limits() {
  Json rows;
  for (const int32_t memory : {8, 9, 10, 12, 16, 24}) {
    Json row = {{"memory", memory}};
    for (const int32_t delay : {0, 1, 2, 4}) {
      double listed = 0, ready = 0;
      for (const int32_t micros : {24, 48}) {
        for (int32_t link = 0; link < 7; ++link) {
          Line line = equal_line(8, micros, kOp);
          delay_link(line, link, delay * kOp);
          const Duration bound = search(line).found.bound;
          limit_memory(line, memory);
          const OrderSearch found = search(line).found;
          listed = std::max(listed, percent_above(found.listed.makespan, bound));
          ready = std::max(ready, percent_above(found.ready.makespan, bound));
        }
      }
      row["costs"].push_back({{"delay", delay}, {"listed", listed}, {"ready", ready}});
    }
    rows.push_back(row);
  }
  return rows;
}

Json measure_jitter() {
  Json rows;
  for (const Jitter& jitter : jitters()) {
    const JitterTimes times = run_jitter(jitter, 20);
    rows.push_back({{"micros", jitter.micros},
                    {"memory", jitter.memory},
                    {"mean", jitter.mean},
                    {"deviation", jitter.deviation},
                    {"zero_bubble", times.fixed_zero_bubble},
                    {"for_mean", times.fixed_for_mean},
                    {"for_mean_and_one", times.fixed_for_mean_and_one},
                    {"ready", times.ready},
                    {"ready_planned", times.ready_planned},
                    {"ready_above_fixed_percent", 100 * times.above_fixed(times.ready)}});
  }
  return rows;
}

// The time of a search.
Json measure_times(int rounds) {
  Json rows;
  for (const LineKind kind : {LineKind{8, 32, false}, LineKind{8, 32, true},
                              LineKind{64, 512, false}, LineKind{64, 512, true}}) {
    std::vector<double> took;
    double above = 0;
    const int lines = kind.stages > 8 ? std::max(1, rounds / 3) : rounds;
    for (int i = 0; i < lines; ++i) {
      const auto [found, milliseconds] = search(draw(kind, static_cast<uint64_t>(1000 + i)));
      took.push_back(milliseconds);
      above += percent_above(found.listed.makespan, found.bound) / lines;
    }
    Json row = json_of(kind);
    row["lines"] = lines;
    row["search_ms"] = spread(took);
    row["percent_above_bound"] = above;
    rows.push_back(row);
  }
  return rows;
}

double number(const Json& json, const char* group, const char* name) {
  return json[group][name].get<double>();
}

void print_kinds(const Json& result) {
  std::printf(
      "%% above the bound, mean / max            listed        ready    published"
      "     priority   search ms median / max\n");
  for (const Json& row : result["kinds"]) {
    const auto name = cat(row["stages"].get<int>(), " stages x ", row["micros"].get<int>(),
                          row["limited"].get<bool>() ? ", little memory" : "");
    std::printf("%-36s", name.c_str());
    for (const char* group : {"listed", "ready", "published", "priority"}) {
      std::printf(" %5.2f / %4.1f", number(row, group, "mean"), number(row, group, "max"));
    }
    std::printf(" %8.1f / %.1f\n", number(row, "search_ms", "median"),
                number(row, "search_ms", "max"));
  }
  std::printf("\n%d lines; a published order was faster than the search's in %d\n",
              result["lines"].get<int>(), result["published_faster"].get<int>());
  std::printf("%-24s faster  equal slower refused  mean %% above the search's\n", "order");
  for (const Json& row : result["against"]) {
    std::printf("%-24s %6d %6d %6d %7d %9.2f\n", row["order"].get<std::string>().c_str(),
                row["faster"].get<int>(), row["equal"].get<int>(), row["slower"].get<int>(),
                row["refused"].get<int>(), row["mean_percent_above"].get<double>());
  }
}

void print(const Json& result) {
  print_kinds(result["random"]);
  std::printf("\n");
  for (const Json& row : result["tiny"]) {
    std::printf(
        "tiny lines%s: %d of %d proved best (worst %.2f %% above); published %d (%.2f %%);"
        " bound tight in %d\n",
        row["limited"].get<bool>() ? ", little memory" : "", row["best"].get<int>(),
        row["lines"].get<int>(), row["worst_percent"].get<double>(),
        row["published_best"].get<int>(), row["published_worst_percent"].get<double>(),
        row["bound_tight"].get<int>());
  }
  std::printf(
      "\nmemory limit in micro-batches, 8 stages: %% above the bound with memory for all, worst"
      " (ready); delay 0, 1, 2, 4 ops\n");
  for (const Json& row : result["limited"]) {
    std::printf("%4d", row["memory"].get<int>());
    for (const Json& cost : row["costs"]) {
      std::printf("   %5.2f (%5.2f)", cost["listed"].get<double>(), cost["ready"].get<double>());
    }
    std::printf("\n");
  }
  std::printf(
      "\ndelays that vary: micros, memory, mean, deviation: zb-h2, fixed for the mean, for"
      " the mean and a deviation, ready, with planned limits\n");
  for (const Json& row : result["jitter"]) {
    std::printf("%4d %4d %4.1f %4.1f  %.3f %.3f %.3f %.3f %.3f  ready %+.1f %%\n",
                row["micros"].get<int>(), row["memory"].get<int>(), row["mean"].get<double>(),
                row["deviation"].get<double>(), row["zero_bubble"].get<double>(),
                row["for_mean"].get<double>(), row["for_mean_and_one"].get<double>(),
                row["ready"].get<double>(), row["ready_planned"].get<double>(),
                row["ready_above_fixed_percent"].get<double>());
  }
  std::printf("\n");
  for (const Json& row : result["times"]) {
    std::printf(
        "search of %d stages x %d%s: %.1f ms median of %d, %.1f ms at most; %.2f %% above"
        " the bound\n",
        row["stages"].get<int>(), row["micros"].get<int>(),
        row["limited"].get<bool>() ? ", little memory" : "", number(row, "search_ms", "median"),
        row["lines"].get<int>(), number(row, "search_ms", "max"),
        row["percent_above_bound"].get<double>());
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  bool json = false;
  int rounds = 9, instances = 2000;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const int value = i + 1 < count ? std::atoi(arguments[i + 1]) : 0;
    if (argument == "--json") {
      json = true;
    } else if (argument == "--rounds" && value > 0) {
      rounds = value, ++i;
    } else if (argument == "--instances" && value > 0) {
      instances = value, ++i;
    } else {
      std::fprintf(stderr, "adapt_bench: '%s': expected [--json] [--rounds N] [--instances N]\n",
                   argument.c_str());
      return argument == "--help" ? 0 : 2;
    }
  }
  const Json result = {{"random", measure_kinds(instances)},
                       {"tiny", measure_tiny(std::max(1, instances / 40))},
                       {"limited", measure_memory_limits()},
                       {"jitter", measure_jitter()},
                       {"times", measure_times(rounds)}};
  if (json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    print(result);
  }
  return 0;
}
