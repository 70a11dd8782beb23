#include "monitor/topology.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/quantile.h"

namespace tenuto {
namespace {

// A link is an exception if its rate is more than this many times the median rate between its two
// places, or if the median is more than this many times its rate.
constexpr double kFits = 1.25;

// The rate of the faster direction; an unlimited rate is higher than all others.
double rate_between(const LinkTable& links, int32_t one, int32_t other) {
  const auto rate = [&](int32_t from, int32_t to) {
    const double given = links.at({from}, {to}).link.bytes_per_second;
    return given > 0 ? given : 1e30;
  };
  return std::max(rate(one, other), rate(other, one));
}

double median_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

}  // namespace

std::vector<int32_t> find_places(const LinkTable& links) {
  return find_places(links.workers(),
                     [&](int32_t one, int32_t other) { return rate_between(links, one, other); });
}

Cluster cluster_of_links(const LinkTable& links) {
  Cluster cluster;
  cluster.workers.resize(static_cast<size_t>(links.workers()));
  cluster.place = find_places(links);
  const auto places =
      cluster.place.empty()
          ? size_t{1}
          : static_cast<size_t>(1 + *std::max_element(cluster.place.begin(), cluster.place.end()));
  cluster.between.assign(places, std::vector<Link>(places));
  std::map<std::pair<int32_t, int32_t>, std::vector<std::pair<WorkerId, WorkerId>>> classes;
  for (int32_t from = 0; from < links.workers(); ++from) {
    for (int32_t to = 0; to < links.workers(); ++to) {
      const auto place_of = [&](int32_t w) { return cluster.place[static_cast<size_t>(w)]; };
      if (from != to) classes[{place_of(from), place_of(to)}].push_back({{from}, {to}});
    }
  }
  for (const auto& [ends, pairs] : classes) {
    std::vector<double> rates;
    std::vector<Duration> latencies;
    for (const auto& [from, to] : pairs) {
      rates.push_back(links.at(from, to).link.bytes_per_second);
      latencies.push_back(links.at(from, to).link.latency);
    }
    const Link usual{quantile(latencies, 0.5), median_of(rates)};
    cluster.between[static_cast<size_t>(ends.first)][static_cast<size_t>(ends.second)] = usual;
    for (const auto& [from, to] : pairs) {
      const double rate = links.at(from, to).link.bytes_per_second;
      const bool fits =
          rate <= kFits * usual.bytes_per_second && usual.bytes_per_second <= kFits * rate;
      if (!fits) cluster.exceptions[{from, to}] = links.at(from, to).link;
    }
  }
  return cluster;
}

}  // namespace tenuto
