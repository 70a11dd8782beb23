#include "sync/ledger.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

bool in_range(const HostAmounts& amounts) {
  return std::all_of(amounts.begin(), amounts.end(),
                     [](int64_t one) { return one >= 0 && one <= kMostHostAmount; });
}

// The part of a lease that comes from this job; made if there is none.
LeasedPart& part_of(Lease& lease, HostJob from) {
  for (LeasedPart& part : lease.parts) {
    if (part.from == from) return part;
  }
  lease.parts.push_back({from, {}, {}, 0});
  return lease.parts.back();
}

double loss_of(const Lease& lease) {
  double sum = 0;
  for (const LeasedPart& part : lease.parts) sum += part.loss;
  return sum;
}

bool takes_beyond(const Lease& lease) {
  return std::any_of(lease.parts.begin(), lease.parts.end(),
                     [](const LeasedPart& part) { return part.beyond != HostAmounts{}; });
}

std::string seconds_text(Duration moment) {
  return cat(fixed(to_milliseconds(moment) / 1000, 1), " s");
}

}  // namespace

std::string host_amount_text(HostResource resource, int64_t amount) {
  const auto number = static_cast<double>(amount);
  switch (resource) {
    case HostResource::Cores:
      return cat(number / 1e3, amount == 1000 ? " core" : " cores");
    case HostResource::Transmit:
      return cat(number / 1e6, " MB/s of sending");
    default:
      return cat(number / 1e6, " MB/s of receiving");
  }
}

int64_t slack_of(int64_t use, std::span<const Duration> busy, std::span<const Duration> iteration,
                 Duration longest) {
  CHECK(busy.size() == iteration.size(), "one time of work per iteration");
  double needed = 0;  // of the use, so that the replica with the least slack is not late
  for (size_t i = 0; i < busy.size(); ++i) {
    const auto work = static_cast<double>(busy[i].count());
    const auto waits = static_cast<double>(std::max(Duration{}, longest - iteration[i]).count());
    if (work > 0) needed = std::max(needed, work / (work + waits));
  }
  if (busy.empty()) return 0;
  return static_cast<int64_t>(std::floor(static_cast<double>(use) * (1 - needed)));
}

Result<HostLedger> HostLedger::make(std::string host, HostAmounts capacity, LedgerRules rules) {
  if (!in_range(capacity)) {
    return invalid(cat("host ", host, ": expected amounts from 0 to ", kMostHostAmount,
                       " in the ledger; correct its capacity"));
  }
  const bool sound = rules.silence.count() > 0 && rules.most_length.count() > 0 &&
                     rules.most_beyond >= 0 && rules.most_beyond <= 1;
  if (!sound) {
    return invalid(cat("host ", host,
                       ": expected times above 0 and a part from 0 to 1 in the ledger's rules"));
  }
  return HostLedger(std::move(host), capacity, rules);
}

Status HostLedger::move_to(Duration now) {
  if (now < now_) {
    return invalid(cat("host ", host_, ": expected no moment before ", seconds_text(now_),
                       ", found ", seconds_text(now)));
  }
  now_ = now;
  return ok();
}

LeasedPart HostLedger::lent(HostJob job) const {
  LeasedPart sum{job, {}, {}, 0};
  for (const Lease& lease : leases_) {
    for (const LeasedPart& part : lease.parts) {
      if (part.from != job) continue;
      for (size_t r = 0; r < kHostResources; ++r) {
        sum.slack[r] += part.slack[r];
        sum.beyond[r] += part.beyond[r];
      }
      sum.loss += part.loss;
    }
  }
  return sum;
}

HostLedger::Lendable HostLedger::lendable(HostJob job, size_t resource) const {
  const HostUse& of = jobs_.at(job).use;
  const LeasedPart lent_now = lent(job);
  const int64_t needed = of.use[resource] - of.slack[resource];
  const auto most = static_cast<int64_t>(static_cast<double>(needed) * rules_.most_beyond);
  return {of.slack[resource] - lent_now.slack[resource], most - lent_now.beyond[resource]};
}

int64_t HostLedger::used(size_t resource) const {
  int64_t sum = 0;
  for (const auto& [job, entry] : jobs_) sum += entry.use.use[resource];
  return sum;
}

HostAmounts HostLedger::unused() const {
  HostAmounts left = capacity_;
  for (size_t r = 0; r < kHostResources; ++r) {
    left[r] -= used(r);
    for (const Lease& lease : leases_) left[r] -= lease.unused[r];
    left[r] = std::max<int64_t>(0, left[r]);
  }
  return left;
}

HostAmounts HostLedger::allowed(HostJob job) const {
  if (!knows(job)) return {};
  HostAmounts sum = jobs_.at(job).use.use;
  const LeasedPart less = lent(job);
  for (size_t r = 0; r < kHostResources; ++r) sum[r] -= less.slack[r] + less.beyond[r];
  const Lease* lease = lease_of(job);
  for (size_t r = 0; r < kHostResources && lease != nullptr; ++r) sum[r] += lease->amount[r];
  return sum;
}

const Lease* HostLedger::lease_of(HostJob job) const {
  const auto found = std::find_if(leases_.begin(), leases_.end(),
                                  [job](const Lease& lease) { return lease.job == job; });
  return found == leases_.end() ? nullptr : &*found;
}

// True when the lease takes what is not there any more.
bool HostLedger::lacks(const Lease& lease) const {
  for (size_t r = 0; r < kHostResources; ++r) {
    if (lease.amount[r] == 0) continue;
    int64_t unused_parts = 0;
    for (const Lease& one : leases_) unused_parts += one.unused[r];
    if (used(r) > capacity_[r]) return true;
    if (lease.unused[r] > 0 && used(r) + unused_parts > capacity_[r]) return true;
    for (const LeasedPart& part : lease.parts) {
      const Lendable left = lendable(part.from, r);
      if (part.slack[r] > 0 && left.slack < 0) return true;
      if (part.beyond[r] > 0 && left.beyond < 0) return true;
    }
  }
  return false;
}

Result<std::vector<EndedLease>> HostLedger::announce(HostJob job, const HostUse& use,
                                                     Duration now) {
  if (!in_range(use.use) || !in_range(use.slack)) {
    return invalid(cat("job ", job, " of host ", host_, ": expected a use and a slack from 0 to ",
                       kMostHostAmount, " in what it announces"));
  }
  for (size_t r = 0; r < kHostResources; ++r) {
    const double sensitivity = use.sensitivity[r];
    if (use.slack[r] > use.use[r] || !(sensitivity >= 0) || !std::isfinite(sensitivity)) {
      return invalid(cat("job ", job, " of host ", host_,
                         ": expected at most as much slack as use, and a sensitivity of at least 0,"
                         " found a slack of ",
                         use.slack[r], ", a use of ", use.use[r], " and a sensitivity of ",
                         sensitivity));
    }
  }
  if (!knows(job) && jobs_.size() >= kMostHostJobs) {
    return Error{Code::Exhausted, Reach::Call,
                 cat("host ", host_, ": expected at most ", kMostHostJobs,
                     " jobs in its ledger; end one before another begins")};
  }
  auto ended = advance(now);
  if (!ended.ok()) return ended.error();
  jobs_[job] = {use, now};
  for (;;) {  // the newest lease goes until the others have what they take
    const auto lacking = std::find_if(leases_.rbegin(), leases_.rend(),
                                      [this](const Lease& lease) { return lacks(lease); });
    if (lacking == leases_.rend()) return ended;
    ended.value().push_back(
        {*lacking, cat("job ", job, " of host ", host_, " announced another use")});
    leases_.erase(std::next(lacking).base());
  }
}

// Adds so much of a resource to the lease: what nobody uses, then slack, of the job with the most
// first, then what is beyond it, of the job that loses least first. Returns what is missing.
int64_t HostLedger::take(size_t resource, int64_t needed, Lease& lease) const {
  if (used(resource) > capacity_[resource]) return needed;
  lease.unused[resource] = std::min(needed, unused()[resource]);
  needed -= lease.unused[resource];
  if (!rules_.takes_from_others) return needed;
  struct Source {
    HostJob job;
    Lendable most;
    double sensitivity = 0;
  };
  std::vector<Source> sources;
  for (const auto& [job, entry] : jobs_) {
    if (job == lease.job || lease_of(job) != nullptr) continue;
    sources.push_back({job, lendable(job, resource), entry.use.sensitivity[resource]});
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& left, const Source& right) {
    return left.most.slack > right.most.slack;
  });
  for (const Source& from : sources) {
    const int64_t taken = std::min(needed, from.most.slack);
    if (taken <= 0) continue;
    part_of(lease, from.job).slack[resource] += taken;
    needed -= taken;
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& left, const Source& right) {
    return left.sensitivity < right.sensitivity;
  });
  for (const Source& from : sources) {
    const int64_t taken = std::min(needed, from.most.beyond);
    if (taken <= 0) continue;
    LeasedPart& part = part_of(lease, from.job);
    part.beyond[resource] += taken;
    part.loss += static_cast<double>(taken) * from.sensitivity;
    needed -= taken;
  }
  return needed;
}

// Why the job cannot have so much.
std::string HostLedger::refusal(HostJob job, size_t resource, int64_t needed) const {
  const auto text = [resource](int64_t amount) {
    return host_amount_text(static_cast<HostResource>(resource), amount);
  };
  const std::string begin =
      cat("host ", host_, ": job ", job, " needs ", text(needed), " more, and ");
  if (used(resource) > capacity_[resource]) {
    return cat(begin, "all jobs together use ", text(used(resource)), ", where there are ",
               text(capacity_[resource]));
  }
  const std::string free = cat(text(unused()[resource]), " unused");
  if (!rules_.takes_from_others) return cat(begin, "there are ", free);
  Lease most;
  most.job = job;
  (void)take(resource, kMostHostAmount, most);
  int64_t slack = 0, beyond = 0;
  for (const LeasedPart& part : most.parts) {
    slack += part.slack[resource];
    beyond += part.beyond[resource];
  }
  return cat(begin, "there are ", free, ", ", text(slack), " of others' slack and ", text(beyond),
             " that may be taken beyond it");
}

// Makes a lease of the option. Returns why that is not possible, or nothing.
std::string HostLedger::fill(const LeaseOption& option, Lease& lease) const {
  lease.amount = option.more;
  lease.gain = option.gain;
  for (size_t r = 0; r < kHostResources; ++r) {
    if (option.more[r] > 0 && take(r, option.more[r], lease) > 0) {
      return refusal(lease.job, r, option.more[r]);
    }
  }
  lease.loss = loss_of(lease);
  if (!takes_beyond(lease) || lease.gain > lease.loss) return {};
  return cat("host ", host_, ": job ", lease.job, " would gain ", fixed(100 * lease.gain, 1),
             " % of its progress, and others would lose ", fixed(100 * lease.loss, 1), " %");
}

Result<LeaseAnswer> HostLedger::ask(const LeaseRequest& request, Duration now) {
  bool sound = !request.options.empty() && request.length.count() > 0;
  for (const LeaseOption& option : request.options) {
    sound = sound && in_range(option.more) && std::isfinite(option.gain);
  }
  if (!sound) {
    return invalid(cat("job ", request.job, " of host ", host_,
                       ": expected at least one option with an amount from 0 to ", kMostHostAmount,
                       " and a gain, and a length above 0 in what it asks for"));
  }
  auto ended = advance(now);
  if (!ended.ok()) return ended.error();
  LeaseAnswer answer;
  answer.ended = std::move(ended).value();
  if (!knows(request.job)) {
    answer.reason = cat("host ", host_, ": job ", request.job,
                        " has to announce its use before it asks, and again every ",
                        seconds_text(rules_.silence));
    return answer;
  }
  const LeasedPart lends = lent(request.job);
  if (lends.slack != HostAmounts{} || lends.beyond != HostAmounts{}) {
    answer.reason = cat("host ", host_, ": job ", request.job,
                        " lends to others, so it keeps its mode until they give back");
    return answer;
  }
  // The job's older lease does not stand in its own way.
  const std::vector<Lease> before = leases_;
  give_back(request.job);
  std::optional<Lease> best;
  for (const LeaseOption& option : request.options) {
    Lease lease;
    lease.job = request.job;
    lease.until = now + std::min(request.length, rules_.most_length);
    const std::string refused = fill(option, lease);
    if (answer.reason.empty()) answer.reason = refused;
    if (!refused.empty()) continue;
    if (!best || lease.gain - lease.loss > best->gain - best->loss) best = std::move(lease);
  }
  answer.granted = best.has_value();
  if (!best) {
    leases_ = before;
    return answer;
  }
  answer.reason = cat("host ", host_, ": job ", best->job, " may take ",
                      host_amount_text(HostResource::Cores, best->amount[0]), ", ",
                      host_amount_text(HostResource::Transmit, best->amount[1]), " and ",
                      host_amount_text(HostResource::Receive, best->amount[2]), " more until ",
                      seconds_text(best->until), "; others lose ", fixed(100 * best->loss, 1),
                      " % of their progress");
  leases_.push_back(std::move(*best));
  return answer;
}

void HostLedger::give_back(HostJob job) {
  std::erase_if(leases_, [job](const Lease& lease) { return lease.job == job; });
}

void HostLedger::remove(HostJob job) {
  give_back(job);
  jobs_.erase(job);
  for (Lease& lease : leases_) {
    for (const LeasedPart& part : lease.parts) {
      for (size_t r = 0; r < kHostResources && part.from == job; ++r) {
        lease.unused[r] += part.slack[r] + part.beyond[r];
      }
    }
    std::erase_if(lease.parts, [job](const LeasedPart& part) { return part.from == job; });
    lease.loss = loss_of(lease);
  }
}

Result<std::vector<EndedLease>> HostLedger::advance(Duration now) {
  const Status moved = move_to(now);
  if (!moved.ok()) return moved.error();
  std::vector<EndedLease> ended;
  drop_ended(ended);
  return ended;
}

void HostLedger::drop_ended(std::vector<EndedLease>& ended) {
  for (const Lease& lease : leases_) {
    const bool silent = jobs_.at(lease.job).heard + rules_.silence <= now_;
    if (!silent && lease.until > now_) continue;
    ended.push_back({lease, silent ? cat("job ", lease.job, " of host ", host_, " is gone")
                                   : cat("its time was over at ", seconds_text(lease.until))});
  }
  std::erase_if(leases_, [this](const Lease& lease) { return lease.until <= now_; });
  std::vector<HostJob> gone;
  for (const auto& [job, entry] : jobs_) {
    if (entry.heard + rules_.silence <= now_) gone.push_back(job);
  }
  for (const HostJob job : gone) remove(job);
}

}  // namespace tenuto
