// The store in an etcd cluster, for runs whose coordinator may move to another host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "control/store.h"

namespace tenuto {

// What a store in etcd is made with. The office is the leadership of the job, see open_etcd().
struct EtcdSettings {
  std::vector<std::string> endpoints;  // host:port of the members; asked in turn
  std::string job;                     // names the keys: /tenuto/JOB/office and /tenuto/JOB/facts
  std::string holder;                  // this coordinator, for people: "host, process N"
  // A holder that is known to be dead: its office is taken over at once. Empty = none.
  std::string before = {};
  Duration lease{};       // office is lost when etcd hears nothing for so long; >= 1 s
  Duration take_limit{};  // to wait for another holder's office to end
};

// Takes office, that is, becomes the leader of the job: waits while the office key of another
// holder exists, then creates its own, under a lease that a thread keeps alive. Each write is a
// transaction that requires this very key, so a coordinator that was away for longer than its lease
// can no longer write, and so can neither commit nor send instructions. The destructor gives up the
// office.
//
// Errors: Invalid/Job       the lease is below a second, or no endpoint is given
//         Disconnected/Job  no endpoint answers
//         Timeout/Job       another holder still has the office; says which
//         Corrupt/Job       the facts there cannot be read
Result<std::unique_ptr<Store>> open_etcd(const EtcdSettings& settings);

}  // namespace tenuto
