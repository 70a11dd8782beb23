// A process of a run with server shards, from its first command to its last one: it connects to the
// others, hosts the peers that are placed in it, and lets the parts of replicas train.
//
// It knows neither where commands come from nor what is trained: the caller gives both.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "parameter_server/forming_part.h"
#include "parameter_server/host_message.h"
#include "parameter_server/mode_choice.h"
#include "parameter_server/peer_process.h"
#include "transport/pace.h"
#include "transport/transport.h"

namespace tenuto::servers {

// A process's connection to the host of the run.
class HostLink {
 public:
  virtual ~HostLink() = default;
  // The next command; none = none came within `limit`.
  //
  // Errors: as the link says; they end the process
  virtual Result<std::optional<HostCommand>> next(Duration limit) = 0;
  // No more commands come.
  virtual bool has_ended() const = 0;
  // Says this to the host.
  //
  // Errors: as the link says; they end the process
  virtual Status report(const HostReport& report) = 0;
};

// What a part has computed for its work.
struct ComputedIteration {
  std::vector<Payload> gradients;   // the sum over the work's micro-batches, for each range
  IterationTime time;               // as measured
  double share = 1;                 // its mass, as a part of a whole iteration's
  std::optional<double> loss = {};  // MeasuredIteration::loss
  // False: `time` has no transfer, and run_host() measures it: from the moment at which the part
  // has its work until its parameters are here, and from its offer until the gradient has left. The
  // iteration is reported then.
  bool transfer_is_given = true;
  ProcessorTimes processor = {};  // MeasuredIteration::processor
};

// Computes the gradients of the parts that live in a process, one work at a time.
class PartTrainer {
 public:
  virtual ~PartTrainer() = default;
  // Begins this work, and forgets the one before. `parameters`: of each range of the stage.
  // `run_begun`: the moment of the run's begin.
  //
  // Errors: as the trainer says; they end the process
  virtual Status begin(const Work& work, const std::vector<Payload>& parameters,
                       Duration run_begun) = 0;
  // Goes on as far as it can without waiting. The iteration when it has ended, once.
  virtual std::optional<ComputedIteration> advance(Duration now) = 0;
  // The moment, on the monotonic clock, at which it can go on.
  virtual Duration due() const = 0;
  // From now on this process may use so many cores on average; 0 = as many as it can. The trainer
  // pauses before a work if it has used more. A trainer that cannot pause uses what it needs.
  virtual void limit_cores([[maybe_unused]] double cores) {}
  // The next validation that has ended, once. Its replica is filled in by run_host(). A trainer
  // makes validations by itself, before works whose parameters are due for one; or never any.
  virtual std::optional<ValidatedReport> take_validated() { return {}; }
};

// What a process is and has. One that hosts parts may keep ranges and decide as well: then it has
// the settings of both.
struct HostSettings {
  RunProcess process;         // without its host, which is asked for its name
  PeerProcessSettings peers;  // `self` is filled in
  ModeChoiceSettings choice;
  std::unique_ptr<Chooser> chooser;  // of the mode, where the decider lives; null = nobody chooses
  PartTrainer* trainer = nullptr;    // of a process that may host parts; outlives run_host()
  // Of a part of a replica of several stages: its wire to the other parts, which outlives
  // run_host(). Null = there are no other ones.
  PartWire* wire = nullptr;
  // How fast the transport sends, which a lease may limit (transport/pace.h); null = it cannot.
  std::shared_ptr<SendPace> pace = {};
  // Iterations and validations of the part that lives here are reported. Of a replica's parts only
  // one reports them, so that each counts once: that of the last stage, which knows the losses.
  bool reports_iterations = true;
  // Takes the state of each keeper at the end. May be empty.
  std::function<Status(PeerId, const ServerShard&)> save;
  // Writes down a state that is to be saved (ServerShard::take_saved), and says in which files. It
  // is called where the first keeper of the range lives, and nothing is heard or sent meanwhile.
  // Empty = nobody writes down any.
  std::function<Result<std::vector<SavedFile>>(const ElementRange&, const SavedState&)> save_state;
};

// Runs such a process. Returns when the link has ended. The transport, which is connected to nobody
// yet, posts to the mailbox, which nobody else reads. Whoever posts a report without ticket and
// peer to it lets the trainer go on at once.
//
// Errors: those of connect, PeerProcess, ModeChoice, the link, the trainer, the wire, `save` and
//         `save_state`
//         Timeout/Call  no first command within a minute
//         Invalid/Call  another first command than to connect; a command before one that it needs
Status run_host(Transport& transport, Mailbox& mailbox, HostLink& link, HostSettings settings);

}  // namespace tenuto::servers
