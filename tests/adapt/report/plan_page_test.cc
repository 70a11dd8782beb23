// The page of a plan as text: what it must contain, what it must not, and how large it gets.
// tests/app/page_test.py opens it in a browser.
#include "adapt/report/plan_page.h"

#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "adapt/layout/layout_bound.h"
#include "adapt/report/map_layout.h"
#include "adapt/report/topology.h"
#include "adapt/report/training_plan.h"
#include "base/text.h"
#include "ir/golden.h"
#include "world/cluster_file.h"

namespace tenuto {
namespace {

LayerChain chain_of(size_t layers, const std::string& name) {
  std::string text;
  for (size_t i = 0; i < layers; ++i) text += cat("1 2 1000000 4000000 ", name, i, "\n");
  auto chain = chain_from_text(text, "test");
  EXPECT_TRUE(chain.ok());
  return std::move(chain).value();
}

Cluster cluster_of(const std::string& json) {
  auto cluster = cluster_from_json(json, "test");
  EXPECT_TRUE(cluster.ok()) << cluster.error().message;
  return std::move(cluster).value();
}

// A report about this layout, or about the one that the search finds if it is empty.
PlanReport report_of(LayerChain chain, const Cluster& cluster, int32_t micros,
                     const Layout& layout = {}) {
  LayoutSettings settings;
  settings.micros = micros;
  const LayoutProblem problem(chain.model, cluster, settings);
  LayoutSearch search;
  if (layout.empty()) {
    auto found = search_layout(problem);
    EXPECT_TRUE(found.ok());
    search = std::move(found).value();
  } else {
    search.best.layout = layout;
    search.best.loads = row_split_loads(problem, layout);
    search.best.schedule = schedule_blocks(search.best.loads, BlockPolicy::OneForwardOneBackward);
    search.lower_bound = least_makespan(search.best.loads);
    search.priced = 1;
  }
  PlanReport report{find_planner("tenuto").value(), std::move(chain), problem, std::move(search)};
  report.cluster = std::make_shared<Cluster>(cluster);
  return report;
}

void add_training(PlanReport& report, bool pipelines = false) {
  InTurnSettings settings;
  settings.layout = report.problem.settings();
  settings.pipelines = pipelines;
  Watch watch;
  auto plan = training_plan(report.chain, *report.cluster, settings, report.search, watch);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  (pipelines ? report.torch : report.training) = std::move(plan).value();
}

std::string page_of(const PlanReport& report) {
  std::ostringstream out;
  write_plan_page(out, report);
  return out.str();
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t i = text.find(word); i != std::string::npos; i = text.find(word, i + 1)) ++count;
  return count;
}

// Checks that all elements are closed in the right order, and that `<` and `&` are escaped.
void expect_well_formed(const std::string& page) {
  std::vector<std::string> open = {"html"};  // opened before the body
  const size_t body = page.find("<body>");
  ASSERT_NE(body, std::string::npos);
  const std::regex tag("<(/?)([a-z0-9]+)((?: [a-zA-Z-]+=\"[^\"<]*\")*)(/?)>");
  std::sregex_iterator it(page.begin() + static_cast<std::ptrdiff_t>(body), page.end(), tag);
  size_t tags = 0;
  for (; it != std::sregex_iterator(); ++it, ++tags) {
    if ((*it)[4] == "/") continue;
    if ((*it)[1] != "/") {
      open.push_back((*it)[2]);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(tags, count_of(page.substr(body), "<"));
  for (size_t i = page.find('&'); i != std::string::npos; i = page.find('&', i + 1)) {
    EXPECT_EQ(page.find_first_of("; <", i), page.find(';', i));
  }
}

constexpr char kTwoNodes[] =
    R"({"devices": 4, "bandwidth_gbps": {"inside": 25, "between": 3, "per_node": 2},
        "latency_ms": {"inside": 0.01, "between": 0.1}, "memory_bytes": 8e9,
        "speed": [1, 1, 0.5, 1]})";

Stage stage_of(int32_t first, int32_t end, std::vector<int32_t> holders) {
  Stage stage;
  stage.layer_first = first;
  stage.layer_end = end;
  for (const int32_t holder : holders) stage.holders.push_back({holder});
  return stage;
}

// A slow device, an idle one, a replicated stage, a link between nodes, and the plan for training.
TEST(PlanPage, ASmallCase) {
  PlanReport report = report_of(chain_of(6, "layer "), cluster_of(kTwoNodes), 4,
                                {stage_of(0, 4, {0, 1}), stage_of(4, 6, {2})});
  add_training(report);
  report.training_file = "plan.json";
  const std::string page = page_of(report);
  expect_golden("adapt/golden/plan.html", page);
  expect_well_formed(page);
  for (const char* word : {"idle", "x0.50", "bottleneck", "3 GB/s between places", "inside 25 GB/s",
                           "reduction", "Whole micro-batches in turn", "plan.json"}) {
    EXPECT_NE(page.find(word), std::string::npos) << word;
  }
  // There are two pictures, and each has a title with its own id.
  EXPECT_EQ(count_of(page, "role=\"img\""), 2u);
  EXPECT_EQ(count_of(page, "id=\"split-title\""), 1u);
  EXPECT_EQ(count_of(page, "id=\"turn-title\""), 1u);
}

TEST(PlanPage, NothingIsFetchedAndNothingRuns) {
  const std::string page = page_of(report_of(chain_of(4, "layer "), cluster_of(kTwoNodes), 4));
  for (const char* word : {"http:", "https:", "src=", "href=", "url(http", "import", "<script"}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
  EXPECT_NE(page.find("default-src 'none'; style-src 'unsafe-inline'\""), std::string::npos);
}

// Names of layers and files appear as text, even if they contain HTML or control characters.
TEST(PlanPage, HostileNames) {
  LayerChain chain = chain_of(2, "x");
  chain.names = {"<script>alert(1)</script>", "\"'&\x01\x1b[2J\x7f]]>--><!--"};
  PlanReport report = report_of(std::move(chain), cluster_of(kTwoNodes), 4,
                                {stage_of(0, 1, {0}), stage_of(1, 2, {1})});
  add_training(report);
  report.training_file = "</table><script>\x02";
  const std::string page = page_of(report);
  expect_well_formed(page);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(page.find("&lt;/table&gt;&lt;script&gt;?"), std::string::npos);
  for (const char letter : page) {
    ASSERT_TRUE(letter == '\n' || (static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f));
  }
}

// Each device of the cluster is drawn once in each picture; here no block has more than 24.
TEST(PlanPage, EveryDeviceIsDrawn) {
  for (const int32_t devices : {2, 8, 16, 64}) {
    const PlanReport report = report_of(
        chain_of(40, "layer "),
        cluster_of(cat("{\"devices\": ", devices,
                       ", \"bandwidth_gbps\": {\"inside\": 50, \"between\": 6, \"per_node\": 8}}")),
        64);
    const std::string page = page_of(report);
    expect_well_formed(page);
    EXPECT_EQ(count_of(page, "<title>device "), static_cast<size_t>(devices));
    const size_t links = report.search.best.layout.size() - 1;
    EXPECT_EQ(count_of(page, "<title>link "), links);
  }
}

// A page stays small for very many devices, places and stages.
TEST(PlanPage, LargeClusters) {
  constexpr int32_t kDevices = 4'096;
  const Cluster nodes =
      cluster_of(cat("{\"devices\": ", kDevices,
                     ", \"bandwidth_gbps\": {\"inside\": 50, \"between\": 6, \"per_node\": 8}}"));
  Layout single, wide;
  for (int32_t n = 0; n < kDevices; ++n) single.push_back(stage_of(n, n + 1, {n}));
  for (int32_t n = 0; n < 8; ++n) {
    std::vector<int32_t> holders;
    for (int32_t i = 0; i < kDevices / 8; ++i) holders.push_back(n * kDevices / 8 + i);
    wide.push_back(stage_of(n * 512, (n + 1) * 512, holders));
  }
  for (const Layout& layout : {single, wide}) {
    const std::string page = page_of(report_of(chain_of(kDevices, "layer "), nodes, 8, layout));
    std::cout << layout.size() << " stages on 4,096 devices: " << page.size() << " bytes\n";
    EXPECT_LT(page.size(), 1'000'000u);
    EXPECT_GT(page.size(), 10'000u);
    expect_well_formed(page);
    EXPECT_NE(page.find("4096 devices in 512 places, 6 GB/s between places"), std::string::npos);
  }
}

// Interleaved stages: each device has several stages, but is drawn once.
TEST(PlanPage, SeveralStagesOnADevice) {
  PlanReport report = report_of(chain_of(8, "layer "), cluster_of(kTwoNodes), 4);
  add_training(report);
  add_training(report, true);
  InTurnPlan& plan = *report.training;
  plan.plan.stages = {stage_of(0, 2, {0, 1}), stage_of(2, 4, {2, 3}), stage_of(4, 6, {0, 1}),
                      stage_of(6, 8, {2, 3})};
  const Mapping mapping = in_turn_mapping(report, plan);
  const Topology topology(report.problem, *report.cluster);
  const MapLayout map = map_layout(report, topology, mapping);
  ASSERT_EQ(map.regions.size(), 2u);
  ASSERT_EQ(map.regions[0].blocks.size(), 1u);
  EXPECT_EQ(map.regions[0].blocks[0].stages, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(map.regions[0].blocks[0].devices, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(map.arrows.size(), 3u);
  const std::string page = page_of(report);
  expect_well_formed(page);
  EXPECT_NE(page.find("The plan for PyTorch"), std::string::npos);
}

// An arrow joins two blocks whose devices send each other messages.
TEST(MapLayout, ArrowsFollowTheMessages) {
  PlanReport report =
      report_of(chain_of(8, "layer "), cluster_of(R"({"devices": 4, "bandwidth_gbps":
                     [[0, 9, 1, 1], [9, 0, 1, 1], [1, 1, 0, 9], [1, 1, 9, 0]]})"),
                8, {stage_of(0, 4, {0, 2}), stage_of(4, 8, {1, 3})});
  const Topology topology(report.problem, *report.cluster);
  // With split rows, each device of a stage sends to each device of the next one, so the slow link
  // determines the time.
  const MapArrow split = map_layout(report, topology, rows_split_mapping(report)).arrows.at(0);
  EXPECT_NE(split.from.region, split.to.region);
  // Two equal pipelines send no messages over the slow link.
  add_training(report, true);
  const Mapping mapping = in_turn_mapping(report, *report.torch);
  const std::vector<MapArrow> arrows = map_layout(report, topology, mapping).arrows;
  EXPECT_EQ(arrows.size(), mapping.links.size());
  for (const MapArrow& turn : arrows) {
    const MappedLink& link = mapping.links[turn.link];
    EXPECT_EQ(topology.place_of(link.from), turn.from.region);
    EXPECT_EQ(topology.place_of(link.to), turn.to.region);
    EXPECT_EQ(turn.from.region, turn.to.region);
  }
}

// Blocks do not overlap, stand within their place, and arrows stay within the picture.
TEST(MapLayout, NothingOverlaps) {
  const PlanReport report =
      report_of(chain_of(40, "layer "),
                cluster_of("{\"devices\": 64, \"bandwidth_gbps\": {\"inside\": 50, \"between\": 6, "
                           "\"per_node\": 8}}"),
                64);
  const Topology topology(report.problem, *report.cluster);
  const MapLayout map = map_layout(report, topology, rows_split_mapping(report));
  const auto apart = [](const MapBox& one, const MapBox& other) {
    return one.right() <= other.x || other.right() <= one.x || one.bottom() <= other.y ||
           other.bottom() <= one.y;
  };
  std::vector<MapBox> blocks;
  for (const MapRegion& region : map.regions) {
    for (const MapBlock& block : region.blocks) {
      EXPECT_GE(block.box.x, region.box.x);
      EXPECT_LE(block.box.right(), region.box.right());
      EXPECT_LE(block.box.bottom(), region.box.bottom());
      EXPECT_LE(block.cells.bottom(), block.box.bottom());
      for (const MapBox& other : blocks) EXPECT_TRUE(apart(block.box, other));
      blocks.push_back(block.box);
    }
    for (const MapRegion& other : map.regions) {
      EXPECT_TRUE(&region == &other || apart(region.box, other.box));
    }
  }
  ASSERT_FALSE(map.arrows.empty());
  for (const MapArrow& arrow : map.arrows) {
    for (const auto& [x, y] : arrow.points) {
      EXPECT_TRUE(x >= 0 && x <= map.width && y >= 0 && y <= map.height) << x << " " << y;
    }
  }
}

TEST(Topology, FindsPlaces) {
  const auto places = [](const std::string& json) {
    const Cluster cluster = cluster_of(json);
    const LayoutProblem problem(chain_of(2, "x").model, cluster, {});
    const Topology topology(problem, cluster);
    std::string text;
    for (size_t p = 0; p < topology.place_count(); ++p) {
      text += cat(ranges_text(topology.devices(p)), ": ", rate_text(topology.inside(p)), "; ");
    }
    return text + rate_text(topology.between_all());
  };
  EXPECT_EQ(places(kTwoNodes), "0-1: 25 GB/s; 2-3: 25 GB/s; 3 GB/s");
  EXPECT_EQ(places(R"({"devices": 4, "bandwidth_gbps":
                       [[0, 3, 25, 3], [3, 0, 2, 20], [25, 3, 0, 3], [3, 25, 3, 0]]})"),
            "0,2: 25 GB/s; 1,3: 20 GB/s; 2 to 3 GB/s");
  EXPECT_EQ(places(R"({"devices": 3, "bandwidth_gbps": [[0, 5, 5], [5, 0, 5], [5, 5, 0]]})"),
            "0-2: 5 GB/s; no link");
  EXPECT_EQ(places(R"({"devices": 3, "place": [1, 0, 1], "bandwidth_gbps": [[7, 1], [1, 9]]})"),
            "1: no link; 0,2: 9 GB/s; 1 GB/s");
  EXPECT_EQ(places(R"({"devices": 1, "bandwidth_gbps": [[0]]})"), "0: no link; no link");
}

// A cluster file with more nodes than there may be classes is read with a rate for each link within
// a node.
TEST(Topology, VeryManyNodes) {
  const Cluster cluster = cluster_of(
      R"({"devices": 8200, "bandwidth_gbps": {"inside": 25, "between": 3, "per_node": 2}})");
  ASSERT_FALSE(cluster.exceptions.empty());
  const LayoutProblem problem(chain_of(2, "x").model, cluster, {});
  const Topology topology(problem, cluster);
  EXPECT_EQ(topology.place_count(), 4'100u);
  EXPECT_EQ(topology.devices(1), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(rate_text(topology.inside(4'099)), "25 GB/s");
  EXPECT_EQ(rate_text(topology.between_all()), "3 GB/s");
}

}  // namespace
}  // namespace tenuto
