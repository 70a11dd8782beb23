// Mixtures of dead workers, slow workers and slow links: our routing compared with the lower bound
// and with what published systems do, the time of planning, and a check of the bound against random
// steps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapt/mesh_bound.h"
#include "adapt/mixture.h"
#include "adapt/responses.h"
#include "adapt/route.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOurs = "routed";
constexpr const char* kReady = "routed, ready";  // simulated under ready dispatch alone

// Memory, in multiples of the number of stages, and how steps follow one another.
struct Setting {
  std::string name;
  double memory = 1;
  Pace pace = Pace::Barrier;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {{"barrier 1x", 1, Pace::Barrier},
                                           {"barrier 1.5x", 1.5, Pace::Barrier},
                                           {"staggered 2x", 2, Pace::Joint}};
  return all;
}

// The command line.
struct Asked {
  std::vector<MixtureSize> sizes;
  std::vector<std::string> rows;
  int seeds = 30, bounds = 0, rounds = 5;
  bool ours_only = false, json = false, times = true;
};

int32_t slots_of(const MixtureSize& size, const Setting& setting) {
  return static_cast<int32_t>(setting.memory * size.stages + 0.5);
}

// Ratios of times to the bound: mean and largest over the cases that could run, and how many could
// not.
struct Ratios {
  double sum = 0, most = 0;
  int count = 0, refused = 0;

  void add(const std::optional<Duration>& time, Duration bound) {
    if (!time) {
      ++refused;
      return;
    }
    CHECK(*time >= bound, "a step is faster than the lower bound");
    const double ratio = static_cast<double>(time->count()) / static_cast<double>(bound.count());
    sum += ratio;
    most = std::max(most, ratio);
    ++count;
  }
  Json json() const {
    return {{"mean", count > 0 ? Json(sum / count) : Json(nullptr)},
            {"max", count > 0 ? Json(most) : Json(nullptr)},
            {"refused", refused}};
  }
};

// One cell: all columns with the troubles at the same random places.
Json measure_cell(const Asked& asked, const MixtureSize& size, const std::string& row,
                  const Setting& setting) {
  std::vector<Ratios> columns(responses().size());
  Ratios ours, ready;
  int behind = 0;
  double milliseconds = 0, most_milliseconds = 0;
  for (int seed = 0; seed < asked.seeds; ++seed) {
    Random random(mix(41, static_cast<uint64_t>(size.stages), static_cast<uint64_t>(seed),
                      std::hash<std::string>{}(row)));
    Mixture it{size, draw_troubles(random, size, row), slots_of(size, setting), setting.pace};
    const Mesh mesh = mesh_with(size, it.troubles, it.slots, it.pace);
    const Duration start = monotonic_clock().now();
    const Routed routed = search_route(mesh);
    const double took = to_milliseconds(monotonic_clock().now() - start);
    milliseconds += took;
    most_milliseconds = std::max(most_milliseconds, took);
    ready.add(routed.ready.time, routed.bound);
    ours.add(routed.best().time, routed.bound);
    bool beaten = false;
    for (size_t i = 0; i < columns.size() && !asked.ours_only; ++i) {
      const auto time = responses()[i].time(it);
      columns[i].add(time, routed.bound);
      beaten = beaten || (time && *time < routed.best().time);
    }
    behind += beaten;
  }
  Json cell = {{"setting", setting.name}};
  for (size_t i = 0; i < columns.size() && !asked.ours_only; ++i) {
    cell["columns"][responses()[i].name] = columns[i].json();
  }
  cell["columns"][kReady] = ready.json();
  cell["columns"][kOurs] = ours.json();
  cell["behind"] = behind;
  cell["plan_ms"] = {{"mean", milliseconds / asked.seeds}, {"max", most_milliseconds}};
  return cell;
}

Json measure_mixtures(const Asked& asked) {
  Json sizes;
  for (const MixtureSize& size : asked.sizes) {
    Json rows;
    for (const std::string& row : asked.rows) {
      Json cells;
      for (const Setting& setting : settings()) {
        cells.push_back(measure_cell(asked, size, row, setting));
      }
      rows.push_back({{"trouble", row}, {"cells", cells}});
    }
    sizes.push_back({{"stages", size.stages},
                     {"pipelines", size.pipelines},
                     {"micros", size.micros},
                     {"rows", rows}});
  }
  return sizes;
}

// The median time of some rounds, in milliseconds.
template <class Work>
double median_ms(int rounds, Work work) {
  std::vector<double> took;
  for (int round = 0; round < rounds; ++round) {
    const Duration start = monotonic_clock().now();
    work();
    took.push_back(to_milliseconds(monotonic_clock().now() - start));
  }
  std::nth_element(took.begin(), took.begin() + rounds / 2, took.end());
  return took[static_cast<size_t>(rounds / 2)];
}

// The time of planning: three random troubles, 1.5 times the memory, a barrier.
Json measure_times(int rounds) {
  Json rows;
  for (const MixtureSize& size : std::vector<MixtureSize>{
           {4, 2, 8}, {4, 3, 12}, {8, 4, 32}, {16, 8, 64}, {16, 32, 32}, {32, 32, 64}}) {
    Random random(mix(43, static_cast<uint64_t>(size.stages)));
    const auto troubles = draw_troubles(random, size, "triple");
    const Mesh mesh = mesh_with(size, troubles, slots_of(size, settings()[1]), settings()[1].pace);
    const MeshBound bound(mesh);
    Counts counts;
    for (int32_t s = 0; s < mesh.depth(); ++s) counts.push_back(bound.balanced(s));
    const WayCosts costs(mesh);
    const Routing routing = assign_micros(mesh, *cheapest_flow(mesh, costs, counts));
    const Orders orders = global_orders(mesh, routing);
    MeshPlayer player(mesh);
    rows.push_back(
        {{"stages", size.stages},
         {"pipelines", size.pipelines},
         {"micros", size.micros},
         {"bound_ms", median_ms(rounds, [&] { MeshBound(mesh).least(); })},
         {"flow_ms",
          median_ms(rounds, [&] { assign_micros(mesh, *cheapest_flow(mesh, costs, counts)); })},
         {"play_ms", median_ms(rounds, [&] { player.time(routing, orders); })},
         {"plan_ms", median_ms(rounds, [&] { search_route(mesh); })}});
  }
  return rows;
}

// The least ratio of time to bound over random steps of random meshes.
Json measure_bound(int count) {
  double least = 1e9;
  for (int i = 0; i < count; ++i) {
    Random random(mix(47, static_cast<uint64_t>(i)));
    const Mesh mesh = random_mesh(random, 6, 4, 6);
    const Routing routing = random_routing(random, mesh);
    MeshPlayer player(mesh);
    const auto time = i % 2 == 0
                          ? player.time(routing, global_orders(mesh, routing))
                          : player.time(routing, player.as_they_come(routing, {1, 2})->lists);
    CHECK(time.has_value(), "a step stands still");
    const Duration bound = MeshBound(mesh).least();
    CHECK(*time >= bound, cat("step ", i, " is faster than the lower bound"));
    least = std::min(least, static_cast<double>(time->count()) /
                                static_cast<double>(std::max<int64_t>(1, bound.count())));
  }
  return {{"steps", count}, {"least_ratio", least}};
}

std::string cell_text(const Json& cells, const std::string& column, const char* which,
                      int decimals) {
  std::string text;
  for (const Json& cell : cells) {
    const Json& value = cell["columns"][column][which];
    text += (text.empty() ? "" : " / ") +
            (value.is_null() ? std::string("-") : fixed(value.get<double>(), decimals));
  }
  return text;
}

void print_size(const Json& size, const Asked& asked) {
  std::printf("\n(%d,%d,%d): mean time over the lower bound", size["stages"].get<int>(),
              size["pipelines"].get<int>(), size["micros"].get<int>());
  for (const Setting& setting : settings()) std::printf(" / %s", setting.name.c_str());
  std::printf("\n| trouble |");
  std::vector<std::string> names;
  for (const Response& response : responses()) {
    if (!asked.ours_only) names.push_back(response.name);
  }
  for (const std::string& name : names) std::printf(" %s |", name.c_str());
  std::printf(" %s | %s | its max | behind | plan ms |\n|", kReady, kOurs);
  for (size_t i = 0; i < names.size() + 6; ++i) std::printf("---|");
  std::printf("\n");
  for (const Json& row : size["rows"]) {
    const Json& cells = row["cells"];
    std::printf("| %s |", row["trouble"].get<std::string>().c_str());
    for (const std::string& name : names) {
      std::printf(" %s |", cell_text(cells, name, "mean", 2).c_str());
    }
    int behind = 0;
    std::string took;
    for (const Json& cell : cells) {
      behind += cell["behind"].get<int>();
      took += (took.empty() ? "" : " / ") + fixed(cell["plan_ms"]["mean"].get<double>(), 1);
    }
    std::printf(" %s | %s | %s | %d | %s |\n", cell_text(cells, kReady, "mean", 3).c_str(),
                cell_text(cells, kOurs, "mean", 3).c_str(),
                cell_text(cells, kOurs, "max", 2).c_str(), behind, took.c_str());
  }
}

void print(const Json& result, const Asked& asked) {
  for (const Json& size : result["mixtures"]) print_size(size, asked);
  if (result.contains("times")) {
    std::printf("\n| size | bound ms | flow and dealing | one step | whole plan |\n|");
    std::printf("---|---|---|---|---|\n");
  }
  for (const Json& row : result.value("times", Json::array())) {
    std::printf("| (%d,%d,%d) | %.2f | %.2f | %.2f | %.1f |\n", row["stages"].get<int>(),
                row["pipelines"].get<int>(), row["micros"].get<int>(),
                row["bound_ms"].get<double>(), row["flow_ms"].get<double>(),
                row["play_ms"].get<double>(), row["plan_ms"].get<double>());
  }
  if (result.contains("bound")) {
    std::printf("\nbound: %d random steps, least time over the bound %.4f\n",
                result["bound"]["steps"].get<int>(), result["bound"]["least_ratio"].get<double>());
  }
}

int refuse(const std::string& argument) {
  std::fprintf(stderr,
               "mixtures_bench: '%s': expected [--json] [--seeds N] [--size S,D,M]... "
               "[--trouble NAME]... [--ours] [--no-times] [--bound STEPS]\n",
               argument.c_str());
  return argument == "--help" ? 0 : 2;
}

// Returns the argument that could not be read; empty = none.
std::string read(int count, char** arguments, Asked& asked) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const char* next = i + 1 < count ? arguments[i + 1] : "";
    if (argument == "--json") {
      asked.json = true;
    } else if (argument == "--ours") {
      asked.ours_only = true;
    } else if (argument == "--no-times") {
      asked.times = false;
    } else if (argument == "--seeds" && std::atoi(next) > 0) {
      asked.seeds = std::atoi(next), ++i;
    } else if (argument == "--bound" && std::atoi(next) > 0) {
      asked.bounds = std::atoi(next), ++i;
    } else if (argument == "--trouble" && *next != 0) {
      asked.rows.push_back(next), ++i;
    } else if (argument == "--size" && read_size(next)) {
      asked.sizes.push_back(*read_size(next)), ++i;
    } else {
      return argument;
    }
  }
  return {};
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  Asked asked;
  const std::string unread = read(count, arguments, asked);
  if (!unread.empty()) return refuse(unread);
  if (asked.sizes.empty()) asked.sizes = {{4, 2, 8}, {4, 3, 12}, {8, 4, 32}, {16, 8, 64}};
  if (asked.rows.empty()) {
    for (const auto& [name, kind] : trouble_kinds()) asked.rows.push_back(name);
    for (const char* name : {"pair", "triple", "six"}) asked.rows.push_back(name);
  }
  Json result = {{"mixtures", measure_mixtures(asked)}};
  if (asked.times) result["times"] = measure_times(asked.rounds);
  if (asked.bounds > 0) result["bound"] = measure_bound(asked.bounds);
  if (asked.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    print(result, asked);
  }
  return 0;
}
