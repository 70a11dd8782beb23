// What the page and the metrics show: a value that the coordinator makes and others only read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "page/history.h"

namespace tenuto::page {

// As many links are shown; a run whose pairs are more says how many it leaves out.
inline constexpr size_t kMostLinks = 4096;

// What the newest step of a worker consisted of, in seconds of its device's clock. What is missing
// to `whole` is waiting: for messages, for other workers, or for a processor.
struct WorkerTimes {
  double whole = 0, forward = 0, backward = 0, weight = 0;
  double copies = 0;  // between device and host
};

// One process of the run.
struct ShownWorker {
  int32_t worker = 0;
  std::string kind = "worker";  // worker | replica | server
  std::vector<int32_t> stages;  // that it holds; empty = none
  int32_t pipeline = -1;        // or replica; -1 = none
  std::string state;            // one of kWorkerStates
  std::string reason;           // why it is slow or suspect; empty = it is not, or nobody knows
  std::optional<WorkerTimes> times = {};  // none: it has reported no step
  int32_t ranges = 0;                     // server: ranges of the parameters that it keeps
};

// What a worker may be. Absent: no process has come in its place.
inline constexpr std::array<const char*, 5> kWorkerStates = {"healthy", "slow", "joining", "dead",
                                                             "absent"};

// What is known of the connection of two workers.
struct ShownLink {
  int32_t first = 0, second = 0;
  bool slow = false;
  double round_trip = 0;          // seconds, of a message there and one back; 0 = not known
  double network_round_trip = 0;  // seconds, as the kernels say; 0 = not known
  // Bytes per second that the kernels have seen, to the second and to the first; 0 = not known.
  std::array<double, 2> rate{};
  int64_t repeated = 0;  // packets that were sent again
};

// One of the things that a decision was made between, with its price. None: its event does not say.
struct ShownAlternative {
  std::string name;
  std::optional<double> step = {};      // seconds that a step takes with it
  std::optional<double> change = {};    // seconds that the change to it costs
  std::optional<double> total = {};     // seconds of all that, over the time that was looked ahead
  std::optional<double> progress = {};  // of a sync mode: gradients of age 0 per second
  bool chosen = false;
};

// A run at a moment.
struct Snapshot {
  std::string job;
  std::string situation;  // gathering | running | recovering | salvaging | stopping | ended
  int64_t step = 0, steps = 0, epoch = 0;
  int64_t saved = -1;  // step of the newest checkpoint; -1 = none
  std::string mode = "synchronous";
  std::string plan;       // its order
  int64_t serial = 0;     // of the plan
  int64_t in_force = -1;  // the step from which it is in force; -1 = not yet
  std::string why;        // it is this plan or mode
  // What is done about all troubles (off, observe or act), and about slow links, slow workers and
  // with layers (off, observe or adapt). Empty = it cannot be changed while the run goes on.
  std::string treatment, slow_links, slow_workers, layers;
  std::vector<ShownWorker> workers;
  std::vector<ShownLink> links;
  size_t links_left_out = 0;
  // What the newest decision was made between whose event has that, and the step of this event.
  std::vector<ShownAlternative> alternatives;
  int64_t compared_in = 0;
  // With a sync mode: micro-batches in committed updates, and the age of the newest, in gradients.
  std::optional<int64_t> mass = {};
  std::optional<double> age = {};
  double cpu_seconds = 0;  // of the coordinator's process
  History history;
};

}  // namespace tenuto::page
