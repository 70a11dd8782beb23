// All-reduces of communicators over the UCX wire on loopback, a thread for each member: time by
// size, algorithm, slices and sends under way. Variants take turns, so that what else the machine
// does falls on all alike; medians are printed. All members share the machine's cores and memory,
// so this compares variants and is no figure of a network.
//
//     communicator_bench [MEMBERS [ROUNDS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/communicator.h"
#include "runtime/worker.h"
#include "transport/ucx.h"

namespace tenuto {
namespace {

struct Variant {
  const char* algorithm;
  int64_t slice_bytes;
  int32_t sends_at_once;
};

constexpr int64_t kKiB = 1 << 10;
const std::vector<Variant> kVariants{{"ring", 0, 0},
                                     {"ring", 0, 2},
                                     {"ring", 64 * kKiB, 2},
                                     {"ring", 256 * kKiB, 1},
                                     {"ring", 256 * kKiB, 2},
                                     {"ring", 256 * kKiB, 4},
                                     {"ring", 256 * kKiB, 0},
                                     {"ring", 1024 * kKiB, 2},
                                     {"halving", 256 * kKiB, 2},
                                     {"late-one", 256 * kKiB, 2}};

void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "communicator_bench: %s\n", status.error().message.c_str());
  std::_Exit(1);
}

// The members of one variant: a wire each, kept from round to round.
struct Members {
  Members(int32_t count, const Variant& chosen) : variant(chosen) {
    for (int32_t m = 0; m < count; ++m) {
      ids.push_back({m});
      mailboxes.push_back(std::make_unique<QueueMailbox>());
      auto made = make_ucx_transport({}, {"bench", "bench", kWireVersion, {m}, 0}, *mailboxes[m]);
      require(made.ok() ? ok() : Status(made.error()));
      wires.push_back(std::move(made).value());
      for (int32_t peer = 0; peer < m; ++peer) {
        require(wires[m]->connect({peer}, wires[peer]->address(), fresh_ticket()));
      }
    }
    run_all([&](int32_t m) {
      CommunicatorSettings settings;
      settings.members = ids;
      settings.self = ids[m];
      settings.way = {"ring"};
      settings.slice_bytes = variant.slice_bytes;
      settings.sends_at_once = variant.sends_at_once;
      auto made = Communicator::make({wires[m].get(), mailboxes[m].get()}, settings);
      require(made.ok() ? ok() : Status(made.error()));
      groups[m] = std::move(made).value();
    });
  }
  ~Members() {
    groups.clear();
    run_all([&](int32_t m) { (void)wires[m]->close(std::chrono::seconds(10)).ok(); });
  }

  template <class What>
  void run_all(const What& what) {
    groups.resize(ids.size());
    std::vector<std::thread> threads;
    for (const WorkerId id : ids) threads.emplace_back([&, id] { what(id.value); });
    for (std::thread& thread : threads) thread.join();
  }

  // The longest of the members' times for `calls` all-reduces in place, by one.
  double milliseconds(size_t bytes, int calls) {
    std::vector<Duration> took(ids.size());
    run_all([&](int32_t m) {
      std::vector<float> numbers(bytes / sizeof(float));  // sums of zeros stay what they are
      CallRequest request;
      request.total = std::as_writable_bytes(std::span(numbers));
      request.own = request.total;
      request.way.algorithm = variant.algorithm;
      if (request.way.algorithm == "late-one") request.way.late = {ids.back()};
      require(groups[m]->run(request));
      const Duration begin = monotonic_clock().now();
      for (int i = 0; i < calls; ++i) require(groups[m]->run(request));
      took[m] = monotonic_clock().now() - begin;
    });
    return to_milliseconds(*std::max_element(took.begin(), took.end())) / calls;
  }

  Variant variant;
  std::vector<WorkerId> ids;
  std::vector<std::unique_ptr<QueueMailbox>> mailboxes;
  std::vector<std::unique_ptr<UcxTransport>> wires;
  std::vector<std::unique_ptr<Communicator>> groups;
};

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace
}  // namespace tenuto

int main(int count, char** words) {
  using namespace tenuto;
  const int members = count > 1 ? std::atoi(words[1]) : 4;
  const int rounds = count > 2 ? std::atoi(words[2]) : 5;
  if (members < 3 || members > 64 || rounds < 1) {
    std::fprintf(stderr, "usage: communicator_bench [MEMBERS (3 to 64) [ROUNDS]]\n");
    return 2;
  }
  std::vector<std::unique_ptr<Members>> all;
  for (const Variant& variant : kVariants)
    all.push_back(std::make_unique<Members>(members, variant));
  std::printf("%d members; ms of an all-reduce, median of %d\n", members, rounds);
  std::printf("%-10s %10s %6s", "algorithm", "slice KiB", "sends");
  const std::vector<size_t> sizes{4 << 10, 1 << 20, 16 << 20, 64 << 20};
  for (const size_t size : sizes) std::printf(" %8zu KiB", size / 1024);
  std::printf("\n");
  std::vector<std::vector<std::vector<double>>> took(
      all.size(), std::vector<std::vector<double>>(sizes.size()));
  for (int round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < sizes.size(); ++s) {
      const int calls = static_cast<int>(std::clamp<size_t>((16 << 20) / sizes[s], 1, 200));
      for (size_t v = 0; v < all.size(); ++v) {
        took[v][s].push_back(all[v]->milliseconds(sizes[s], calls));
      }
    }
  }
  for (size_t v = 0; v < all.size(); ++v) {
    const Variant& variant = kVariants[v];
    std::printf("%-10s %10lld %6d", variant.algorithm,
                static_cast<long long>(variant.slice_bytes / kKiB), variant.sends_at_once);
    for (size_t s = 0; s < sizes.size(); ++s) std::printf(" %12.3f", median(took[v][s]));
    std::printf("\n");
  }
  return 0;
}
