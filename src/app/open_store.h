// The store that a job asks for.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/store.h"
#include "world/job.h"

namespace tenuto {

// Opens it: no other coordinator writes there as long as it lives. `directory`: of the run.
// `before`: the process of a coordinator on this host that is dead, whose office in etcd need not
// run out first; 0 = none.
//
// Errors: as open_journal and open_etcd
Result<std::unique_ptr<Store>> open_store(const Job& job, const std::string& directory, int before);

}  // namespace tenuto
