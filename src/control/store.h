// Where the coordinator writes down what it has decided, before it tells anyone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "control/treatment.h"
#include "ir/layer_move.h"

namespace tenuto {

// How a run ends.
struct Ending {
  int exit_code = 0;
  std::string sentence;  // what happened; empty = the job is done
  auto operator<=>(const Ending&) const = default;
};

// Why a step is abandoned for good, and how the run then ends.
struct LastResort {
  std::string cause;     // one sentence
  int exit_saved = 75;   // exit code when there is a checkpoint in the end
  int exit_bare = 75;    // exit code when there is none
  int64_t ceiling = -1;  // versions above this one are bad; -1 = all are good
  auto operator<=>(const LastResort&) const = default;
};

// The state that must outlive a coordinator: everything else is rebuilt from the workers' reports.
struct Facts {
  std::string run = {};    // the run of these facts: a store may still have those of an earlier run
  int64_t term = 0;        // how often a coordinator has taken office
  int64_t epoch = 0;       // of the membership
  int64_t committed = -1;  // this version is final
  // The version from which this epoch goes on or, while salvaging, the version to save; -1 = not
  // agreed on yet.
  int64_t target = -1;
  std::vector<WorkerId> members = {};      // of the epoch
  std::vector<int32_t> incarnations = {};  // of the members, see Report::incarnation
  std::vector<WorkerId> joiners = {};      // members that do not have the whole state yet
  // The members run only what is left of the step after `target`; the store does not say which ops.
  bool rest = false;
  bool begun = false;                 // the workers have been told to run
  bool grown = false;                 // see State::grown
  bool moving = false;                // a worker receives the state of a layer
  std::vector<LayerMove> moves = {};  // of layers, since the run began; see State::stages
  int64_t first_plan = 1;             // serial of the epoch's first plan
  int64_t plan = 1,
          plan_from = 0;  // serial of the newest plan; the step it is in force from, or -1
  // The names of the newest plan and of the one in force until then; see Planning::present_name.
  std::string plan_name = {}, previous_plan = {};
  std::optional<LastResort> last_resort = {};  // why the step is abandoned for good
  // The treatments of now; none: an earlier version of the program wrote the facts, or nobody did.
  std::optional<Treatments> treatments = {};
  std::optional<Ending> ending = {};
  auto operator<=>(const Facts&) const = default;
};

// The facts as one line of JSON, and back.
std::string to_json(const Facts& facts);
// Errors: Corrupt/Job with what is wrong; `origin` says where the text comes from.
Result<Facts> facts_from_json(std::string_view text, std::string_view origin);

// Keeps the facts. There is one writer; a coordinator that has lost this right cannot write again.
class Store {
 public:
  virtual ~Store() = default;
  // Replaces the facts. When it returns, they are as durable as this kind of store makes them.
  //
  // Errors: Exhausted/Job    no space is left
  //         Disconnected/Job the store is out of reach, or another coordinator is the writer by
  //                          now: the caller must not tell the workers anything any more
  virtual Status write(const Facts& facts) = 0;
  // The facts written last, by any writer; Facts{} in a fresh store.
  virtual Facts read() const = 0;
};

// Keeps the facts in memory: when the coordinator ends, so does the run.
class MemoryStore : public Store {
 public:
  Status write(const Facts& facts) override {
    facts_ = facts;
    return ok();
  }
  Facts read() const override { return facts_; }

 private:
  Facts facts_;
};

}  // namespace tenuto
