// What the jobs of one host use of it, and who lends what to whom.
//
// A job that leaves the synchronous mode computes and sends while it waited before, so it takes
// more of the host than before, and slows the jobs beside it. So it asks first. What nobody uses is
// given first, then the slack of others: what they could do without and not delay their updates.
// More is taken only if the asker's gain in progress exceeds the others' loss.
//
// A pure automaton: the moment comes in with each call, and equal calls give equal answers.
//
// Source: the questions (what is free, what others can do without, what they lose) are those of
// Zhang, Shen, "Straggler tolerant and resilient DL training on homogeneous GPUs", 2025; the
// answers are ours (docs/decisions/085-jobs-ask-before-they-take-more.md).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// A job of a host.
using HostJob = Id<struct HostJobTag>;

// What a host has of each kind.
enum class HostResource : uint8_t { Cores, Transmit, Receive };
inline constexpr size_t kHostResources = 3;
// Thousandths of a core, and bytes per second.
using HostAmounts = std::array<int64_t, kHostResources>;
// No host has more of anything, so that sums over all its jobs are exact.
inline constexpr int64_t kMostHostAmount = int64_t{1} << 48;
inline constexpr size_t kMostHostJobs = 64;
// The amount with its unit: "2.5 cores", "1 core", "12.5 MB/s of sending".
std::string host_amount_text(HostResource resource, int64_t amount);

// What a job says of itself, as if it had neither borrowed nor lent anything.
struct HostUse {
  HostAmounts use{};    // what it may take
  HostAmounts slack{};  // of this, what its updates do not need
  // The part of its own progress that it loses for each unit that is taken beyond its slack.
  std::array<double, kHostResources> sensitivity{};
};

// What replicas of one job could do without: replica i may stretch its work from `busy[i]` to
// busy[i] + (the longest iteration - iteration[i]). All are slowed by the same factor, so the
// replica with the least slack decides.
//
// Shapes: busy, iteration: per replica on this host; `longest`: over the replicas of all hosts
// Units:  as `use`
int64_t slack_of(int64_t use, std::span<const Duration> busy, std::span<const Duration> iteration,
                 Duration longest);

// What a lease takes from another job.
struct LeasedPart {
  HostJob from;
  HostAmounts slack{}, beyond{};
  double loss = 0;  // of the giver's progress, by what is beyond its slack
};
// What a job may take on top of its own use, until a moment.
struct Lease {
  HostJob job;
  HostAmounts amount{};
  HostAmounts unused{};           // of it, what nobody used
  std::vector<LeasedPart> parts;  // the rest, by giver
  double gain = 0, loss = 0;      // parts of the progress of the asker, and of the givers
  Duration until{};
};
// One amount that a job could put to use.
struct LeaseOption {
  HostAmounts more{};  // on top of its use; nothing, if it needs a lease and no more than its use
  double gain = 0;     // the part by which its progress would grow
};
// What a job asks for: one of several amounts.
struct LeaseRequest {
  HostJob job;
  std::vector<LeaseOption> options;
  Duration length{};  // from now on
};
// A lease that ended before its job gave it back.
struct EndedLease {
  Lease lease;
  std::string reason;
};
// Granted or refused, and why, in a sentence.
struct LeaseAnswer {
  bool granted = false;
  std::string reason;
  std::vector<EndedLease> ended;  // of other jobs, and the job's own if its time was over
};

// How long jobs are believed, and how much is taken from them.
struct LedgerRules {
  Duration silence = std::chrono::seconds(30);      // a job that announces nothing is gone
  Duration most_length = std::chrono::minutes(10);  // of a lease
  double most_beyond = 0.5;  // of what a job needs for its updates, others may take at most this
  bool takes_from_others = true;  // false = only what nobody uses is leased
};

// The ledger of one host. Nothing is leased of what the jobs use more of than there is. A job has
// at most one lease. A job that has lent something cannot borrow, and one that has borrowed does
// not lend: it does not wait, so it has no slack. A call that returns an error changes nothing.
class HostLedger {
 public:
  // Errors: Invalid/Call  a capacity below 0 or beyond kMostHostAmount; rules out of range
  static Result<HostLedger> make(std::string host, HostAmounts capacity, LedgerRules rules = {});

  // What a job uses from now on. Leases end, newest first, if they take what is not there any more.
  // Returns all that have ended.
  //
  // Errors: Invalid/Call  amounts below 0 or beyond kMostHostAmount; more slack than use; a
  //         sensitivity below 0; a moment before the last one; Exhausted/Call  more than
  //         kMostHostJobs jobs
  Result<std::vector<EndedLease>> announce(HostJob job, const HostUse& use, Duration now);
  // Asks for a lease. Of the options that can be granted, the one with the most gain less loss is,
  // the first of them if several are equal; a refusal gives the reason of the first option. An
  // option can be granted if there is as much, and, where it takes from others beyond their slack,
  // if its gain is above their loss. A granted lease takes the place of the job's older one; after
  // a refusal the older one stays.
  //
  // Errors: Invalid/Call  no option; an amount below 0 or beyond kMostHostAmount; a gain that is no
  //         number; a length that is not above 0; a moment before the last one
  // Cost:   options x jobs x parts of all leases
  Result<LeaseAnswer> ask(const LeaseRequest& request, Duration now);
  // The job gives its lease back. Nothing happens if it has none.
  void give_back(HostJob job);
  // The job has ended, and with it its lease. What it had lent belongs to nobody from then on, so
  // those leases stay.
  void remove(HostJob job);
  // Ends leases whose time is over, and those of jobs that have been silent for too long, which are
  // gone.
  //
  // Errors: Invalid/Call  a moment before the last one
  Result<std::vector<EndedLease>> advance(Duration now);

  // What nobody uses and nobody has leased; 0 where the jobs use more than there is.
  HostAmounts unused() const;
  // What the job may take now: its use, less what it lends, plus its lease. Zero for an unknown
  // job.
  HostAmounts allowed(HostJob job) const;
  // The job's lease; nullptr = it has none. Valid until the next call that is not const.
  const Lease* lease_of(HostJob job) const;
  // What the job lends, over all leases.
  LeasedPart lent(HostJob job) const;
  // In the order in which they were granted.
  const std::vector<Lease>& leases() const { return leases_; }
  // Whether the job has announced its use and is not gone.
  bool knows(HostJob job) const { return jobs_.count(job) > 0; }
  // The host's name.
  const std::string& host() const { return host_; }
  // Whether no job is known.
  bool is_empty() const { return jobs_.empty(); }

 private:
  friend std::string to_text(const HostLedger& ledger);
  friend Result<HostLedger> ledger_from_text(std::string_view text, const std::string& path,
                                             int64_t first_line, LedgerRules rules);
  struct Entry {
    HostUse use;
    Duration heard{};
  };
  HostLedger(std::string host, HostAmounts capacity, LedgerRules rules)
      : host_(std::move(host)), capacity_(capacity), rules_(rules) {}
  Status move_to(Duration now);
  int64_t used(size_t resource) const;
  // What may still be taken from the job; below 0 when it lends more than it may now.
  struct Lendable {
    int64_t slack = 0, beyond = 0;
  };
  Lendable lendable(HostJob job, size_t resource) const;
  bool lacks(const Lease& lease) const;
  int64_t take(size_t resource, int64_t needed, Lease& lease) const;
  std::string refusal(HostJob job, size_t resource, int64_t needed) const;
  std::string fill(const LeaseOption& option, Lease& lease) const;
  void drop_ended(std::vector<EndedLease>& ended);

  std::string host_;
  HostAmounts capacity_;
  LedgerRules rules_;
  Duration now_{};
  std::map<HostJob, Entry> jobs_;
  std::vector<Lease> leases_;
};

// All that the ledger knows but its rules, as lines (docs/formats.md, ledger file). The last line
// is "end".
//
// Requires: a host whose name is one word
std::string to_text(const HostLedger& ledger);

// The ledger of this text. `path` and `first_line`, the number of the text's first line in that
// file, are for error sentences.
//
// Errors: Invalid/Call  a line that is not as to_text writes it, with its number; those of
//         HostLedger::make
Result<HostLedger> ledger_from_text(std::string_view text, const std::string& path,
                                    int64_t first_line = 1, LedgerRules rules = {});

}  // namespace tenuto
