#include "seeded/seeded.h"

#include <array>
#include <atomic>

namespace tenuto {

namespace {

std::atomic<Seeded> on{Seeded::None};  // read by the threads of all workers

constexpr std::array kNames = {"none",    "FENCE",   "UNDO",      "PHASE",       "FIRST", "AHEAD",
                               "KEEPACC", "JOURNAL", "DECISION",  "INPLACE",     "TOTAL", "STALE",
                               "NOKEEP",  "NOREDO",  "FREETOTAL", "UNCOMMITTED", "NOTAG", "ATTEMPT",
                               "REDONE",  "LOSSES",  "EARLY",     "FORGETS"};

}  // namespace

bool is_seeded(Seeded bug) { return on == bug; }

void seed(Seeded bug) { on = bug; }

const char* name_of(Seeded bug) { return kNames[static_cast<size_t>(bug)]; }

}  // namespace tenuto
