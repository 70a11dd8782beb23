// A part of a replica of several stages joins the other parts: for each formation
// (parameter_server/formation.h) it makes a wire, says where it listens, and connects to the parts
// of lower stages. Only then it has placed the members, so the decider gives it no work before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "parameter_server/formation.h"
#include "parameter_server/host_message.h"

namespace tenuto::servers {

// How long a part waits for another formation when the connection to another part is lost. After
// that it declares the process of that part lost. Before, the loss is mostly not that process's
// own: the other part has ended its wire because it has heard of the next formation first, or it
// has lost a third one.
inline constexpr Duration kAnotherFormation = std::chrono::seconds(10);

// A part's wire to the other parts of its replica.
class PartWire {
 public:
  virtual ~PartWire() = default;
  // Another formation begins. What is under way is given up, and the wire before is ended. Returns
  // where the new one listens.
  //
  // Errors: as the wire says; they end the process
  virtual Result<std::string> listen(int64_t epoch) = 0;
  // The formation is over, and there is none now.
  //
  // Errors: as listen()
  virtual Status end() = 0;
  // The parts of the formation listen there, by stage: begins to connect to those of lower stages.
  //
  // Errors: as listen(); Invalid/Call  another number of addresses than the replica has stages
  virtual Status connect(const std::vector<std::string>& addresses) = 0;
  // Goes on without waiting. True = it is connected to all parts of lower stages, and works may
  // begin. A part that cannot be reached is no error here: take_lost() has it.
  //
  // Errors: as listen()
  virtual Result<bool> go_on() = 0;
  // The stages to whose part the connection of this formation is lost, each once.
  virtual std::vector<StageId> take_lost() = 0;
};

// The automaton: members and commands in, reports out. It has no clock and no thread.
class FormingPart {
 public:
  // `wire` outlives it; null = the replica has one stage, and the part needs no other ones.
  FormingPart(ReplicaId replica, PartWire* wire) : replica_(replica), wire_(wire) {}

  // These members were placed in this process. Another formation begins, if they make one.
  //
  // Errors: those of the wire; Invalid/Call  members without this replica
  Status take(const PlacedMembers& placed);
  // A command of an earlier formation changes nothing.
  //
  // Errors: those of PartWire::connect
  Status take(const FormCommand& command);
  // Goes on without waiting.
  //
  // Units:  `now`: on one clock in all calls
  // Errors: those of PartWire::go_on
  Status advance(Duration now);
  // The part may begin this work: all other parts of its formation get it too.
  bool may_begin(const Work& work) const;
  // What is to be reported, in this order. Empty afterwards.
  std::vector<HostReport> take_reports();

 private:
  void report_if_placed();

  ReplicaId replica_;
  PartWire* wire_;
  Formation formation_;
  bool connects_ = false, is_connected_ = false;
  int64_t placed_ = 0;  // the epoch of the newest members
  bool is_reported_ = true;
  std::vector<StageId> lost_;  // that are not declared lost yet
  std::optional<Duration> lost_since_;
  std::vector<HostReport> reports_;
};

}  // namespace tenuto::servers
