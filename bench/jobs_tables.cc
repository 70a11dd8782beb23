#include "bench/jobs_tables.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "sync/jobs.h"
#include "sync/paired.h"

namespace tenuto {

namespace {

// Simulated times are rounded to nanoseconds, each time that a speed changes.
constexpr double kRounding = 1e-5;

// Jobs of one sort under one way to share the host.
struct Jobs {
  int count = 0;
  int left = 0;  // were asynchronous at some time
  // Never left, and were slowed by more than their ledger took; without one, by more than the
  // ledger takes from them in the same place.
  int above = 0;
  double most = 0, bound = 0;          // the largest ones of a job
  std::vector<double> seconds, alone;  // sums over such jobs of a seed

  void add(const SharedOutcome& outcome, HostSharing sharing, bool is_first_of_seed) {
    if (is_first_of_seed) {
      seconds.push_back(0);
      alone.push_back(0);
    }
    const SharedResult& result = outcome.of(sharing);
    seconds.back() += to_milliseconds(result.time) / 1000;
    alone.back() += to_milliseconds(outcome.alone) / 1000;
    const double slowed = outcome.slowed(sharing);
    ++count;
    left += result.was_asynchronous;
    most = count == 1 ? slowed : std::max(most, slowed);
    bound = std::max(bound, outcome.bound(sharing));
    const bool has_ledger = sharing != HostSharing::NoLedger;
    const double allowed = outcome.bound(has_ledger ? sharing : HostSharing::Ledger);
    above += !result.was_asynchronous && slowed > allowed + kRounding;
  }
  // Of the mean time against the mean time alone; seeds are the samples.
  PairedRatio slowed() const {
    return seconds.empty() ? PairedRatio{1, 0} : paired_ratio(seconds, alone);
  }
  nlohmann::ordered_json json() const {
    return {{"jobs", count},
            {"slowed", slowed().value - 1},
            {"error", slowed().error},
            {"most_slowed", most},
            {"bound", bound},
            {"above_bound", above},
            {"left", left}};
  }
};

// Both sorts of jobs, by HostSharing.
struct Measured {
  std::array<Jobs, kHostSharings> stay, may_leave;
};

using HostMaker = std::function<SharedHost(uint64_t seed)>;

Result<Measured> measure(const JobsQuestion& question, const HostMaker& host_of, bool shows_first) {
  Measured all;
  for (int i = 0; i < question.seeds; ++i) {
    SharedHost host = host_of(question.first_seed + static_cast<uint64_t>(i));
    host.kappa = question.kappa;
    const auto report = simulate_host(host);
    if (!report.ok()) return report.error();
    if (i == 0 && shows_first) std::printf("%s\n", to_text(host, report.value()).c_str());
    bool has_stay = false, has_may_leave = false;
    for (size_t job = 0; job < host.jobs.size(); ++job) {
      const bool may_leave = host.jobs[job].may_leave;
      bool& has_one = may_leave ? has_may_leave : has_stay;
      for (size_t way = 0; way < kHostSharings; ++way) {
        Jobs& of = may_leave ? all.may_leave[way] : all.stay[way];
        of.add(report.value().jobs[job], static_cast<HostSharing>(way), !has_one);
      }
      has_one = true;
    }
  }
  return all;
}

void print_rows(const char* name, const std::array<Jobs, kHostSharings>& jobs) {
  std::printf("%-26s %5s %9s %7s %9s %9s %6s %5s\n", name, "jobs", "slowed", "s.e.", "most",
              "at most", "above", "left");
  for (size_t way = 0; way < kHostSharings; ++way) {
    const Jobs& of = jobs[way];
    const PairedRatio slowed = of.slowed();
    const auto percent = [](double part) { return cat(fixed(100 * part, 1), "%"); };
    const auto sharing = static_cast<HostSharing>(way);
    const bool has_bound = sharing != HostSharing::NoLedger;
    std::printf("%-26s %5d %9s %7s %9s %9s %6d %5d\n", to_text(sharing).c_str(), of.count,
                percent(slowed.value - 1).c_str(), percent(slowed.error).c_str(),
                percent(of.most).c_str(), has_bound ? percent(of.bound).c_str() : "-", of.above,
                of.left);
  }
}

void print_tables(const std::string& title, const Measured& measured) {
  std::printf("%s\n", title.c_str());
  print_rows("stay synchronous", measured.stay);
  print_rows("may leave synchrony", measured.may_leave);
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json json_of(const Measured& measured) {
  nlohmann::ordered_json tree;
  for (size_t way = 0; way < kHostSharings; ++way) {
    tree[to_text(static_cast<HostSharing>(way))] = {{"stay", measured.stay[way].json()},
                                                    {"may_leave", measured.may_leave[way].json()}};
  }
  return tree;
}

}  // namespace

Status print_jobs(const JobsQuestion& question) {
  const auto two = measure(question, two_job_host, !question.json);
  if (!two.ok()) return two.error();
  if (!question.json) print_tables("two jobs, one of which may leave synchrony", two.value());
  const auto random_hosts = [&question](uint64_t seed) { return random_host(seed, question.jobs); };
  const auto many = measure(question, random_hosts, !question.json);
  if (!many.ok()) return many.error();
  if (!question.json) {
    print_tables(cat("random hosts with ", question.jobs, " jobs each"), many.value());
    return ok();
  }
  const nlohmann::ordered_json tree = {{"two_jobs", json_of(two.value())},
                                       {"random_jobs", json_of(many.value())}};
  std::printf("%s\n", tree.dump().c_str());
  return ok();
}

}  // namespace tenuto
