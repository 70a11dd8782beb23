// How fast a server shard takes updates, beside a copy of memory. Each row is a range of parameters
// and an optimizer, each group of columns a number of gradients in the update. A rate is what is
// read and written per second: gradients are read; parameters and moments are read and written.
// The copy is a memcpy that reads and writes as many bytes together, 1 GiB at most. Both take
// turns; figures are medians of the processor time of one thread, because the machine may be busy.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/quantile.h"
#include "bench/processor_time.h"
#include "parameter_server/mass_store.h"

namespace tenuto::servers {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastRatio = 0.8;
constexpr int64_t kMostCopied = 512 << 20;
constexpr int64_t kLeastMeasured = 64 << 20;  // bytes; less is done several times in a measurement
constexpr int32_t kGradients[] = {1, 2, 4, 8};
constexpr TrialOptimizer kOptimizers[] = {TrialOptimizer::Sgd, TrialOptimizer::Momentum,
                                          TrialOptimizer::AdamW};

struct Asked {
  std::vector<int64_t> mebibytes = {1, 16, 64, 256};
  int rounds = 9;
  bool json = false;
};

struct Cell {
  double apply = 0, copy = 0;  // GB/s, read and written
  double ratio() const { return apply / copy; }
};

int32_t moments_of(TrialOptimizer optimizer) {
  return optimizer == TrialOptimizer::Sgd ? 0 : optimizer == TrialOptimizer::AdamW ? 2 : 1;
}

// A gradient of small numbers, another one for each `number`.
Payload gradient_of(int64_t elements, int32_t number) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto step = static_cast<int32_t>(i % 1021);
    values[i] = 0.001f * static_cast<float>(step - 510 + number);
  }
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

DecidedUpdate update_of(int32_t gradients) {
  DecidedUpdate update;
  for (int32_t i = 0; i < gradients; ++i) {
    const Offer offer{{i}, {0}, {0}, {1}};
    update.update.members.push_back(offer);
    update.works.push_back({i + 1, offer, 1, {}});
  }
  return update;
}

template <class Work>
Duration measure(int64_t times, Work work) {
  const double begin = processor_milliseconds();
  for (int64_t i = 0; i < times; ++i) work();
  return from_milliseconds(processor_milliseconds() - begin);
}

// What the copies are made with.
struct Buffers {
  std::vector<std::byte> from, to;
};

Cell run_cell(MassStore& store, std::span<const Payload> gradients, int32_t moments,
              Buffers& buffers, int rounds) {
  const DecidedUpdate update = update_of(static_cast<int32_t>(gradients.size()));
  const int64_t range = size_of(gradients.front()).count;
  const int64_t moved = range * (std::ssize(gradients) + 2 * (1 + moments));
  const int64_t copied = std::min(moved / 2, kMostCopied);
  const int64_t times = std::max<int64_t>(1, kLeastMeasured / moved);
  std::vector<Duration> applies, copies;
  for (int round = -1; round < rounds; ++round) {
    const Duration copy = measure(times, [&] {
      std::memcpy(buffers.to.data(), buffers.from.data(), static_cast<size_t>(copied));
      std::swap(buffers.from, buffers.to);
    });
    const Duration apply = measure(times, [&] { store.apply(update, gradients); });
    if (round < 0) continue;  // warm-up
    copies.push_back(copy);
    applies.push_back(apply);
  }
  const auto rate = [&](int64_t bytes, std::vector<Duration>& of) {
    return static_cast<double>(bytes * times) / 1e6 / to_milliseconds(quantile(of, 0.5));
  };
  return {rate(moved, applies), rate(2 * copied, copies)};
}

std::vector<Cell> run_row(int64_t mebibytes, TrialOptimizer optimizer,
                          std::span<const Payload> gradients, Buffers& buffers, int rounds) {
  const int64_t elements = (mebibytes << 20) / kElementBytes;
  MassStoreSettings settings;
  settings.optimizer = optimizer;
  settings.rate = 0.001;
  settings.full = {std::ssize(gradients)};
  MassStore store(settings, {{0}, 0, elements},
                  std::vector<float>(static_cast<size_t>(elements), 0.5f));
  std::vector<Cell> cells;
  for (const int32_t count : kGradients) {
    cells.push_back(run_cell(store, gradients.first(static_cast<size_t>(count)),
                             moments_of(optimizer), buffers, rounds));
  }
  return cells;
}

void print_row(int64_t mebibytes, TrialOptimizer optimizer, const std::vector<Cell>& cells) {
  std::printf("%5lld  %-9s", static_cast<long long>(mebibytes), to_text(optimizer).c_str());
  bool is_slow = false;
  for (const Cell& cell : cells) {
    std::printf("  %6.2f %6.2f %5.2f", cell.apply, cell.copy, cell.ratio());
    is_slow = is_slow || cell.ratio() < kLeastRatio;
  }
  std::printf("%s\n", is_slow ? "  too slow" : "");
  std::fflush(stdout);
}

Json to_json(int64_t mebibytes, TrialOptimizer optimizer, const std::vector<Cell>& cells) {
  Json json = {{"mebibytes", mebibytes}, {"optimizer", to_text(optimizer)}};
  for (size_t i = 0; i < cells.size(); ++i) {
    json["cells"].push_back({{"gradients", kGradients[i]},
                             {"apply_gb_per_s", cells[i].apply},
                             {"copy_gb_per_s", cells[i].copy},
                             {"ratio", cells[i].ratio()}});
  }
  return json;
}

void print_head(int rounds) {
  std::printf("GB/s read and written by an update, by a copy, and their ratio; medians of %d\n",
              rounds);
  std::printf("%5s  %-9s", "MiB", "optimizer");
  for (const int32_t count : kGradients) {
    std::printf("  %2d gradient%-8s", count, count == 1 ? "" : "s");
  }
  std::printf("\n");
}

int run(const Asked& asked) {
  Json rows = Json::array();
  bool within = true;
  if (!asked.json) print_head(asked.rounds);
  for (const int64_t mebibytes : asked.mebibytes) {
    std::vector<Payload> gradients;
    for (int32_t i = 0; i < kGradients[3]; ++i) {
      gradients.push_back(gradient_of((mebibytes << 20) / kElementBytes, i));
    }
    Buffers buffers;
    const int64_t most = (mebibytes << 20) * (std::ssize(gradients) + 6) / 2;
    buffers.from.resize(static_cast<size_t>(std::min(most, kMostCopied)));
    buffers.to = buffers.from;
    for (const TrialOptimizer optimizer : kOptimizers) {
      const std::vector<Cell> cells =
          run_row(mebibytes, optimizer, gradients, buffers, asked.rounds);
      for (const Cell& cell : cells) within = within && cell.ratio() >= kLeastRatio;
      if (asked.json) {
        rows.push_back(to_json(mebibytes, optimizer, cells));
      } else {
        print_row(mebibytes, optimizer, cells);
      }
    }
  }
  if (asked.json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  return within ? 0 : 1;
}

}  // namespace
}  // namespace tenuto::servers

int main(int count, char** arguments) {
  CLI::App app{"How fast a server shard takes updates, beside a copy of memory",
               "server_apply_bench"};
  tenuto::servers::Asked asked;
  app.add_option("--mib", asked.mebibytes, "of parameters, in MiB (1,16,64,256)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--rounds", asked.rounds, "in which update and copy take turns (9)")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  return tenuto::servers::run(asked);
}
