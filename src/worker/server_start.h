// What a process that keeps parameters begins with, be it a server or a part of a replica: the
// parameters of its ranges, and what a decider needs that lives there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "parameter_server/mode_choice.h"
#include "runtime/device.h"
#include "sync/chooser.h"
#include "sync/servers/decider.h"
#include "sync/servers/server_shard.h"
#include "world/job.h"

namespace tenuto {

// What is known of the parameters of one stage.
struct StageParameters {
  std::vector<float> initial;  // GivenParameters::initial_parameters
  int64_t decayed = 0;         // GivenParameters::decayed_count
};

// The parameters of a stage that the device holds.
//
// Errors: Invalid/Call  a device without GivenParameters; those of initial_parameters
Result<StageParameters> stage_parameters_of(Device& device, StageId stage);

// Makes the stores of the ranges that a process keeps.
class RangeStart {
 public:
  // `stages`: of the model, in order; one without parameters = none of its ranges are kept here.
  // `shards`: the files of the checkpoint from which the run goes on; empty = it begins with the
  // initial parameters.
  RangeStart(Job job, std::vector<StageParameters> stages, std::vector<std::string> shards);

  // The store of a range. As long as the run has not begun, with what the range begins with.
  //
  // Errors: Invalid/Call  a range that the model does not have, or of a stage that is not kept here
  //         those of MassStore::make, read_range and MassStore::load
  Result<std::unique_ptr<servers::ParameterStore>> make(const servers::ElementRange& range) const;

  // The run has begun. Keepers that come from now on get their range from the other keeper of it,
  // so the initial parameters are dropped: their memory is that of the whole model.
  void begin();

 private:
  Job job_;
  std::vector<StageParameters> stages_;
  std::vector<int64_t> elements_;  // of each stage; 0 = it is not kept here
  std::vector<std::string> shards_;
  bool has_begun_ = false;
};

// The chooser of the job's mode; null = the job names the mode, and nobody chooses.
//
// Errors: those of chooser_from_text
Result<std::unique_ptr<Chooser>> chooser_of(const Job& job);

// What the choice of the mode needs to know.
servers::ModeChoiceSettings mode_choice_of(const Job& job);

// The mode with which the job begins: that of the chooser, or that of the job. No replica has been
// heard of, so all count as equally fast. A chooser that has to ask before it leaves the
// synchronous mode (sync.ledger) begins with that.
//
// Errors: those of chooser_of, sync_mode_from_text and form
Result<SyncMode> first_mode_of(const Job& job);

// What the job's decider begins with. `shards` as in RangeStart. A run that goes on has the job's
// mode, or if that is "auto", the mode in which it was; with sync.ledger the synchronous one.
//
// Errors: those of first_mode_of and read_record; Invalid/Job  a checkpoint of another number of
//         replicas
Result<servers::DeciderStart> decider_start_of(const Job& job,
                                               const std::vector<std::string>& shards);

}  // namespace tenuto
