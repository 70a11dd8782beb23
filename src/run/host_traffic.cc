#include "run/host_traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenuto {

namespace {

constexpr double kFreshPart = 0.3;  // of a mean, by the newest call
constexpr double kEvenPart = 0.2;   // of a limit, which all processes share alike
constexpr double kSteps = 100;      // a limit is divided into so many, so that it seldom changes
constexpr double kLeast = 1e5;      // bytes per second: a piece of a message leaves within seconds

}  // namespace

HostTraffic::HostTraffic(std::string host, bool is_loopback)
    : host_(std::move(host)), is_loopback_(is_loopback) {}

void HostTraffic::set_processes(std::map<WorkerId, std::string> hosts) {
  hosts_ = std::move(hosts);
  std::erase_if(means_, [this](const auto& one) { return !is_here(one.first); });
  std::erase_if(fresh_, [this](const auto& one) { return !is_here(one.first); });
}

bool HostTraffic::is_here(WorkerId process) const {
  const auto found = hosts_.find(process);
  return found != hosts_.end() && (is_loopback_ || found->second == host_);
}

void HostTraffic::add(WorkerId from, const servers::SentBytes& sent) {
  const bool from_here = is_here(from), to_here = is_here(sent.to);
  if (from_here == to_here && !(is_loopback_ && from_here)) return;
  const auto bytes = static_cast<double>(sent.bytes);
  if (from_here) fresh_[from] += bytes;
  if (to_here) received_ += bytes;
}

HostTraffic::Rates HostTraffic::take(Duration now) {
  const std::map<WorkerId, double> fresh = std::exchange(fresh_, {});
  const double received = std::exchange(received_, 0);
  const std::optional<Duration> since = std::exchange(at_, now);
  if (!since || now <= *since) return {};
  const double seconds = to_milliseconds(now - *since) / 1000;
  Rates rates;
  rates.received = received / seconds;
  for (const auto& [process, host] : hosts_) {
    if (!is_here(process)) continue;
    const auto found = fresh.find(process);
    const double rate = found == fresh.end() ? 0 : found->second / seconds;
    rates.sent += rate;
    double& mean = means_[process];
    mean += kFreshPart * (rate - mean);
  }
  return rates;
}

std::vector<servers::SendingLimit> HostTraffic::divide(double bytes_per_second) const {
  std::vector<servers::SendingLimit> all;
  double sum = 0;
  for (const auto& [process, host] : hosts_) {
    if (!is_here(process)) continue;
    all.push_back({process, 0});
    const auto mean = means_.find(process);
    sum += mean == means_.end() ? 0 : mean->second;
  }
  const auto count = static_cast<double>(all.size());
  for (servers::SendingLimit& one : all) {
    const auto mean = means_.find(one.process);
    const double own = mean == means_.end() || !(sum > 0) ? 1 / count : mean->second / sum;
    const double part = kEvenPart / count + (1 - kEvenPart) * own;
    one.bytes_per_second = std::max(kLeast, bytes_per_second * std::floor(part * kSteps) / kSteps);
  }
  return all;
}

std::vector<WorkerId> HostTraffic::spared() const {
  std::vector<WorkerId> all;
  for (const auto& [process, host] : hosts_) {
    if (!is_loopback_ && is_here(process)) all.push_back(process);
  }
  return all;
}

}  // namespace tenuto
