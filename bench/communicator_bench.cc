// All-reduces of communicators over the UCX wire on loopback, with one thread per member: time by
// size, algorithm, slices and concurrent sends. Variants take turns, so that other load on the
// machine affects all equally; medians are printed. All members share the machine's cores and
// memory, so the figures compare variants and say nothing about a network.
//
//     communicator_bench [MEMBERS [ROUNDS]]
//
// With a meeting it is one member of a group of processes, as on the hosts of
// tools/virtual_cluster, where links have a rate:
//
//     communicator_bench --join HOST:PORT PLACE COUNT ROUNDS
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "communicator/communicator.h"
#include "communicator/join.h"
#include "runtime/worker.h"
#include "transport/process/process_wire.h"

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

template <class T>
T expect(Result<T> result) {
  require(result.ok() ? ok() : Status(result.error()));
  return std::move(result).value();
}

CommunicatorSettings settings_of(const Variant& variant) {
  CommunicatorSettings settings;
  settings.way = {"ring"};
  settings.slice_bytes = variant.slice_bytes;
  settings.sends_at_once = variant.sends_at_once;
  return settings;
}

// One member's time for an all-reduce in place: the mean over `calls` in a row.
double milliseconds(Communicator& group, const Variant& variant, size_t bytes, int calls) {
  std::vector<float> numbers(bytes / sizeof(float));  // sums of zeros stay what they are
  CallRequest request;
  request.total = std::as_writable_bytes(std::span(numbers));
  request.own = request.total;
  request.way.algorithm = variant.algorithm;
  if (request.way.algorithm == "late-one") request.way.late = {{group.member_count() - 1}};
  require(group.run(request));
  const Duration begin = monotonic_clock().now();
  for (int i = 0; i < calls; ++i) require(group.run(request));
  return to_milliseconds(monotonic_clock().now() - begin) / calls;
}

// The members of one variant, each with its own wire; they are kept from round to round.
struct Members {
  Members(int32_t count, const Variant& chosen) : variant(chosen) {
    for (int32_t m = 0; m < count; ++m) {
      ids.push_back({m});
      mailboxes.push_back(std::make_unique<QueueMailbox>());
      const Hello hello{"bench", "bench", kWireVersion, {m}, 0};
      wires.push_back(expect(make_process_wire({}, hello, *mailboxes.back())));
      for (int32_t peer = 0; peer < m; ++peer) {
        const Address there = wires[static_cast<size_t>(peer)]->address();
        require(wires.back()->connect({peer}, there, fresh_ticket()));
      }
    }
    groups.resize(ids.size());
    run_all([&](size_t m) {
      CommunicatorSettings settings = settings_of(variant);
      settings.members = ids;
      settings.self = ids[m];
      groups[m] = expect(Communicator::make({wires[m].get(), mailboxes[m].get()}, settings));
    });
  }
  ~Members() {
    groups.clear();
    run_all([&](size_t m) { (void)wires[m]->close(std::chrono::seconds(10)).ok(); });
  }

  template <class What>
  void run_all(const What& what) {
    std::vector<std::thread> threads;
    for (size_t m = 0; m < ids.size(); ++m) threads.emplace_back([&, m] { what(m); });
    for (std::thread& thread : threads) thread.join();
  }

  // The longest of the members' times.
  double longest(size_t bytes, int calls) {
    std::vector<double> took(ids.size());
    run_all([&](size_t m) { took[m] = milliseconds(*groups[m], variant, bytes, calls); });
    return *std::max_element(took.begin(), took.end());
  }

  Variant variant;
  std::vector<WorkerId> ids;
  std::vector<std::unique_ptr<QueueMailbox>> mailboxes;
  std::vector<std::unique_ptr<Transport>> wires;
  std::vector<std::unique_ptr<Communicator>> groups;
};

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

// [variant][size]: the times of all rounds.
using Times = std::vector<std::vector<std::vector<double>>>;

// Runs the rounds over all sizes and variants; `time_of` measures one.
template <class TimeOf>
Times measure(int rounds, const std::vector<size_t>& sizes, const TimeOf& time_of) {
  Times took(kVariants.size(), std::vector<std::vector<double>>(sizes.size()));
  for (int round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < sizes.size(); ++s) {
      const int calls = static_cast<int>(std::clamp<size_t>((16 << 20) / sizes[s], 1, 100));
      for (size_t v = 0; v < kVariants.size(); ++v) {
        took[v][s].push_back(time_of(v, sizes[s], calls));
      }
    }
  }
  return took;
}

void print(int members, const std::vector<size_t>& sizes, const Times& took) {
  std::printf("%d members; ms of an all-reduce, median of %zu\n", members, took[0][0].size());
  std::printf("%-10s %10s %6s", "algorithm", "slice KiB", "sends");
  for (const size_t size : sizes) std::printf(" %8zu KiB", size / 1024);
  std::printf("\n");
  for (size_t v = 0; v < kVariants.size(); ++v) {
    const Variant& variant = kVariants[v];
    std::printf("%-10s %10lld %6d", variant.algorithm,
                static_cast<long long>(variant.slice_bytes / kKiB), variant.sends_at_once);
    for (size_t s = 0; s < sizes.size(); ++s) std::printf(" %12.3f", median(took[v][s]));
    std::printf("\n");
  }
}

void run_threads(int members, int rounds) {
  std::vector<std::unique_ptr<Members>> all;
  for (const Variant& variant : kVariants) {
    all.push_back(std::make_unique<Members>(members, variant));
  }
  const std::vector<size_t> sizes{4 << 10, 1 << 20, 16 << 20, 64 << 20};
  print(members, sizes, measure(rounds, sizes, [&](size_t v, size_t size, int calls) {
          return all[v]->longest(size, calls);
        }));
}

void run_member(const JoinSettings& who, int rounds) {
  const auto joined = expect(join(who));
  const std::vector<size_t> sizes{4 << 10, 1 << 20, 16 << 20};
  int64_t number = 1;
  const Times took = measure(rounds, sizes, [&](size_t v, size_t size, int calls) {
    CommunicatorSettings settings = settings_of(kVariants[v]);
    settings.members = joined->settings().members;
    settings.self = joined->settings().self;
    settings.number = number++;
    const auto group = expect(Communicator::make(joined->communicator(), settings));
    return milliseconds(*group, kVariants[v], size, calls);
  });
  if (who.place == 0) print(who.count, sizes, took);
  require(joined->leave(std::chrono::seconds(10)));
}

}  // namespace
}  // namespace tenuto

int main(int count, char** words) {
  using namespace tenuto;
  const auto number = [&](int at, int otherwise) {
    return count > at ? std::atoi(words[at]) : otherwise;
  };
  const bool joins = count == 6 && std::string(words[1]) == "--join";
  const int members = joins ? number(4, 0) : number(1, 4),
            rounds = joins ? number(5, 0) : number(2, 5);
  if (members < 3 || members > 64 || rounds < 1) {
    std::fprintf(stderr,
                 "usage: communicator_bench [MEMBERS (3 to 64) [ROUNDS]]\n"
                 "       communicator_bench --join HOST:PORT PLACE COUNT ROUNDS\n");
    return 2;
  }
  if (!joins) {
    run_threads(members, rounds);
    return 0;
  }
  JoinSettings who;
  who.meeting = words[2];
  who.place = number(3, 0);
  who.count = members;
  run_member(who, rounds);
  return 0;
}
