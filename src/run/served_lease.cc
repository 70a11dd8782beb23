#include "run/served_lease.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace tenuto {

namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// A use is the mean over so many calls.
constexpr size_t kMeans = 5;
// A lease ends by itself soon after its job hangs, and is renewed well before.
constexpr Duration kLeaseLength = minutes(2);
constexpr Duration kRenewBefore = seconds(40);
// A lease that is not used for so long is given back.
constexpr Duration kUnused = seconds(10);
// A chooser repeats its question each second as long as it thinks so.
constexpr Duration kWishLives = seconds(5);
// A refused job asks again after a pause, which doubles each time: its reasons rarely change fast.
constexpr Duration kFirstPause = seconds(5);
constexpr Duration kMostPause = minutes(5);
// A job that lends measures its use again when its iterations have become longer by this factor: it
// lends more than it thought.
constexpr double kSlowed = 1.1;

// In the units of the ledger, of cores or bytes per second.
double units_of(size_t resource) {
  return resource == static_cast<size_t>(HostResource::Cores) ? 1000 : 1;
}

}  // namespace

ServedLease::ServedLease(int32_t replicas, HostAmounts capacity)
    : capacity_(capacity), samples_(static_cast<size_t>(replicas)), pause_(kFirstPause) {}

void ServedLease::add(const servers::MeasuredIteration& iteration) {
  const int32_t replica = iteration.replica.value;
  if (replica < 0 || replica >= std::ssize(samples_) || !(iteration.share > 0)) return;
  samples_[static_cast<size_t>(replica)].add(iteration.time, iteration.share);
}

void ServedLease::set_mode(const SyncMode& mode) {
  const bool was_synchronous = is_synchronous();
  mode_ = mode;
  if (was_synchronous != is_synchronous()) used_.clear();
  if (!is_synchronous() && has_lease_) was_left_ = true;
}

void ServedLease::ask(const servers::AskReport& question, Duration now) {
  wish_ = Wish{std::isfinite(question.gain) ? question.gain : 0, now};
}

Duration ServedLease::longest() const {
  Duration most{};
  for (const TimeSamples& of : samples_) {
    const IterationTime mean = of.mean();
    most = std::max(most, mean.compute + mean.transfer);
  }
  return most;
}

void ServedLease::measure(const HostRates& rates) {
  used_.push_back(rates.used);
  if (used_.size() > kMeans) used_.pop_front();
  foreign_ = rates.foreign;
  if (has_lease_) return;
  const Duration now = longest();
  const bool is_slowed =
      static_cast<double>(now.count()) > kSlowed * static_cast<double>(measured_.count());
  if (lends_ && is_synchronous() && !is_slowed) return;
  measured_ = now;
  use_ = HostUse{};
  for (size_t r = 0; r < kHostResources; ++r) {
    if (is_governed(r)) announce(r, now);
  }
}

// The link of a replica is taken to be busy for the whole of its transfer, be it sending or
// receiving. So it has rather too little slack than too much.
void ServedLease::announce(size_t resource, Duration whole) {
  const auto add = [resource](double sum, const std::array<double, kHostResources>& one) {
    return sum + one[resource];
  };
  const double mean =
      std::accumulate(used_.begin(), used_.end(), 0.0, add) / static_cast<double>(used_.size());
  int64_t& use = use_.use[resource];
  int64_t& slack = use_.slack[resource];
  const double most = static_cast<double>(capacity_[resource]);
  use = std::llround(std::clamp(mean * units_of(resource), 0.0, most));
  if (is_synchronous()) {
    const bool is_cores = resource == static_cast<size_t>(HostResource::Cores);
    std::vector<Duration> busy, iteration;
    for (const TimeSamples& of : samples_) {
      if (of.all().empty()) continue;
      const IterationTime mean_time = of.mean();
      busy.push_back(is_cores ? mean_time.compute : mean_time.transfer);
      iteration.push_back(mean_time.compute + mean_time.transfer);
    }
    slack = slack_of(use, busy, iteration, whole);
  }
  const int64_t needed = use - slack;
  if (needed > 0) use_.sensitivity[resource] = 1 / static_cast<double>(needed);
}

// A replica that has not been heard of counts as the longest. Each iteration computes and sends as
// much as before, so all resources are used as many times more.
std::vector<LeaseOption> ServedLease::options() const {
  const auto whole = static_cast<double>(longest().count());
  double times = 0;  // as often as now each replica would make an iteration, all together
  for (const TimeSamples& of : samples_) {
    const IterationTime mean = of.mean();
    const auto own = static_cast<double>((mean.compute + mean.transfer).count());
    times += own > 0 && whole > 0 ? whole / own : 1;
  }
  times /= static_cast<double>(samples_.size());
  HostAmounts peak{};
  for (size_t r = 0; r < kHostResources; ++r) {
    const int64_t use = use_.use[r];
    const auto wanted = static_cast<int64_t>(std::llround(static_cast<double>(use) * times));
    peak[r] = std::clamp(wanted, use, std::max(use, capacity_[r] - foreign_[r]));
  }
  std::vector<LeaseOption> all;
  for (const int64_t halves : {2, 1, 0}) {
    LeaseOption option;
    // Progress grows with each resource up to its peak, and that which is short decides.
    double part = peak == HostAmounts{} ? 0 : 1;
    for (size_t r = 0; r < kHostResources; ++r) {
      option.more[r] = (peak[r] - use_.use[r]) * halves / 2;
      if (peak[r] == 0) continue;
      const auto has = static_cast<double>(use_.use[r] + option.more[r]);
      part = std::min(part, has / static_cast<double>(peak[r]));
    }
    option.gain = halves == 2 ? gain_ : (1 + gain_) * part - 1;
    if (all.empty() || (option.more != all.back().more && option.gain > 0)) all.push_back(option);
  }
  return all;
}

LedgerCall ServedLease::next(const HostRates& rates, Duration now) {
  measure(rates);
  if (wish_ && now - wish_->since > kWishLives) wish_.reset();
  LedgerCall call;
  call.use = use_;
  call.length = kLeaseLength;
  gives_back_ = has_lease_ && is_synchronous() && (was_left_ || now - granted_at_ >= kUnused);
  call.gives_back = gives_back_;
  if (gives_back_) wish_.reset();
  const bool renews = has_lease_ && !is_synchronous() && now >= std::max(renew_at_, ask_at_);
  const bool asks = !has_lease_ && is_synchronous() && wish_ && now >= ask_at_;
  if (asks) {
    gain_ = wish_->gain;
    wish_.reset();
  }
  if (asks || renews) call.options = options();
  return call;
}

std::string ServedLease::answer_text(const LeaseAnswer& answer, bool is_renewal) const {
  const char* what = answer.granted ? "the job may leave the synchronous mode"
                                    : "the job may not leave the synchronous mode";
  if (is_renewal) what = answer.granted ? "the lease is renewed" : "the lease is not renewed";
  return cat(what, ": ", answer.reason);
}

std::vector<std::string> ServedLease::take(const LedgerNews& news, Duration now) {
  std::vector<std::string> events;
  if (!failure_.empty()) events.emplace_back("the ledger of the host can be asked again");
  failure_.clear();
  const bool had_lease = has_lease_;
  has_lease_ = news.lease.has_value();
  lends_ = news.lends != HostAmounts{};
  for (const std::string& reason : news.ended) {
    events.push_back(cat("the lease has ended: ", reason));
  }
  if (had_lease && gives_back_) {
    events.emplace_back("the lease is given back: the mode is synchronous");
  }
  if (news.answer) {
    events.push_back(answer_text(*news.answer, had_lease));
    if (!news.answer->granted) {
      ask_at_ = now + pause_;
      pause_ = std::min(2 * pause_, kMostPause);
    } else {
      pause_ = kFirstPause;
      renew_at_ = now + news.lease->until - news.now - kRenewBefore;
      if (!had_lease) granted_at_ = now;
    }
  }
  if (!had_lease || !has_lease_) was_left_ = false;
  for (size_t r = 0; r < kHostResources; ++r) {
    const bool is_limited = is_governed(r) && (has_lease_ || news.lends[r] > 0);
    const double most = static_cast<double>(news.allowed[r]) / units_of(r);
    const bool is_cores = r == static_cast<size_t>(HostResource::Cores);
    limits_[r] = !is_limited ? 0 : is_cores ? most : std::max(most, kLeastHostRate);
  }
  return events;
}

std::vector<std::string> ServedLease::fail(const std::string& why) {
  has_lease_ = was_left_ = lends_ = false;
  limits_.fill(0);
  if (why == failure_) return {};
  failure_ = why;
  return {
      cat("the job may not leave the synchronous mode, because the ledger of the host cannot "
          "be asked: ",
          why)};
}

}  // namespace tenuto
