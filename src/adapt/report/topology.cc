#include "adapt/report/topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "world/places.h"

namespace tenuto {

namespace {

// Places are searched for among at most this many devices: the time and the memory for the search
// grow with the square of their number.
constexpr size_t kMostSearched = 4'096;
// Stands for the rate of an unlimited link where a finite number is needed.
constexpr double kFastest = 1e30;

// "6.25": at most three decimals, or six if the number is below 0.01.
std::string number_text(double number) {
  std::string text = fixed(number, number < 0.01 ? 6 : 3);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

void RateRange::add(double rate) {
  slowest = std::min(slowest, rate);
  fastest = std::max(fastest, rate);
}

void RateRange::add(const RateRange& rates) {
  slowest = std::min(slowest, rates.slowest);
  fastest = std::max(fastest, rates.fastest);
}

std::string rate_text(const RateRange& rates) {
  if (rates.empty()) return "no link";
  if (std::isinf(rates.slowest)) return "unlimited rate";
  const std::string slowest = number_text(rates.slowest);
  if (std::isinf(rates.fastest)) return cat(slowest, " GB/s to unlimited");
  const std::string fastest = number_text(rates.fastest);
  return slowest == fastest ? cat(slowest, " GB/s") : cat(slowest, " to ", fastest, " GB/s");
}

Topology::Topology(const LayoutProblem& problem, const Cluster& cluster) : problem_(&problem) {
  make_units(cluster);
  make_places();
}

void Topology::make_units(const Cluster& cluster) {
  const auto count = static_cast<size_t>(problem_->device_count());
  std::vector<int32_t> key(count);  // devices with the same key are one unit
  for (size_t device = 0; device < count; ++device) {
    key[device] = static_cast<int32_t>(problem_->class_of(static_cast<int32_t>(device)));
  }
  if (!cluster.exceptions.empty()) {
    std::iota(key.begin(), key.end(), 0);
    if (count > kMostSearched) join_nodes(cluster, key);
  }
  std::map<int32_t, Unit> units;
  for (size_t device = 0; device < count; ++device) {
    units[key[device]].push_back(static_cast<int32_t>(device));
  }
  for (auto& [first, unit] : units) units_.push_back(std::move(unit));
}

// A cluster with very many nodes is read as one class, where each link within a node has a rate of
// its own. Gives each device of a node the key of the node's first device.
void Topology::join_nodes(const Cluster& cluster, std::vector<int32_t>& key) const {
  for (const auto& [pair, link] : cluster.exceptions) {
    const int32_t one = problem_->device(pair.first), other = problem_->device(pair.second);
    if (one < 0 || other <= one) continue;
    int32_t& its = key[static_cast<size_t>(other)];
    its = std::min(its, key[static_cast<size_t>(one)]);
  }
}

void Topology::make_places() {
  const size_t count = units_.size();
  std::vector<int32_t> place(count);
  std::iota(place.begin(), place.end(), 0);
  if (count == static_cast<size_t>(problem_->device_count()) && count <= kMostSearched) {
    place = find_places(static_cast<int32_t>(count), [&](int32_t one, int32_t other) {
      const double rate = problem_->rate(units_[static_cast<size_t>(one)].front(),
                                         units_[static_cast<size_t>(other)].front());
      return std::min(rate, kFastest);
    });
  }
  places_.resize(1 + static_cast<size_t>(*std::max_element(place.begin(), place.end())));
  place_of_.resize(static_cast<size_t>(problem_->device_count()));
  for (size_t u = 0; u < units_.size(); ++u) {
    Place& it = places_[static_cast<size_t>(place[u])];
    it.units.push_back(u);
    for (const int32_t device : units_[u]) {
      it.devices.push_back(device);
      place_of_[static_cast<size_t>(device)] = static_cast<size_t>(place[u]);
    }
  }
  for (Place& it : places_) std::sort(it.devices.begin(), it.devices.end());
}

RateRange Topology::inside(size_t place) const {
  RateRange rates;
  const std::vector<size_t>& units = places_[place].units;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = units_[units[i]];
    if (unit.size() > 1) rates.add(problem_->rate(unit[0], unit[1]));
    for (size_t j = i + 1; j < units.size(); ++j) {
      rates.add(problem_->rate(unit[0], units_[units[j]].front()));
    }
  }
  return rates;
}

RateRange Topology::between(size_t one, size_t other) const {
  RateRange rates;
  for (const size_t unit : places_[one].units) {
    for (const size_t peer : places_[other].units) {
      rates.add(problem_->rate(units_[unit].front(), units_[peer].front()));
    }
  }
  return rates;
}

RateRange Topology::between_all() const {
  RateRange rates;
  // If there are very many places, all are alike: takes the rates from the first one to the others.
  const size_t end = places_.size() > kMostSearched ? 1 : places_.size();
  for (size_t one = 0; one < end; ++one) {
    for (size_t other = one + 1; other < places_.size(); ++other) rates.add(between(one, other));
  }
  return rates;
}

}  // namespace tenuto
