// The store that a job asks for.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/store.h"
#include "world/job.h"

namespace tenuto {

// Opens it; no other coordinator can write there while it is open. `directory`: of the run.
// `before`: the process of a dead coordinator of this host, whose lease in etcd need not expire
// first; 0 = none.
//
// Errors: as open_journal and open_etcd
Result<std::unique_ptr<Store>> open_store(const Job& job, const std::string& directory, int before);

}  // namespace tenuto
