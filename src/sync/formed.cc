#include "sync/formed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/quantile.h"
#include "base/text.h"

namespace tenuto {

namespace {

// The replicas, fastest first; equally fast ones by number.
std::vector<size_t> by_time(std::span<const IterationTime> times) {
  std::vector<size_t> order(times.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return times[left].compute + times[left].transfer <
           times[right].compute + times[right].transfer;
  });
  return order;
}

double milliseconds(const IterationTime& time) {
  return to_milliseconds(time.compute + time.transfer);
}

// The real-valued shares with which all iterations end at `end`, within the limits.
std::vector<double> shares_until(std::span<const IterationTime> times, double end) {
  std::vector<double> shares;
  for (const IterationTime& time : times) {
    const double compute = to_milliseconds(time.compute);
    const double left = end - to_milliseconds(time.transfer);
    shares.push_back(std::clamp(compute > 0 ? left / compute : 2.0, 0.25, 2.0));
  }
  return shares;
}

}  // namespace

std::vector<int32_t> groups_by_time(std::span<const IterationTime> times, double gap) {
  const std::vector<size_t> order = by_time(times);
  std::vector<int32_t> rank(times.size(), 0);
  int32_t group = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && milliseconds(times[order[i]]) > gap * milliseconds(times[order[i - 1]])) ++group;
    rank[order[i]] = group;
  }
  std::vector<int32_t> number(static_cast<size_t>(group) + 1, -1), groups;
  int32_t next = 0;
  for (const int32_t of : rank) {
    int32_t& mine = number[static_cast<size_t>(of)];
    if (mine < 0) mine = next++;
    groups.push_back(mine);
  }
  return groups;
}

std::vector<ReplicaId> ring_by_time(std::span<const IterationTime> times, int32_t count) {
  return ring_within(times, count, {}).value();
}

Result<std::vector<ReplicaId>> ring_within(std::span<const IterationTime> times, int32_t count,
                                           std::span<const RelayLimit> limits) {
  const auto limit_of = [&](size_t replica) {
    return replica < limits.size() ? limits[replica] : RelayLimit{};
  };
  std::vector<size_t> members, children;  // fastest first
  std::string overloaded;
  for (const size_t replica : by_time(times)) {
    const bool is_overloaded = limit_of(replica).is_overloaded;
    const bool is_member = !is_overloaded && std::ssize(members) < count;
    (is_member ? members : children).push_back(replica);
    if (is_overloaded) overloaded += cat(overloaded.empty() ? "" : ", ", replica);
  }
  if (std::ssize(members) < count) {
    return Error{Code::Infeasible, Reach::Call,
                 cat("a ring of ", count, " replicas: expected as many whose hosts are not ",
                     "overloaded, found ", members.size(), " (overloaded: ", overloaded,
                     "): take a smaller ring, or relieve these hosts")};
  }
  std::vector<int64_t> left;  // of each member, for further children
  int64_t all = 0;
  for (const size_t member : members) {
    left.push_back(limit_of(member).most_children);
    all += left.back();
  }
  if (all < std::ssize(children)) {
    return Error{Code::Infeasible, Reach::Call,
                 cat("a ring of ", count, " replicas: ", children.size(),
                     " others would be its children, and the ports of its members take the "
                     "gradients of ",
                     all, ": take a larger ring, or a mode without one")};
  }
  std::vector<ReplicaId> parents(times.size());
  for (const size_t member : members) parents[member] = {static_cast<int32_t>(member)};
  size_t next = 0;
  for (const size_t child : children) {
    while (left[next] == 0) next = (next + 1) % members.size();
    parents[child] = {static_cast<int32_t>(members[next])};
    --left[next];
    next = (next + 1) % members.size();
  }
  return parents;
}

std::vector<int64_t> shares_by_time(std::span<const IterationTime> times, int64_t micros) {
  const auto replicas = static_cast<double>(times.size());
  double low = 0, high = 0;
  for (const IterationTime& time : times) {
    high = std::max(high, to_milliseconds(time.compute) * 2 + to_milliseconds(time.transfer));
  }
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    const std::vector<double> shares = shares_until(times, middle);
    (std::accumulate(shares.begin(), shares.end(), 0.0) < replicas ? low : high) = middle;
  }
  const std::vector<double> wanted = shares_until(times, high);
  std::vector<int64_t> shares;
  for (const double share : wanted) {
    shares.push_back(
        std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(micros))));
  }
  // The rest goes, one by one, to those that are the most below what they should have; at least 1
  // each may have been too much, which those give back that are the most above.
  const int64_t all = static_cast<int64_t>(times.size()) * micros;
  int64_t sum = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (; sum != all; sum += sum < all ? 1 : -1) {
    size_t best = times.size();
    double most = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      const double lacks = wanted[i] * static_cast<double>(micros) - static_cast<double>(shares[i]);
      const double need = sum < all ? lacks : -lacks;
      if (sum > all && shares[i] == 1) continue;
      if (best == times.size() || need > most) best = i, most = need;
    }
    shares[best] += sum < all ? 1 : -1;
  }
  return shares;
}

Result<SyncMode> form(const SyncMode& mode, std::span<const IterationTime> times, int64_t micros,
                      std::span<const RelayLimit> relays) {
  const auto replicas = static_cast<int32_t>(times.size());
  if (const Status fault = check(mode, replicas); !fault.ok()) return fault.error();
  if (micros < 1)
    return invalid(cat("expected at least 1 micro-batch per replica, found ", micros));
  SyncMode formed = mode;
  switch (mode.kind) {
    case SyncKind::Grace:
      if (formed.window.count() == 0) {
        std::vector<Duration> all;
        for (const IterationTime& time : times) all.push_back(time.compute + time.transfer);
        const auto median = static_cast<double>(quantile(all, 0.5).count());
        formed.window = Duration(std::max<int64_t>(1, std::llround(kGraceShare * median)));
      }
      break;
    case SyncKind::Groups:
      if (formed.groups.empty()) formed.groups = groups_by_time(times, kGroupGap);
      break;
    case SyncKind::Ring:
      if (formed.parents.empty()) {
        auto parents = ring_within(times, mode.count, relays);
        if (!parents.ok()) return parents.error();
        formed.parents = std::move(parents).value();
      }
      break;
    case SyncKind::Rebalanced:
      if (formed.shares.empty()) formed.shares = shares_by_time(times, micros);
      break;
    default:
      break;
  }
  return formed;
}

}  // namespace tenuto
