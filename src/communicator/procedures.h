// A cache of the procedures of a group: each is made once, checked, and cut down to the moves of
// one member.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/id.h"
#include "ir/procedure.h"

namespace tenuto {

// Names a procedure of a group.
struct ProcedureName {
  std::string algorithm;
  int32_t chunks = 0;  // 0 = the algorithm decides
  std::vector<WorkerId> late;
  WorkerId root;  // of a broadcast; none = the first member
  auto operator<=>(const ProcedureName&) const = default;
};

// One member's part of a procedure, ready to be executed.
struct OwnProcedure {
  int32_t chunks = 0;
  Collective moves;                    // this member's, in all chunks
  Collective last_chunk;               // the same of the last chunk alone
  std::vector<WorkerId> owners;        // of each chunk; none where the algorithm has no owners
  std::map<int32_t, Collective> cuts;  // `moves` by count of slices
};

// The procedures of one group, each made once. Their number is bounded: when it is reached, all are
// dropped; procedures in use live until their calls end.
class Procedures {
 public:
  // Requires: at least one member, all different, self among them
  Procedures(std::vector<WorkerId> members, WorkerId self)
      : members_(std::move(members)), self_(self) {}

  // The procedure of that name, made and checked now if it was not before.
  //
  // Errors: as make_procedure and check
  Result<std::shared_ptr<OwnProcedure>> find(const ProcedureName& name);

  // The moves of `of` with each chunk cut into `slices`. The reference is valid as long as `of`
  // lives, and until it has been cut into many other counts of slices.
  static const Collective& cut(OwnProcedure& of, int32_t slices);

 private:
  std::vector<WorkerId> members_;
  WorkerId self_;
  std::map<ProcedureName, std::shared_ptr<OwnProcedure>> made_;
};

}  // namespace tenuto
