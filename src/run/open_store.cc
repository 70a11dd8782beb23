#include "run/open_store.h"

#include <unistd.h>

#include "base/host.h"
#include "base/text.h"
#include "control/etcd.h"
#include "control/journal.h"

namespace tenuto {
namespace {

// A coordinator that cannot reach etcd for so long may get a successor. This time is shorter than
// the one after which the launcher considers the coordinator stalled.
constexpr Duration kLease = std::chrono::seconds(3);
// How long the lease of a coordinator elsewhere may take to expire.
constexpr Duration kTakeLimit = std::chrono::seconds(15);

// The name of a coordinator, for etcd and for people.
std::string holder(int process) { return cat(host_name(), ", process ", process); }

}  // namespace

Result<std::unique_ptr<Store>> open_store(const Job& job, const std::string& directory,
                                          int before) {
  if (job.coordinator.store == "memory") {
    return std::unique_ptr<Store>(std::make_unique<MemoryStore>());
  }
  if (job.coordinator.store == "journal") return open_journal(directory + "/coordinator.journal");
  return open_etcd({.endpoints = job.coordinator.etcd,
                    .job = job.name,
                    .holder = holder(getpid()),
                    .before = before == 0 ? std::string() : holder(before),
                    .lease = kLease,
                    .take_limit = kTakeLimit});
}

}  // namespace tenuto
