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

int64_t thousandths(double cores) { return std::llround(1000 * cores); }

}  // namespace

ServedLease::ServedLease(int32_t replicas, int64_t capacity)
    : capacity_(capacity), samples_(static_cast<size_t>(replicas)), pause_(kFirstPause) {}

void ServedLease::add(const servers::MeasuredIteration& iteration) {
  const int32_t replica = iteration.replica.value;
  if (replica < 0 || replica >= std::ssize(samples_) || !(iteration.share > 0)) return;
  samples_[static_cast<size_t>(replica)].add(iteration.time, iteration.share);
}

void ServedLease::set_mode(const SyncMode& mode) {
  const bool was_synchronous = is_synchronous();
  mode_ = mode;
  if (was_synchronous != is_synchronous()) cores_.clear();
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

void ServedLease::measure(double cores) {
  cores_.push_back(cores);
  if (cores_.size() > kMeans) cores_.pop_front();
  if (has_lease_) return;
  const Duration now = longest();
  const bool is_slowed =
      static_cast<double>(now.count()) > kSlowed * static_cast<double>(measured_.count());
  if (lends_ && is_synchronous() && !is_slowed) return;
  measured_ = now;
  const double mean =
      std::accumulate(cores_.begin(), cores_.end(), 0.0) / static_cast<double>(cores_.size());
  use_ = HostUse{};
  use_.use[0] = std::clamp<int64_t>(thousandths(mean), 0, capacity_);
  if (is_synchronous()) {
    std::vector<Duration> busy, iteration;
    for (const TimeSamples& of : samples_) {
      if (of.all().empty()) continue;
      busy.push_back(of.mean().compute);
      iteration.push_back(of.mean().compute + of.mean().transfer);
    }
    use_.slack[0] = slack_of(use_.use[0], busy, iteration, now);
  }
  const int64_t needed = use_.use[0] - use_.slack[0];
  if (needed > 0) use_.sensitivity[0] = 1 / static_cast<double>(needed);
}

// A replica that has not been heard of counts as the longest.
std::vector<LeaseOption> ServedLease::options() const {
  const auto whole = static_cast<double>(longest().count());
  double times = 0;  // as often as now each replica would make an iteration, all together
  for (const TimeSamples& of : samples_) {
    const IterationTime mean = of.mean();
    const auto own = static_cast<double>((mean.compute + mean.transfer).count());
    times += own > 0 && whole > 0 ? whole / own : 1;
  }
  times /= static_cast<double>(samples_.size());
  const int64_t use = use_.use[0];
  const auto wanted = static_cast<int64_t>(std::llround(static_cast<double>(use) * times));
  const int64_t peak = std::clamp(wanted, use, std::max(use, capacity_));
  std::vector<LeaseOption> all;
  all.push_back({{peak - use, 0, 0}, gain_});
  for (const int64_t more : {(peak - use) / 2, int64_t{0}}) {
    if (more == all.back().more[0] || peak == 0) continue;
    // Progress grows with the cores up to the peak.
    const double part = static_cast<double>(use + more) / static_cast<double>(peak);
    const double gain = (1 + gain_) * part - 1;
    if (gain > 0) all.push_back({{more, 0, 0}, gain});
  }
  return all;
}

LedgerCall ServedLease::next(double cores, Duration now) {
  measure(cores);
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
  lends_ = news.lends > 0;
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
  limit_ = has_lease_ || lends_ ? static_cast<double>(news.allowed) / 1000 : 0;
  return events;
}

std::vector<std::string> ServedLease::fail(const std::string& why) {
  has_lease_ = was_left_ = lends_ = false;
  limit_ = 0;
  if (why == failure_) return {};
  failure_ = why;
  return {
      cat("the job may not leave the synchronous mode, because the ledger of the host cannot "
          "be asked: ",
          why)};
}

}  // namespace tenuto
