// A week of clusters of many sizes: how long it takes to simulate, and what comes out.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "outlook/process.h"
#include "outlook/report.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

struct Size {
  int32_t stages, pipelines, micros;
};
constexpr Size kSizes[] = {{8, 16, 32}, {16, 64, 64}, {32, 128, 64}, {32, 512, 64}};

Json row_of(const Size& size, double days, uint64_t seed) {
  outlook::Question question;
  question.shape = {size.stages, size.pipelines};
  question.step.micros = size.micros;
  question.step.link = from_milliseconds(1);
  question.step.cross = from_milliseconds(3);
  question.step.spare = size.stages / 2;
  question.step.layers = 4;
  question.week.length = from_milliseconds(days * 86400e3);
  question.troubles = draw_troubles(question.shape, {}, question.week.length, seed);
  const Duration begin = monotonic_clock().now();
  const outlook::Report report = outlook::report_of(question);
  const double seconds = to_milliseconds(monotonic_clock().now() - begin) / 1e3;
  Json row = {{"workers", question.shape.workers()},
              {"troubles", question.troubles.size()},
              {"steps", report.rows.front().result.steps},
              {"seconds", seconds}};
  for (const outlook::Row& of : report.rows) row["shares"][of.name] = of.share;
  return row;
}

void print(const Json& rows) {
  std::printf("| workers | troubles | steps | seconds, all rows |");
  for (const auto& share : rows[0]["shares"].items()) std::printf(" %s |", share.key().c_str());
  std::printf("\n|---|---|---|---|");
  for (size_t i = 0; i < rows[0]["shares"].size(); ++i) std::printf("---|");
  std::printf("\n");
  for (const Json& row : rows) {
    std::printf("| %lld | %lld | %lld | %.2f |",
                static_cast<long long>(row["workers"].get<int64_t>()),
                static_cast<long long>(row["troubles"].get<int64_t>()),
                static_cast<long long>(row["steps"].get<int64_t>()), row["seconds"].get<double>());
    for (const auto& share : row["shares"]) std::printf(" %.4f |", share.get<double>());
    std::printf("\n");
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  double days = 7;
  uint64_t seed = 0;
  bool json = false;
  CLI::App app("A week of clusters with deaths, slow workers and slow links");
  app.add_option("--days", days, "of each cluster (7)")->check(CLI::Range(0.01, 3650.0));
  app.add_option("--seed", seed, "of the troubles (0)");
  app.add_flag("--json", json, "one JSON array");
  CLI11_PARSE(app, count, arguments);
  Json rows = Json::array();
  for (const Size& size : kSizes) rows.push_back(row_of(size, days, seed));
  if (json) {
    std::printf("%s\n", rows.dump().c_str());
  } else {
    print(rows);
  }
  return 0;
}
