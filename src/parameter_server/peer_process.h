// The loop of a process of a run with server shards: it hosts any number of peers, carries their
// messages, and closes windows of grace by its clock.
//
// The host of the run (parameter_server/roster.h) decides who belongs to it. Its caller brings the
// members to all processes and only then, once all have placed them, has the decider install them:
// so every process knows where to answer before it is asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "parameter_server/apply_times.h"
#include "parameter_server/commit_tally.h"
#include "parameter_server/peer_net.h"
#include "parameter_server/roster.h"
#include "sync/servers/decider.h"
#include "sync/servers/replica_part.h"
#include "sync/servers/server_shard.h"

namespace tenuto::servers {

// What the peers of a process begin with.
struct PeerProcessSettings {
  WorkerId self;
  // Makes the parameters of a range, with those that the run begins with. Empty = no range is ever
  // kept here.
  std::function<std::unique_ptr<ParameterStore>(const ElementRange&)> make_store;
  // Of the decider, if this process has to decide; `self` is filled in. The run begins with the
  // version of its record.
  DeciderStart decider;
  // Takes the lines of parameter_server/account.h, before what follows from them is sent.
  std::function<void(const std::string& line)> write_down;
};

// One process. Calls come from one thread.
class PeerProcess {
 public:
  PeerProcess(PeerNet& net, PeerProcessSettings settings);

  // The members of an epoch: makes the peers that are to live here, ends those that are no members
  // any more, and opens the net to processes that are new. Keepers that come in a later epoch than
  // the first get their range from another keeper. A keeper whose range was handed over to
  // another process ends here; of the states that it has to write down, those that it does not know
  // to be committed are lost.
  //
  // Errors: those of check(PlacedMembers), Decider::make and PeerNet::open; Invalid/Call  an epoch
  //         that is not newer; a range for a process that keeps none
  Status place(const PlacedMembers& placed);

  // The decider that lives here begins the epoch that was placed last.
  //
  // Errors: those of Decider::install; Invalid/Call  no decider lives here
  Status install();

  // Nothing more comes from this process or goes to it.
  void lose(WorkerId process);

  // Waits for messages until one has come or `limit` is over, and hands all that are here to their
  // peers. What they answer is sent, and a window of grace whose length is over is closed.
  //
  // Errors: those of the peers and of PeerNet
  Status wait(Duration limit);

  // The gradient of a part that lives here is computed (ReplicaPart::offer).
  //
  // Errors: ReplicaPart::offer's; Invalid/Call  no such part lives here
  Status offer(PeerId part, int64_t serial, std::vector<Payload> gradients);

  // Another sync mode, from the decider that lives here (Decider::change).
  //
  // Errors: Decider::change's; Invalid/Call  no decider lives here
  Status change(const SyncMode& mode);

  // Keepers are to write down what they have, by the decider that lives here (Decider::save).
  //
  // Errors: Invalid/Call  no decider lives here
  Status save();

  // Processes that the net has lost since the last call.
  std::vector<WorkerId> take_lost();

  // A state that a keeper here has to write down.
  struct Saved {
    ElementRange range;
    SavedState state;
  };
  // Those since the last call (ServerShard::take_saved).
  std::vector<Saved> take_saved(bool all_committed);

  // What the decider that lives here has committed, if it is more than at the last call.
  std::optional<CommittedReport> take_committed() { return tally_.take(); }

  // How long the keepers that live here take to apply an update; none = nothing was measured yet.
  std::optional<Duration> apply_time() const { return apply_times_->mean(); }

  // The decider that lives here; nullptr = none does.
  const Decider* decider() const { return decider_.get(); }
  // The parts of replicas that live here.
  const std::map<PeerId, ReplicaPart>& parts() const { return parts_; }
  // The keepers that live here.
  const std::map<PeerId, ServerShard>& keepers() const { return keepers_; }
  // The decider that lives here waits for nothing but new offers: all members have reported, every
  // keeper has its range, and all updates are committed.
  bool has_committed_all() const;
  // All keepers that live here, and have their range, have heard that this version is to be written
  // down.
  bool knows_save(Version save) const;
  // Messages for peers that do not live here.
  int64_t refused() const { return refused_; }

 private:
  Status make_peers(const PlacedMembers& placed);
  Status make_keeper(PeerId peer, const ElementRange& range, bool is_filled);
  void end_keepers(const PlacedMembers& placed);
  Status handle(const Message& message);
  Status after_decider();
  Status post(std::vector<Message> messages);
  Status close_window();

  PeerNet& net_;
  PeerProcessSettings settings_;
  PlacedMembers placed_;
  std::set<WorkerId> opened_, dropped_;
  std::vector<WorkerId> lost_;
  // The stores of the keepers measure it.
  std::shared_ptr<ApplyTimes> apply_times_ = std::make_shared<ApplyTimes>();
  std::map<PeerId, ServerShard> keepers_;
  std::vector<Saved> left_;  // by keepers that have ended
  std::map<PeerId, ReplicaPart> parts_;
  std::unique_ptr<Decider> decider_;
  PeerId decider_id_;
  CommitTally tally_;       // of the decider
  bool has_begun_ = false;  // all have reported to the decider that lives here
  int64_t window_ = -1;     // the last window that was opened
  std::optional<Duration> window_end_;
  int64_t refused_ = 0;
};

}  // namespace tenuto::servers
