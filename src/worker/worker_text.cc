// The actions of a worker as text.
#include "base/text.h"
#include "worker/decide_worker.h"

namespace tenuto {
namespace {

template <class Id>
std::string list_of(const std::vector<Id>& ids) {
  std::string text;
  for (const Id id : ids) text += cat(text.empty() ? "" : ",", id);
  return text;
}

const char* name_of(Phase phase) {
  constexpr const char* kNames[] = {"frozen", "running", "out"};
  return kNames[static_cast<size_t>(phase)];
}

std::string line(const Tell& tell) {
  const Report& of = tell.report;
  std::string text = cat("tell ", name_of(of.phase), " epoch ", of.epoch, " version ", of.version,
                         " plan ", of.plan);
  if (of.connected) text += " connected";
  if (of.received >= 0) text += cat(" received ", of.received);
  for (const StepSummary& step : of.steps) text += cat(" step ", step.step);
  for (const SavedShard& shard : of.shards) text += cat(" saved ", shard.version);
  for (const StepInventory& held : of.held) text += cat(" holds ", held.step);
  if (!of.lost_peers.empty()) text += cat(" lost ", list_of(of.lost_peers));
  if (!of.failure.empty()) text += cat(" failed: ", of.failure);
  return text;
}
std::string line(const Prepare& of) { return cat("prepare stages ", list_of(of.stages)); }
std::string line(const MakeDevice&) { return "make device"; }
std::string line(const RenewTransport& of) { return cat("renew transport for epoch ", of.epoch); }
std::string line(const Connect& of) { return cat("connect to ", of.peer, " at ", of.address); }
std::string line(const Probe& of) { return cat("probe ", of.peer, " at ", of.address); }
std::string line(const Load& of) {
  return cat("load version ", of.version, " from ", of.shards.size(), " shards");
}
std::string line(const Adopt& of) { return cat("adopt version ", of.version); }
std::string line(const Hold& of) { return cat("hold stages ", list_of(of.stages)); }
std::string line(const Undo&) { return "undo"; }
std::string line(const RunStep& of) { return cat("run step ", of.step); }
std::string line(const Finalize&) { return "finalize"; }
std::string line(const Evaluate&) { return "evaluate"; }
std::string line(const Save& of) {
  return cat(of.copies ? "copy" : "save", " version ", of.version, " stages ", list_of(of.stages),
             of.copies ? " for " : " in ", of.directory);
}
std::string line(const WriteCopy&) { return "write copy"; }
std::string line(const DropCopy&) { return "drop copy"; }
std::string line(const TransferState&) { return "transfer state"; }
std::string line(const Say& of) { return cat("say ", of.sentence); }
std::string line(const Leave& of) {
  return cat("leave ", of.exit_code, of.left_out ? " left out" : "",
             of.sentence.empty() ? "" : ": ", of.sentence);
}

}  // namespace

std::string to_text(const WorkerAction& action) {
  return std::visit([](const auto& of) { return line(of); }, action);
}

}  // namespace tenuto
