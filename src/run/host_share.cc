#include "run/host_share.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/host.h"
#include "base/text.h"
#include "run/program.h"

namespace tenuto {

namespace {

constexpr Duration kRound = std::chrono::seconds(1);
constexpr std::string_view kLoopback = "lo";
constexpr double kFreshPart = 0.3;  // of a mean, by the newest call
constexpr double kOver = 1.25;      // times its limit: it has no effect
constexpr int32_t kOverCalls = 10;  // in a row; a limit that is new takes a while

// The job's own word, or the kernel's.
int64_t network_of(const Job& job) {
  const double own = job.sync.ledger_megabytes_per_second * 1e6;
  if (own > 0) return static_cast<int64_t>(std::min(own, static_cast<double>(kMostHostAmount)));
  return device_rate(job.network.device).value_or(0);
}

int64_t at_least_zero(double amount, int64_t less) {
  const double most = static_cast<double>(kMostHostAmount);
  return std::max<int64_t>(0, std::llround(std::clamp(amount, 0.0, most)) - less);
}

}  // namespace

double UsedCores::take(const std::vector<ProcessStat>& processes, Duration now) {
  Duration sum{};
  std::map<std::pair<int32_t, int64_t>, Duration> present;
  for (const ProcessStat& one : processes) {
    const std::pair key(one.process, one.started);
    present[key] = one.cpu;
    const auto before = before_.find(key);
    sum += before == before_.end() ? one.cpu : one.cpu - before->second;
  }
  before_ = std::move(present);
  const std::optional<Duration> since = std::exchange(at_, now);
  if (!since || now <= *since) return 0;
  return std::max(0.0, static_cast<double>(sum.count())) /
         static_cast<double>((now - *since).count());
}

HostAmounts ForeignTraffic::take(const std::optional<DeviceBytes>& bytes,
                                 const HostAmounts& granted, Duration now) {
  const std::optional<DeviceBytes> before = std::exchange(before_, bytes);
  const std::optional<Duration> since = std::exchange(at_, now);
  if (!bytes) return {};
  if (before && since && now > *since) {
    const double seconds = to_milliseconds(now - *since) / 1000;
    const auto add = [seconds](double& mean, int64_t moved) {
      // A device that came up anew begins at zero.
      const double rate = std::max(0.0, static_cast<double>(moved)) / seconds;
      mean += kFreshPart * (rate - mean);
    };
    add(sent_, bytes->sent - before->sent);
    add(received_, bytes->received - before->received);
  }
  return {0, at_least_zero(sent_, granted[1]), at_least_zero(received_, granted[2])};
}

std::string SendingCheck::look(double sent, double limit) {
  over_ = limit > 0 && sent > kOver * limit ? over_ + 1 : 0;
  if (was_told_ || over_ < kOverCalls) return {};
  was_told_ = true;
  return cat("the job sends ", fixed(sent / 1e6, 1), " MB/s, and the ledger allows it ",
             fixed(limit / 1e6, 1),
             " MB/s: the limit has no effect, because only the wire over TCP (network.wire) and "
             "the traffic control of a device (sync.tc) know rates");
}

HostShare::HostShare(const Job& job, int32_t starter)
    : starter_(starter),
      parts_(job.worker_count()),
      device_(job.network.device),
      here_(ledger_file_here(job.sync.ledger, network_of(job))),
      ledger_(here_),
      lease_(job.parallel.pipelines, here_.capacity),
      governor_(governor_here(here_.job, here_.started, here_.started_of)),
      control_({job.sync.tc, here_.job,
                [](const std::vector<std::string>& words) { return run_program(words); }}),
      traffic_(here_.host, device_ == kLoopback) {}

// All but this process, whose starter is the same.
std::vector<ProcessStat> HostShare::processes() const {
  std::vector<ProcessStat> all = descendants_of(starter_);
  std::erase_if(all, [](const ProcessStat& one) { return one.process == getpid(); });
  return all;
}

HostRates HostShare::measure(const std::vector<ProcessStat>& all, Duration now) {
  HostRates rates;
  const HostTraffic::Rates network = traffic_.take(now);
  rates.used = {used_.take(all, now), network.sent, network.received};
  const bool is_governed = here_.capacity[static_cast<size_t>(HostResource::Transmit)] > 0;
  if (is_governed) rates.foreign = foreign_.take(device_bytes(device_), granted_, now);
  return rates;
}

std::vector<SendingEnd> HostShare::ends_of(const std::vector<servers::HostedProcess>& run) const {
  std::vector<SendingEnd> all;
  for (const servers::HostedProcess& one : run) {
    if (!one.lives() || one.address.empty()) continue;
    const bool is_here = one.process.host == here_.host;
    all.push_back({is_here, !is_here || device_ == kLoopback, one.address});
  }
  return all;
}

// By the device if the job lets it, otherwise by the transports themselves.
void HostShare::limit_sending(const std::vector<servers::HostedProcess>& run, double sent,
                              Round& round) {
  const double limit = lease_.limit(HostResource::Transmit);
  std::string told = told_of_sending_;
  if (control_.hold(limit, ends_of(run), jobs_)) {
    if (!control_.outcome().empty()) told = control_.outcome();
  } else if (limit > 0) {
    round.command.sending = traffic_.divide(limit);
    round.command.spared = traffic_.spared();
    told = control_.outcome().empty()
               ? "what the job sends is held to what the ledger allows it by the pace of its "
                 "transports"
               : control_.outcome();
  }
  if (told != told_of_sending_) round.events.push_back(told);
  told_of_sending_ = told;
  const std::string trouble = check_.look(sent, limit);
  if (!trouble.empty()) round.events.push_back(trouble);
}

std::optional<HostShare::Round> HostShare::advance(Duration now,
                                                   const std::vector<servers::HostedProcess>& run) {
  if (now < next_) return std::nullopt;
  next_ = now + kRound;
  std::map<WorkerId, std::string> hosts;
  for (const servers::HostedProcess& one : run) {
    if (one.lives()) hosts[one.process.number] = one.process.host;
  }
  traffic_.set_processes(std::move(hosts));
  const std::vector<ProcessStat> all = processes();
  const HostRates rates = measure(all, now);
  const LedgerCall call = lease_.next(rates, now);
  const Result<LedgerNews> news = ledger_.exchange(call);
  Round round;
  round.events = news.ok() ? lease_.take(news.value(), now) : lease_.fail(news.error().message);
  if (news.ok()) {
    const bool is_first = jobs_.empty();
    granted_ = news.value().granted;
    jobs_ = news.value().jobs;
    if (is_first) control_.remove_left_behind(jobs_);
  }
  std::vector<int32_t> numbers;
  for (const ProcessStat& one : all) {
    if (!one.has_ended) numbers.push_back(one.process);
  }
  const double cores = lease_.limit(HostResource::Cores);
  const bool is_held = governor_.hold(cores, numbers);
  if (!was_told_ && !governor_.outcome().empty()) {
    was_told_ = true;
    round.events.push_back(governor_.outcome());
  }
  round.command.may_leave = lease_.may_leave();
  // Without a group each part has the same share, servers count as nothing.
  if (!is_held) round.command.cores = cores / std::max(1, parts_);
  limit_sending(run, rates.used[static_cast<size_t>(HostResource::Transmit)], round);
  return round;
}

std::string HostShare::leave() {
  governor_.remove();
  control_.remove();
  const Status left = ledger_.leave();
  return left.ok() ? std::string() : left.error().message;
}

}  // namespace tenuto
