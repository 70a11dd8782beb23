// How a run with server shards shares its host: what it announces to the ledger of the host, when
// it asks for a lease, and when it gives one back.
//
// Idea:  the job's use is what its processes here use of the cores, send and receive in the
//        synchronous mode; one rule for all three (HostResource). It is measured as long as the
//        job neither has a lease nor lends; with either its use would say what the ledger has done
//        to it. In any other mode each replica begins its next iteration
//        at once, so it then uses as many times more as its iteration is shorter than the longest
//        one. The difference is what the job asks for, or a part of it, with the gain that is left
//        then.
// Right: tests/run/served_lease_test.cc
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "ir/sync_mode.h"
#include "parameter_server/host_message.h"
#include "run/host_ledger.h"
#include "sync/choose.h"

namespace tenuto {

// What was measured of a host since the round before.
struct HostRates {
  // By the processes of the job here: cores, and bytes per second.
  std::array<double, kHostResources> used{};
  // By others than the jobs of the ledger, as far as that is known, in the ledger's units.
  HostAmounts foreign{};
};

// Bytes per second.
inline constexpr double kLeastHostRate = 1e6;

// The automaton. It has no clock: moments are those of the caller, on one clock that never goes
// back. A round is next(), then take() or fail() with what came of it; one a second.
class ServedLease {
 public:
  // `capacity`: of the host; 0 = of this resource nothing is announced, asked for or limited
  ServedLease(int32_t replicas, HostAmounts capacity);

  // A replica has ended an iteration. One that the run does not have is ignored.
  void add(const servers::MeasuredIteration& iteration);
  // The mode in force.
  void set_mode(const SyncMode& mode);
  // The chooser would leave the synchronous mode. The question stands until it is asked, or for
  // some seconds.
  void ask(const servers::AskReport& question, Duration now);

  // What is to be said to the ledger.
  LedgerCall next(const HostRates& rates, Duration now);
  // The ledger's answer to that. Returns what is worth an event, as sentences.
  std::vector<std::string> take(const LedgerNews& news, Duration now);
  // The ledger cannot be asked: the job has no lease until it can. The same in return, once for
  // each reason.
  std::vector<std::string> fail(const std::string& why);

  // The chooser may leave the synchronous mode.
  bool may_leave() const { return has_lease_; }
  // The cores, or the bytes per second, that the job may use on average; 0 = no limit. A job that
  // neither borrows nor lends the resource has none: what it uses is its own. Bytes are never
  // limited to less than kLeastHostRate, so that a run goes on.
  double limit(HostResource resource) const { return limits_[static_cast<size_t>(resource)]; }

 private:
  bool is_synchronous() const { return mode_.kind == SyncKind::Synchronous; }
  bool is_governed(size_t resource) const { return capacity_[resource] > 0; }
  void measure(const HostRates& rates);
  void announce(size_t resource, Duration whole);
  Duration longest() const;
  std::vector<LeaseOption> options() const;
  std::string answer_text(const LeaseAnswer& answer, bool is_renewal) const;

  const HostAmounts capacity_;
  std::vector<TimeSamples> samples_;  // of each replica
  SyncMode mode_;
  std::deque<std::array<double, kHostResources>> used_;  // in the last seconds in this mode
  HostAmounts foreign_{};
  HostUse use_;          // that is announced
  Duration measured_{};  // the longest iteration when it was measured
  // A mode that the chooser would like, since when, and what it gains.
  struct Wish {
    double gain = 0;
    Duration since{};
  };
  std::optional<Wish> wish_;
  double gain_ = 0;  // of the wish that was asked for last
  bool has_lease_ = false, was_left_ = false, lends_ = false, gives_back_ = false;
  Duration granted_at_{}, renew_at_{}, ask_at_{};  // ask_at_: not before this moment
  Duration pause_;                                 // after the next refusal
  std::array<double, kHostResources> limits_{};
  std::string failure_;  // of the ledger; empty = it can be asked
};

}  // namespace tenuto
