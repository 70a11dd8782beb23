#include "sync/ledger.h"

#include <algorithm>
#include <cmath>
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
      return cat(number / 1e3, " cores");
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

// What may be taken from the job still; below 0 when it has lent more than it may now.
HostAmounts HostLedger::lendable(HostJob job, bool beyond) const {
  const HostUse& use = jobs_.at(job).use;
  const LeasedPart lent_now = lent(job);
  HostAmounts left{};
  for (size_t r = 0; r < kHostResources; ++r) {
    const auto needed = static_cast<double>(use.use[r] - use.slack[r]);
    left[r] = beyond ? static_cast<int64_t>(needed * rules_.most_beyond) - lent_now.beyond[r]
                     : use.slack[r] - lent_now.slack[r];
  }
  return left;
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
  for (const Lease& lease : leases_) {
    for (size_t r = 0; r < kHostResources && lease.job == job; ++r) sum[r] += lease.amount[r];
  }
  return sum;
}

// True when every lease takes what is there to be taken.
bool HostLedger::fits() const {
  for (size_t r = 0; r < kHostResources; ++r) {
    for (const auto& [job, entry] : jobs_) {
      if (lendable(job, false)[r] < 0 || lendable(job, true)[r] < 0) return false;
    }
    int64_t leased = 0, unused_part = 0;
    for (const Lease& lease : leases_) {
      leased += lease.amount[r];
      unused_part += lease.unused[r];
    }
    if (leased > 0 && used(r) + unused_part > capacity_[r]) return false;
  }
  return true;
}

Result<std::vector<EndedLease>> HostLedger::announce(HostJob job, const HostUse& use,
                                                     Duration now) {
  if (!in_range(use.use) || !in_range(use.slack)) {
    return invalid(cat("job ", job, " of host ", host_, ": expected a use and a slack from 0 to ",
                       kMostHostAmount));
  }
  for (size_t r = 0; r < kHostResources; ++r) {
    if (use.slack[r] > use.use[r] || !(use.loss[r] >= 0) || !std::isfinite(use.loss[r])) {
      return invalid(cat("job ", job, " of host ", host_,
                         ": expected at most as much slack as use, and a loss of at least 0"));
    }
  }
  auto ended = advance(now);
  if (!ended.ok()) return ended.error();
  if (!knows(job) && jobs_.size() >= kMostHostJobs) {
    return Error{Code::Exhausted, Reach::Call,
                 cat("host ", host_, ": expected at most ", kMostHostJobs,
                     " jobs in its ledger; end one before another begins")};
  }
  jobs_[job] = {use, now};
  while (!fits()) {  // the newest lease goes until the others fit
    ended.value().push_back({std::move(leases_.back()),
                             cat("job ", job, " of host ", host_, " announced another use")});
    leases_.pop_back();
  }
  return ended;
}

// Adds this resource of the request to the lease. False when there is not as much.
bool HostLedger::take(const LeaseRequest& request, size_t resource, Lease& lease) const {
  int64_t needed = request.more[resource];
  lease.amount[resource] = needed;
  lease.unused[resource] = std::min(needed, unused()[resource]);
  needed -= lease.unused[resource];
  if (used(resource) > capacity_[resource]) return false;
  struct Source {
    HostJob job;
    int64_t slack = 0, beyond = 0;
    double loss = 0;
  };
  std::vector<Source> sources;
  for (const auto& [job, entry] : jobs_) {
    const bool borrows =
        std::any_of(leases_.begin(), leases_.end(),
                    [&name = job](const Lease& other) { return other.job == name; });
    if (job == request.job || borrows) continue;
    sources.push_back({job, lendable(job, false)[resource], lendable(job, true)[resource],
                       entry.use.loss[resource]});
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& left, const Source& right) {
    return left.slack > right.slack;
  });
  for (const Source& from : sources) {
    const int64_t taken = std::min(needed, from.slack);
    if (taken > 0) part_of(lease, from.job).slack[resource] += taken;
    needed -= taken;
  }
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Source& left, const Source& right) { return left.loss < right.loss; });
  for (const Source& from : sources) {
    const int64_t taken = std::min(needed, from.beyond);
    if (taken <= 0) continue;
    LeasedPart& part = part_of(lease, from.job);
    part.beyond[resource] += taken;
    part.loss += static_cast<double>(taken) * from.loss;
    needed -= taken;
  }
  return needed == 0;
}

std::string HostLedger::refusal(const LeaseRequest& request, size_t resource) const {
  Lease most;
  LeaseRequest all = request;
  all.more[resource] = kMostHostAmount;
  (void)take(all, resource, most);
  int64_t slack = 0;
  for (const LeasedPart& part : most.parts) slack += part.slack[resource];
  const auto kind = static_cast<HostResource>(resource);
  return cat("host ", host_, ": job ", request.job, " needs ",
             host_amount_text(kind, request.more[resource]), " more, and there are ",
             host_amount_text(kind, most.unused[resource]), " unused and ",
             host_amount_text(kind, slack), " of others' slack");
}

Result<LeaseAnswer> HostLedger::ask(const LeaseRequest& request, Duration now) {
  if (!in_range(request.more) || !std::isfinite(request.gain) || request.length.count() <= 0) {
    return invalid(cat("job ", request.job, " of host ", host_, ": expected an amount from 0 to ",
                       kMostHostAmount, ", a gain and a length above 0 in what it asks for"));
  }
  const auto ended = advance(now);
  if (!ended.ok()) return ended.error();
  if (!knows(request.job)) {
    return invalid(cat("job ", request.job, " of host ", host_,
                       ": expected that it had announced its use before it asks for more"));
  }
  const LeasedPart lends = lent(request.job);
  if (lends.slack != HostAmounts{} || lends.beyond != HostAmounts{}) {
    return LeaseAnswer{false, cat("host ", host_, ": job ", request.job,
                                  " lends to others, so it keeps its mode until they give back")};
  }
  // The job's older lease does not stand in its own way.
  const std::vector<Lease> before = leases_;
  release(request.job);
  Lease lease;
  lease.job = request.job;
  lease.gain = request.gain;
  lease.until = now + std::min(request.length, rules_.most_length);
  std::string refused;
  for (size_t r = 0; r < kHostResources && refused.empty(); ++r) {
    if (request.more[r] > 0 && !take(request, r, lease)) refused = refusal(request, r);
  }
  lease.loss = loss_of(lease);
  if (refused.empty() && takes_beyond(lease) && !(lease.gain > lease.loss)) {
    refused = cat("host ", host_, ": job ", request.job, " would gain ", fixed(100 * lease.gain, 1),
                  " % of its progress, and others would lose ", fixed(100 * lease.loss, 1), " %");
  }
  if (!refused.empty()) {
    leases_ = before;
    return LeaseAnswer{false, refused};
  }
  leases_.push_back(lease);
  return LeaseAnswer{true, cat("host ", host_, ": job ", request.job, " may take ",
                               host_amount_text(HostResource::Cores, lease.amount[0]), ", ",
                               host_amount_text(HostResource::Transmit, lease.amount[1]), " and ",
                               host_amount_text(HostResource::Receive, lease.amount[2]),
                               " more until ", seconds_text(lease.until), "; others lose ",
                               fixed(100 * lease.loss, 1), " % of their progress")};
}

void HostLedger::release(HostJob job) {
  std::erase_if(leases_, [job](const Lease& lease) { return lease.job == job; });
}

void HostLedger::leave(HostJob job) {
  release(job);
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
  CHECK(fits(), "no more is leased than before");
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
  for (const HostJob job : gone) leave(job);
}

}  // namespace tenuto
