// Compares all-reduce algorithms.
//
//   --theory    for many counts of members the priced speed-up over a ring that begins when the
//               last member comes, beside the published one; the time that making and checking a
//               procedure and choosing an algorithm take
//   --virtual   executed as the runtime does, on a clock of its own, beside the price
//   --loopback  between processes over loopback TCP, nobody late, beside Gloo and Open MPI
//   --shaped    between network namespaces with links of 200 Mbit/s, one member late (needs ip, tc
//               and the right to make namespaces: tools/virtual_cluster alone ./run bench ...)
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "bench/all_reduce_live.h"
#include "bench/all_reduce_member.h"
#include "bench/processor_time.h"
#include "bench/virtual_all_reduce.h"
#include "collective/choose.h"
#include "ir/procedure.h"
#include "sim/procedure_price.h"

namespace tenuto {
namespace {

// The published setting: 3 microseconds a message, 450 GiB/s, 1 GiB.
const AlphaBeta kLink{std::chrono::microseconds(3), 450.0 * (1 << 30)};
constexpr Bytes kSize{1 << 30};

const std::vector<int32_t> kMembers = {4,  6,  8,   12,  16,  24,  32,  48,
                                       64, 96, 128, 192, 256, 512, 1024};
// Devraj et al., arXiv 2505.23523: the rounds of their schedules under the same constants.
const std::vector<double> kPublished = {1.127, 1.192, 1.363, 1.346, 1.565, 1.635, 1.718,
                                        1.617, 1.826, 1.743, 1.897, 1.829, 1.941};

// The time from the last arrival to the end; the late member comes long after the others have
// summed.
Duration after_arrival(const std::string& name, int32_t members, int32_t chunks) {
  CollectiveShape shape;
  for (int32_t i = 0; i < members; ++i) shape.members.push_back({i});
  shape.chunks = chunks;
  std::vector<Duration> arrivals(shape.members.size());
  if (find_algorithm(name)->card.late_most != 0) {
    shape.late = {{members - 1}};
    arrivals.back() = std::chrono::seconds(1);
  }
  const auto made = make_procedure(name, shape);
  CHECK(made.ok(), made.error().message);
  const Cluster cluster = uniform_cluster(members, {kLink.alpha, kLink.bytes_per_second});
  return price_collective(made.value().collective, arrivals, kSize, cluster).last - arrivals.back();
}

// The best number of chunks among multiples of n - 1, with which every owner has equally many.
int32_t best_multiple(int32_t members) {
  int32_t best = members - 1;
  for (int32_t k = best; k <= 64 * (members - 1); k += members - 1) {
    if (late_exchange_time(members, k, kSize, kLink) <
        late_exchange_time(members, best, kSize, kLink)) {
      best = k;
    }
  }
  return best;
}

void print_row(const char* name, const std::vector<double>& row, int decimals) {
  std::printf("%-26s", name);
  for (const double value : row) std::printf("%7s", fixed(value, decimals).c_str());
  std::printf("\n");
}

void print_theory() {
  std::vector<double> counts, own, multiple, best, chunks, halving;
  for (const int32_t members : kMembers) {
    const auto speedup = [&, ring = after_arrival("ring", members, 0)](Duration of) {
      return static_cast<double>(ring.count()) / static_cast<double>(of.count());
    };
    counts.push_back(members);
    own.push_back(speedup(after_arrival("late-one", members, members - 1)));
    multiple.push_back(speedup(after_arrival("late-one", members, best_multiple(members))));
    chunks.push_back(best_chunks(members, kSize, kLink));
    best.push_back(
        speedup(after_arrival("late-one", members, static_cast<int32_t>(chunks.back()))));
    halving.push_back(speedup(after_arrival("halving", members, 0)));
  }
  std::printf("Speed-up over ring, from the last arrival on: 3 us a message, 450 GiB/s, 1 GiB\n");
  print_row("members", counts, 0);
  print_row("published", kPublished, 3);
  print_row("late-one, k = n - 1", own, 3);
  print_row("late-one, best multiple", multiple, 3);
  print_row("late-one, best k", best, 3);
  print_row("  its k", chunks, 0);
  print_row("halving", halving, 3);
}

// The best of five, in processor time of this thread, because the machine may be busy.
void print_speed() {
  const auto shape_of = [](int32_t members) {
    CollectiveShape shape;
    for (int32_t i = 0; i < members; ++i) shape.members.push_back({i});
    shape.late = {shape.members[5]};
    return shape;
  };
  double generated = std::numeric_limits<double>::infinity(), checked = generated;
  const CollectiveShape large = shape_of(1024);
  const auto schedule = make_procedure("late-one", shape_of(64));
  CHECK(schedule.ok(), "a procedure for 64 members");
  for (int i = 0; i < 5; ++i) {
    double start = processor_milliseconds();
    CHECK(make_procedure("late-one", large).ok(), "a procedure for 1,024 members");
    generated = std::min(generated, processor_milliseconds() - start);
    start = processor_milliseconds();
    CHECK(check(schedule.value()).ok(), "a right procedure");
    checked = std::min(checked, processor_milliseconds() - start);
  }
  std::printf("late-one: made for 1,024 members in %.1f ms, checked for 64 in %.2f ms\n", generated,
              checked);
}

// The cost of a choice among 1,024 members, and of recording a call; means of many, since one is
// too short to measure.
void print_choices() {
  constexpr int32_t kCount = 1024, kCalls = 2000;
  AlgorithmChooser chooser(kCount, {std::chrono::microseconds(10), 12.5e9});
  Random random(1);
  std::vector<uint32_t> waited(kCount);
  double choosing = 0, noting = 0;
  int64_t waited_for = 0;
  for (int32_t call = 0; call < kCalls; ++call) {
    // Sixteen different late members are among the remembered calls; the chooser weighs each.
    for (uint32_t& one : waited) one = static_cast<uint32_t>(random.below(1000));
    waited[static_cast<size_t>(call * 37 % kCount)] += 100'000;
    const int64_t bytes = int64_t{1} << (10 + call % 20);
    double start = processor_milliseconds();
    waited_for += chooser.choose(bytes).late >= 0 ? 1 : 0;
    choosing += processor_milliseconds() - start;
    start = processor_milliseconds();
    chooser.note(waited, bytes);
    noting += processor_milliseconds() - start;
  }
  std::printf("chooser, 1,024 members: a choice %.2f us, a call taken in %.2f us (%d of %d wait)\n",
              choosing / kCalls * 1e3, noting / kCalls * 1e3, static_cast<int>(waited_for), kCalls);
}

constexpr AlphaBeta kVirtualLink{std::chrono::microseconds(10), 3.125e9};
const std::vector<int64_t> kVirtualMib = {1, 64};
constexpr Bytes kVirtualReal{64 << 10};

Duration virtual_time(const std::string& name, int32_t members, int32_t chunks, Duration late,
                      Bytes size, double& beside_price) {
  CollectiveShape shape;
  for (int32_t i = 0; i < members; ++i) shape.members.push_back({i});
  shape.chunks = chunks;
  if (find_algorithm(name)->card.late_most != 0) shape.late = {{members - 1}};
  const auto made = make_procedure(name, shape);
  CHECK(made.ok(), made.error().message);
  VirtualCall call;
  call.procedure = &made.value();
  call.arrivals.resize(shape.members.size());
  call.arrivals.back() = late;
  call.size = size;
  call.real = kVirtualReal;
  call.link = kVirtualLink;
  const Duration took = virtual_finish(call) - late;
  const Cluster cluster =
      uniform_cluster(members, {kVirtualLink.alpha, kVirtualLink.bytes_per_second});
  const Duration price =
      price_collective(made.value().collective, call.arrivals, size, cluster).last - late;
  beside_price = static_cast<double>(took.count()) / static_cast<double>(price.count());
  return took;
}

void print_virtual(int32_t members, Bytes size) {
  const Duration whole = ring_time(members, size, kVirtualLink);
  const int32_t best = best_chunks(members, size, kVirtualLink);
  for (const double lateness : {0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0}) {
    const Duration late(static_cast<int64_t>(lateness * static_cast<double>(whole.count())));
    double ring_price = 0, own_price = 0, best_price = 0;
    const Duration ring = virtual_time("ring", members, 0, late, size, ring_price);
    const Duration own = virtual_time("late-one", members, members - 1, late, size, own_price);
    const Duration free = virtual_time("late-one", members, best, late, size, best_price);
    const auto faster = [&](Duration than) {
      return fixed(static_cast<double>(ring.count()) / static_cast<double>(than.count()), 3);
    };
    std::printf("%3d%5lld MiB%7s%10s%7s%10s%7s%7s%5d%10s%7s%7s\n", members,
                static_cast<long long>(size.count >> 20), fixed(lateness, 2).c_str(),
                fixed(to_milliseconds(ring), 3).c_str(), fixed(ring_price, 3).c_str(),
                fixed(to_milliseconds(own), 3).c_str(), fixed(own_price, 3).c_str(),
                faster(own).c_str(), best, fixed(to_milliseconds(free), 3).c_str(),
                fixed(best_price, 3).c_str(), faster(free).c_str());
  }
}

void print_virtual() {
  std::printf(
      "Executed on a virtual clock, 10 us a message, 25 Gbit/s: ms after the late member came, "
      "times the price, times faster than the ring\n");
  std::printf("%3s%9s%7s%10s%7s%10s%7s%7s%5s%10s%7s%7s\n", "n", "size", "late", "ring", "price",
              "k=n-1", "price", "ring", "k", "best k", "price", "ring");
  for (int32_t members = 4; members <= 8; ++members) {
    for (const int64_t mib : kVirtualMib) print_virtual(members, Bytes{mib << 20});
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  CLI::App app("all-reduce algorithms beside each other");
  bool theory = false, on_virtual = false, loopback = false, shaped = false;
  LiveSettings settings;
  settings.source = TENUTO_SOURCE_DIR;
  settings.python = TENUTO_PYTHON;
  settings.mpi = TENUTO_MPI_SIDE;
  MemberPlace place{-1, 0};
  int32_t most_mib = 0, slice_kib = 0;
  app.add_flag("--theory", theory, "prices for up to 1,024 members");
  app.add_flag("--virtual", on_virtual, "executed on a clock of its own");
  app.add_flag("--loopback", loopback, "real processes over the loopback");
  app.add_flag("--shaped", shaped, "real processes over shaped links");
  app.add_option("--rounds", settings.rounds, "in which all take turns; medians are printed");
  app.add_option("--hosts", settings.members, "members, at most");
  app.add_option("--least-hosts", settings.least_members, "shaped: members, at least");
  app.add_option("--late", settings.lateness, "shaped: in times of the ring's, one or more");
  app.add_option("--mib", settings.shaped_mib, "shaped: of tensors, in MiB, one or more");
  app.add_option("--most-mib", most_mib, "largest tensor, in MiB");
  app.add_option("--wire", settings.wire, "of our members: auto, tcp or ucx");
  app.add_option("--progress", settings.progress, "of our members: event, auto or poll");
  app.add_flag("--survive", settings.survives, "loopback: also in groups that survive deaths");
  app.add_option("--sends", settings.sends, "at once, of a member");
  app.add_option("--receives", settings.receives, "posted at once; 0 = as many as can be");
  app.add_option("--slice-kib", slice_kib, "of a chunk, in KiB");
  app.add_option("--megabits", settings.megabits, "of each shaped host");
  app.add_option("--python", settings.python, "with torch, for Gloo; empty = without");
  app.add_option("--mpi", settings.mpi, "Open MPI's side; empty = without");
  app.add_option("--member", place.self)->group("");
  app.add_option("--members", place.members)->group("");
  app.add_option("--host", place.host)->group("");
  app.add_option("--device", place.device)->group("");
  app.add_option("--link-megabits", place.megabits)->group("");
  CLI11_PARSE(app, count, arguments);
  if (most_mib > 0) settings.most_bytes = int64_t{most_mib} << 20;
  if (slice_kib > 0) settings.slice_bytes = int64_t{slice_kib} << 10;
  place.sends = settings.sends;
  place.wire = settings.wire;
  place.progress = settings.progress;
  place.receives = settings.receives;
  if (place.self >= 0) return run_member(place);
  if (!theory && !on_virtual && !loopback && !shaped) {
    std::fprintf(stderr,
                 "all_reduce_bench: expected --theory, --virtual, --loopback or --shaped\n");
    return 2;
  }
  if (theory) {
    print_theory();
    print_speed();
    print_choices();
  }
  if (on_virtual) print_virtual();
  if (loopback) print_loopback(settings);
  if (shaped) print_shaped(settings);
  return 0;
}
