#include "communicator/procedures.h"

#include "collective/algorithm.h"
#include "collective/slice.h"

namespace tenuto {

namespace {

// A job has fewer combinations of size, late members and root. Making a procedure again costs
// milliseconds.
constexpr size_t kMostProcedures = 64;
constexpr size_t kMostCuts = 64;

}  // namespace

Result<std::shared_ptr<OwnProcedure>> Procedures::find(const ProcedureName& name) {
  if (const auto found = made_.find(name); found != made_.end()) return found->second;
  const auto made = make_procedure(name.algorithm, {members_, name.chunks, name.late, name.root});
  if (!made.ok()) return made.error();
  const Procedure& whole = made.value();
  if (const auto facts = check(whole); !facts.ok()) return facts.error();
  auto own = std::make_shared<OwnProcedure>();
  own->chunks = whole.collective.chunk_count;
  own->moves = own_moves(whole.collective, self_);
  own->last_chunk = of_chunk(own->moves, {own->chunks - 1});
  own->owners = whole.owners;
  if (made_.size() >= kMostProcedures) made_.clear();
  made_.emplace(name, own);
  return own;
}

const Collective& Procedures::cut(OwnProcedure& of, int32_t slices) {
  if (slices == 1) return of.moves;
  if (const auto found = of.cuts.find(slices); found != of.cuts.end()) return found->second;
  if (of.cuts.size() >= kMostCuts) of.cuts.clear();
  return of.cuts.emplace(slices, sliced(of.moves, slices)).first->second;
}

}  // namespace tenuto
