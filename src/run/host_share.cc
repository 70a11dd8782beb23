#include "run/host_share.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace tenuto {

namespace {

constexpr Duration kRound = std::chrono::seconds(1);

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

HostShare::HostShare(const Job& job, int32_t starter)
    : starter_(starter),
      parts_(job.worker_count()),
      here_(ledger_file_here(job.sync.ledger)),
      ledger_(here_),
      lease_(job.parallel.pipelines, here_.capacity[0]),
      governor_(governor_here(here_.job, here_.started, here_.started_of)) {}

// All but this process, whose starter is the same.
std::vector<ProcessStat> HostShare::processes() const {
  std::vector<ProcessStat> all = descendants_of(starter_);
  std::erase_if(all, [](const ProcessStat& one) { return one.process == getpid(); });
  return all;
}

std::optional<HostShare::Round> HostShare::advance(Duration now) {
  if (now < next_) return std::nullopt;
  next_ = now + kRound;
  const std::vector<ProcessStat> all = processes();
  const LedgerCall call = lease_.next(used_.take(all, now), now);
  const Result<LedgerNews> news = ledger_.exchange(call);
  Round round;
  round.events = news.ok() ? lease_.take(news.value(), now) : lease_.fail(news.error().message);
  std::vector<int32_t> numbers;
  for (const ProcessStat& one : all) {
    if (!one.has_ended) numbers.push_back(one.process);
  }
  const bool is_held = governor_.hold(lease_.limit(), numbers);
  if (!was_told_ && !governor_.outcome().empty()) {
    was_told_ = true;
    round.events.push_back(governor_.outcome());
  }
  round.command.may_leave = lease_.may_leave();
  // Without a group each part has the same share, servers count as nothing.
  if (!is_held) round.command.cores = lease_.limit() / std::max(1, parts_);
  return round;
}

std::string HostShare::leave() {
  governor_.remove();
  const Status left = ledger_.leave();
  return left.ok() ? std::string() : left.error().message;
}

}  // namespace tenuto
