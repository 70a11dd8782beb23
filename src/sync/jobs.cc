#include "sync/jobs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "sync/simulator.h"
#include "sync/trial.h"

namespace tenuto {

namespace {

// Jobs ask again this often, for leases that last twice as long.
constexpr Duration kAskEvery = std::chrono::seconds(5);
// A job asks for this many parts of what it could use beyond its use, for one less, ... for none.
constexpr int64_t kAskParts = 4;
// No job comes later than this.
constexpr Duration kLastArrival = std::chrono::hours(24);
// Offers of each replica in the simulation from which a job knows what it would gain.
constexpr int64_t kGainOffers = 40;

SyncMode mode_of(SyncKind kind) {
  SyncMode mode;
  mode.kind = kind;
  return mode;
}

double ratio(int64_t part, int64_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

HostJob name_of(size_t job) { return {static_cast<int32_t>(job)}; }

int64_t peak_of(const SharedJob& job) { return job.here * job.cores; }

// The times if the first `here` replicas compute at this speed.
IterationTimes slowed_times(IterationTimes times, int32_t here, double speed) {
  return [times = std::move(times), here, speed](int32_t replica, int64_t number, Duration now) {
    IterationTime time = times(replica, number, now);
    if (replica >= here) return time;
    const auto compute = static_cast<double>(time.compute.count());
    time.compute = Duration(static_cast<int64_t>(std::ceil(compute / speed)));
    return time;
  };
}

// Cores with which the replicas on the host end together with the slowest of all, on average.
int64_t need_of(const SharedJob& job, uint64_t seed) {
  std::vector<Duration> busy, iteration;
  Duration longest{};
  for (const IterationTime& mean : mean_times(job.scenario, seed)) {
    busy.push_back(mean.compute);
    iteration.push_back(mean.compute + mean.transfer);
    longest = std::max(longest, iteration.back());
  }
  const auto here = static_cast<size_t>(job.here);
  const int64_t peak = peak_of(job);
  const int64_t slack = slack_of(peak, std::span<const Duration>(busy).first(here),
                                 std::span<const Duration>(iteration).first(here), longest);
  return std::max<int64_t>(1, peak - slack);
}

// True when the job has made the progress that ends it.
bool is_done(const SharedJob& job, Mass applied, const SyncSimulator& simulator, double kappa) {
  const double age = simulator.measure().mean_age;
  const double worth = value_of_gradient(age, job.scenario.replicas, kappa);
  return static_cast<double>(applied.micros) * worth >= job.gradients;
}

// The time of a synchronous job with these cores, for itself.
Result<Duration> alone_time(const SharedJob& job, uint64_t seed, int64_t cores, double kappa) {
  Mass applied;
  SyncHooks hooks;
  hooks.applied = [&applied](const Update& update) { applied += mass_of(update); };
  const IterationTimes times =
      slowed_times(times_of(job.scenario, seed), job.here, ratio(cores, peak_of(job)));
  auto made = SyncSimulator::make(
      {{SyncMode{}, job.scenario.replicas, 1, {}, {}}, times, job.scenario.apply},
      std::move(hooks));
  if (!made.ok()) return made.error();
  SyncSimulator simulator = std::move(made).value();
  Mass before;
  while (simulator.step()) {
    if (applied == before) continue;
    before = applied;
    if (is_done(job, applied, simulator, kappa)) break;
  }
  return simulator.now();
}

// One simulation of a host.
class HostRun {
 public:
  HostRun(const SharedHost& host, HostSharing sharing, HostLedger ledger);
  HostRun(const HostRun&) = delete;
  HostRun& operator=(const HostRun&) = delete;
  Status run();
  const SharedResult& result(size_t job) const { return jobs_[job].result; }
  int64_t need(size_t job) const { return jobs_[job].need; }
  int64_t most_allowed() const { return most_allowed_; }

 private:
  struct Job {
    IterationTimes times;
    std::optional<SyncSimulator> simulator;
    SharedResult result;
    std::vector<bool> computes;  // each replica on the host
    // Per second, if the job has so many cores for itself.
    std::map<std::pair<SyncKind, int64_t>, double> progress;
    int64_t need = 0, peak = 0, use = 0, allowed = 0;
    Mass applied;
    bool ended = false;
    bool runs() const { return simulator && !ended; }
  };
  struct Next {
    Duration at{};
    size_t job = 0;
  };
  bool has_ledger() const { return sharing_ != HostSharing::NoLedger; }
  std::optional<Next> next() const;
  Status arrive(size_t at);
  Status step(size_t at);
  void set_computing(size_t at, ReplicaId replica, bool computes);
  Status set_mode(size_t at, SyncKind kind);
  double progress(size_t at, SyncKind kind, int64_t cores);
  std::vector<int64_t> uses() const;
  Status announce();
  Status ask();
  Status share();
  void divide();

  const SharedHost& host_;
  HostSharing sharing_;
  HostLedger ledger_;
  std::vector<Job> jobs_;
  Duration now_{};
  bool changed_ = false;  // who computes, or what a job is allowed, since the cores were divided
  int64_t most_allowed_ = 0;
};

HostRun::HostRun(const SharedHost& host, HostSharing sharing, HostLedger ledger)
    : host_(host), sharing_(sharing), ledger_(std::move(ledger)), jobs_(host.jobs.size()) {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const SharedJob& is = host.jobs[i];
    Job& job = jobs_[i];
    const uint64_t seed = mix(host.seed, i);
    job.times = times_of(is.scenario, seed);
    job.peak = peak_of(is);
    job.need = need_of(is, seed);
    job.result.least = job.peak;
    job.computes.resize(static_cast<size_t>(is.here));
  }
}

// The job's progress per second if it has so many cores for itself.
double HostRun::progress(size_t at, SyncKind kind, int64_t cores) {
  Job& job = jobs_[at];
  const auto key = std::pair(kind, cores);
  if (const auto found = job.progress.find(key); found != job.progress.end()) {
    return found->second;
  }
  const SharedJob& is = host_.jobs[at];
  const int32_t replicas = is.scenario.replicas;
  const IterationTimes times = slowed_times(job.times, is.here, ratio(cores, job.peak));
  const auto measure =
      simulate_sync({{mode_of(kind), replicas, 1, {}, {}}, times, is.scenario.apply},
                    {replicas, {}, kGainOffers * replicas, 0, {}});
  CHECK(measure.ok(), "a mode that is formed, and a limit");
  const double worth = value_of_gradient(measure.value().mean_age, replicas, host_.kappa);
  return job.progress[key] = measure.value().gradients_per_second * worth;
}

void HostRun::set_computing(size_t at, ReplicaId replica, bool computes) {
  if (replica.value >= host_.jobs[at].here) return;
  jobs_[at].computes[static_cast<size_t>(replica.value)] = computes;
  changed_ = true;
}

Status HostRun::set_mode(size_t at, SyncKind kind) {
  Job& job = jobs_[at];
  if (job.simulator->rule().mode().kind == kind) return ok();
  job.result.was_asynchronous |= kind == SyncKind::Asynchronous;
  job.simulator->advance_to(now_ - host_.jobs[at].arrives);
  return job.simulator->change(mode_of(kind));
}

Status HostRun::arrive(size_t at) {
  const SharedJob& is = host_.jobs[at];
  Job& job = jobs_[at];
  SyncHooks hooks;
  hooks.begun = [this, at](const Release& release, const IterationTime&) {
    set_computing(at, release.offer.replica, true);
  };
  hooks.computed = [this, at](ReplicaId replica) { set_computing(at, replica, false); };
  hooks.applied = [&job](const Update& update) { job.applied += mass_of(update); };
  auto made = SyncSimulator::make(
      {{SyncMode{}, is.scenario.replicas, 1, {}, {}}, job.times, is.scenario.apply},
      std::move(hooks));
  if (!made.ok()) return made.error();
  job.simulator.emplace(std::move(made).value());
  if (has_ledger()) return share();
  const bool leaves = is.may_leave && progress(at, SyncKind::Asynchronous, job.peak) >
                                          progress(at, SyncKind::Synchronous, job.peak);
  return leaves ? set_mode(at, SyncKind::Asynchronous) : ok();
}

// The next event of a job, and its end if it has come.
Status HostRun::step(size_t at) {
  Job& job = jobs_[at];
  const Mass before = job.applied;
  job.simulator->step();
  if (job.applied == before) return ok();
  if (!is_done(host_.jobs[at], job.applied, *job.simulator, host_.kappa)) return ok();
  job.ended = true;
  job.result.time = job.simulator->now();
  changed_ = true;
  if (!has_ledger()) return ok();
  ledger_.remove(name_of(at));
  return share();
}

// Of each job: its need, and the same part of what it could use beyond it. A host that has not even
// the needs divides what it has by them.
std::vector<int64_t> HostRun::uses() const {
  int64_t need = 0, more = 0;
  for (const Job& job : jobs_) {
    if (!job.runs()) continue;
    need += job.need;
    more += job.peak - job.need;
  }
  const double of_need = need > host_.cores ? ratio(host_.cores, need) : 1;
  const double of_more = more == 0 ? 0 : std::clamp(ratio(host_.cores - need, more), 0.0, 1.0);
  std::vector<int64_t> all(jobs_.size());
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (!job.runs()) continue;
    all[i] = static_cast<int64_t>(static_cast<double>(job.need) * of_need) +
             static_cast<int64_t>(static_cast<double>(job.peak - job.need) * of_more);
    all[i] = std::max<int64_t>(1, all[i]);
  }
  return all;
}

// Who uses less than before announces it first, so that the sum is never more than there is.
Status HostRun::announce() {
  const std::vector<int64_t> wanted = uses();
  for (const bool less : {true, false}) {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (!job.runs() || (wanted[i] < job.use) != less) continue;
      job.use = wanted[i];
      HostUse use;
      use.use[0] = job.use;
      use.slack[0] = std::max<int64_t>(0, job.use - job.need);
      // A replica that computes all the time is slowed by the part that it lacks, others by less.
      use.sensitivity[0] = 1 / static_cast<double>(job.use - use.slack[0]);
      const auto ended = ledger_.announce(name_of(i), use, now_);
      if (!ended.ok()) return ended.error();
    }
  }
  return ok();
}

Status HostRun::ask() {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    if (!job.runs() || !host_.jobs[i].may_leave) continue;
    LeaseRequest request{name_of(i), {}, 2 * kAskEvery};
    const double own = progress(i, SyncKind::Synchronous, job.use);
    for (int64_t part = kAskParts; part >= 0; --part) {
      LeaseOption option;
      option.more[0] = (job.peak - job.use) * part / kAskParts;
      option.gain = progress(i, SyncKind::Asynchronous, job.use + option.more[0]) / own - 1;
      if (option.gain > 0) request.options.push_back(option);
    }
    if (request.options.empty()) {
      ledger_.give_back(name_of(i));
      continue;
    }
    const auto answer = ledger_.ask(request, now_);
    if (!answer.ok()) return answer.error();
    if (!answer.value().granted) job.result.refusal = answer.value().reason;
  }
  return ok();
}

// Announces, asks, and does what came of it.
Status HostRun::share() {
  if (const Status done = announce(); !done.ok()) return done;
  if (const Status done = ask(); !done.ok()) return done;
  changed_ = true;
  int64_t allowed = 0;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    if (!job.runs()) continue;
    SharedResult& of = job.result;
    job.allowed = ledger_.allowed(name_of(i))[0];
    allowed += job.allowed;
    of.least = std::min(of.least, job.allowed);
    const LeasedPart lent = ledger_.lent(name_of(i));
    of.lent_slack = std::max(of.lent_slack, lent.slack[0]);
    of.lent_beyond = std::max(of.lent_beyond, lent.beyond[0]);
    const Lease* lease = ledger_.lease_of(name_of(i));
    if (lease != nullptr) of.borrowed = std::max(of.borrowed, lease->amount[0]);
    const Status set =
        set_mode(i, lease != nullptr ? SyncKind::Asynchronous : SyncKind::Synchronous);
    if (!set.ok()) return set;
  }
  most_allowed_ = std::max(most_allowed_, allowed);
  return ok();
}

// Gives all replicas that compute their speeds.
void HostRun::divide() {
  if (!changed_) return;
  changed_ = false;
  std::vector<CoreDemand> demands(jobs_.size());
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (!job.runs()) continue;
    demands[i].replicas = std::count(job.computes.begin(), job.computes.end(), true);
    demands[i].most = static_cast<double>(host_.jobs[i].cores);
    demands[i].weight = has_ledger() ? ratio(job.allowed, host_.jobs[i].here) : demands[i].most;
  }
  const std::vector<double> each = divide_cores(static_cast<double>(host_.cores), demands);
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (demands[i].replicas == 0) continue;
    SyncSimulator& simulator = *jobs_[i].simulator;
    simulator.advance_to(now_ - host_.jobs[i].arrives);
    for (int32_t replica = 0; replica < host_.jobs[i].here; ++replica) {
      if (!jobs_[i].computes[static_cast<size_t>(replica)]) continue;
      simulator.set_speed({replica}, each[i] / demands[i].most);
    }
  }
}

// The job with the next event, or the one that comes next.
std::optional<HostRun::Next> HostRun::next() const {
  std::optional<Next> first;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i].ended) continue;
    Duration at = host_.jobs[i].arrives;
    if (jobs_[i].simulator) {
      const std::optional<Duration> local = jobs_[i].simulator->next_at();
      CHECK(local, "a replica that computes");
      at += *local;
    }
    if (!first || at < first->at) first = Next{at, i};
  }
  return first;
}

Status HostRun::run() {
  Duration tick = kAskEvery;
  while (const std::optional<Next> first = next()) {
    Status done = ok();
    if (has_ledger() && tick <= first->at) {
      now_ = tick;
      tick += kAskEvery;
      done = share();
    } else {
      now_ = first->at;
      done = jobs_[first->job].simulator ? step(first->job) : arrive(first->job);
    }
    if (!done.ok()) return done;
    divide();
  }
  return ok();
}

Status check_job(const SharedHost& host, const SharedJob& job) {
  const SyncScenario& is = job.scenario;
  const bool has_times = is.base.compute.count() > 0 && is.base.transfer.count() >= 0 &&
                         is.apply.count() >= 0 && job.arrives.count() >= 0 &&
                         job.arrives <= kLastArrival;
  const bool has_replicas = job.here >= 1 && job.here <= is.replicas && is.phases.size() <= 1 &&
                            has_right_phases(is) && (is.replicas >= 2 || !job.may_leave);
  const bool has_cores = job.cores >= 1 && job.cores <= host.cores / std::max(1, job.here);
  const bool has_end =
      job.gradients > 0 && job.gradients <= static_cast<double>(kMostSharedGradients);
  if (has_times && has_replicas && has_cores && has_end) return ok();
  return invalid(cat("job ", job.name, " of host ", host.name,
                     ": expected replicas on the host (two in all if it may leave synchrony) with "
                     "at least 0.001 and together at most all of its cores, at most one phase, "
                     "which lasts, times above 0, an arrival within a day, and at most ",
                     kMostSharedGradients, " gradients; correct the job"));
}

Status check_host(const SharedHost& host) {
  const auto jobs = static_cast<int64_t>(host.jobs.size());
  if (jobs < 1 || host.jobs.size() > kMostHostJobs || host.cores < 1000 * jobs ||
      host.cores > kMostHostAmount) {
    return invalid(cat("host ", host.name, ": expected 1 to ", kMostHostJobs,
                       " jobs and at least a core for each, found ", jobs, " jobs and ",
                       host_amount_text(HostResource::Cores, host.cores)));
  }
  if (!(host.kappa >= 0 && host.kappa <= kMostKappa)) {
    return invalid(cat("host ", host.name, ": expected a kappa from 0 to ", kMostKappa, ", found ",
                       host.kappa));
  }
  for (const SharedJob& job : host.jobs) {
    if (const Status sound = check_job(host, job); !sound.ok()) return sound;
  }
  return ok();
}

}  // namespace

std::string to_text(HostSharing sharing) {
  constexpr std::array<const char*, kHostSharings> kNames = {"ledger", "no prevention",
                                                             "no ledger"};
  return kNames[static_cast<size_t>(sharing)];
}

double SharedOutcome::slowed(HostSharing sharing) const {
  return ratio(of(sharing).time.count(), alone.count()) - 1;
}

double SharedOutcome::bound(HostSharing sharing) const {
  return std::max(0.0, ratio(need, of(sharing).least) - 1);
}

std::vector<double> divide_cores(double cores, std::span<const CoreDemand> demands) {
  // Who gets all that it can use first, as the cores per weight grow, comes first.
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return demands[left].most * demands[right].weight < demands[right].most * demands[left].weight;
  });
  double weights = 0;
  for (const CoreDemand& of : demands) weights += static_cast<double>(of.replicas) * of.weight;
  std::vector<double> each(demands.size());
  for (const size_t i : order) {
    const CoreDemand& of = demands[i];
    const auto replicas = static_cast<double>(of.replicas);
    if (replicas == 0) continue;
    each[i] = std::min(of.most, cores * of.weight / weights);
    cores -= replicas * each[i];
    weights -= replicas * of.weight;
  }
  return each;
}

Result<SharedReport> simulate_host(const SharedHost& host) {
  if (const Status sound = check_host(host); !sound.ok()) return sound.error();
  HostAmounts has{};
  has[0] = host.cores;
  SharedReport report;
  report.jobs.resize(host.jobs.size());
  for (size_t way = 0; way < kHostSharings; ++way) {
    const auto sharing = static_cast<HostSharing>(way);
    LedgerRules rules;
    rules.takes_from_others = sharing != HostSharing::NoPrevention;
    auto ledger = HostLedger::make(host.name, has, rules);
    if (!ledger.ok()) return ledger.error();
    HostRun run(host, sharing, std::move(ledger).value());
    if (const Status done = run.run(); !done.ok()) return done.error();
    report.most_allowed = std::max(report.most_allowed, run.most_allowed());
    for (size_t i = 0; i < host.jobs.size(); ++i) {
      report.jobs[i].need = run.need(i);
      report.jobs[i].results[way] = run.result(i);
    }
  }
  for (size_t i = 0; i < host.jobs.size(); ++i) {
    SharedOutcome& of = report.jobs[i];
    of.peak = peak_of(host.jobs[i]);
    const auto alone = alone_time(host.jobs[i], mix(host.seed, i), of.need, host.kappa);
    if (!alone.ok()) return alone.error();
    of.alone = alone.value();
  }
  return report;
}

SharedHost two_job_host(uint64_t seed) {
  SharedJob stays;
  stays.name = "stays";
  stays.scenario.base = {from_milliseconds(80), from_milliseconds(20)};
  stays.scenario.apply = from_milliseconds(1);
  stays.here = 4;
  SharedJob leaves = stays;
  leaves.name = "leaves";
  leaves.cores = 2000;
  leaves.may_leave = true;
  SlowPhase slow_link;
  slow_link.slow.push_back({7, 1, 6});
  leaves.scenario.phases.push_back(slow_link);
  SharedHost host;
  host.cores = 8000;
  host.jobs = {stays, leaves};
  host.seed = seed;
  return host;
}

SharedHost random_host(uint64_t seed, int32_t jobs) {
  Random random(mix(seed, 20));
  SharedHost host;
  host.seed = seed;
  double arrives_ms = 0;
  for (int32_t i = 0; i < jobs; ++i) {
    SharedJob job;
    job.name = cat("job", i);
    job.arrives = from_milliseconds(arrives_ms);
    job.scenario.base = {from_milliseconds(80), from_milliseconds(20)};
    job.scenario.apply = from_milliseconds(1);
    const double factor = 1.5 + 2.5 * random.uniform();
    const int64_t kind = random.below(3);
    SlowPhase phase;
    if (kind == 1) phase.slow.push_back({7, factor, 1});
    if (kind == 2) phase.slow.push_back({7, 1, 3 * factor});
    job.scenario.phases.push_back(phase);
    job.here = static_cast<int32_t>(2 + random.below(4));
    job.cores = 1000 * (1 + random.below(2));
    job.gradients = static_cast<double>(1000 + random.below(1001));
    job.may_leave = random.below(2) == 1;
    host.jobs.push_back(job);
    arrives_ms += -5000 * std::log(1 - random.uniform());
  }
  return host;
}

std::string to_text(const SharedHost& host, const SharedReport& report) {
  constexpr size_t kWidth = 10;
  const auto cores = [](int64_t amount) { return fixed(static_cast<double>(amount) / 1000, 2); };
  const auto seconds = [](Duration time) { return fixed(to_milliseconds(time) / 1000, 2); };
  const auto percent = [](double part) { return cat(fixed(100 * part, 1), "%"); };
  std::vector<std::vector<std::string>> rows = {{"job", "arrives", "peak", "need", "alone",
                                                 "ledger", "at most", "no prev.", "no ledger",
                                                 "slack", "beyond", "borrowed", "mode"}};
  for (size_t i = 0; i < report.jobs.size(); ++i) {
    const SharedJob& job = host.jobs[i];
    const SharedOutcome& of = report.jobs[i];
    const SharedResult& with = of.of(HostSharing::Ledger);
    const char* mode = job.may_leave ? "may leave" : "stays";
    rows.push_back({job.name, seconds(job.arrives), cores(of.peak), cores(of.need),
                    seconds(of.alone), percent(of.slowed(HostSharing::Ledger)),
                    with.was_asynchronous ? "-" : percent(of.bound(HostSharing::Ledger)),
                    percent(of.slowed(HostSharing::NoPrevention)),
                    percent(of.slowed(HostSharing::NoLedger)), cores(with.lent_slack),
                    cores(with.lent_beyond), cores(with.borrowed),
                    with.was_asynchronous ? "left" : mode});
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (const std::string& cell : row) {
      text += std::string(cell.size() < kWidth ? kWidth - cell.size() : 1, ' ') + cell;
    }
    text += "\n";
  }
  return text;
}

}  // namespace tenuto
