// Measures the links between workers. A hub, which is not a worker, tells pairs of workers to send
// messages to each other, and collects what they measured. The hub is the member at place 0
// (join.h), and worker w is the member at place w + 1.
//
// For the rate of a direction, the receiver measures the time of one message and of several of the
// same size, and divides the bytes of the additional ones by the difference. So the latency and the
// first burst of a shaped link do not count. The latency is half of a round trip of 8 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/watch.h"
#include "transport/transport.h"
#include "world/link_table.h"

namespace tenuto {

// The hub. In every round it sends one command to each worker.
class LinkHub {
 public:
  // The transport is connected with all workers; it and the mailbox must outlive the hub. Measuring
  // fails if it lasts beyond `end`, on the monotonic clock. `watch` counts the pairs; may be null.
  LinkHub(Transport& transport, Mailbox& mailbox, int32_t workers, Duration end, Watch* watch)
      : transport_(transport), mailbox_(mailbox), workers_(workers), end_(end), watch_(watch) {}

  // Measures all pairs, in rounds. In a round every worker is in one pair at most.
  //
  // Errors: Timeout/Job          a pair was not measured before `end`, or a worker did not answer
  //         Disconnected/Worker  a worker is lost; the message names it
  Result<LinkTable> measure_pairs();
  // At the same time each worker of `ring` sends to the next one, and the last one to the first.
  // Returns the lowest rate of these links, in bytes per second. The size of the messages is
  // computed from the rates in `pairs`. Errors: as measure_pairs.
  //
  // Requires: two workers or more, none twice
  Result<double> measure_ring(const std::vector<WorkerId>& ring, const LinkTable& pairs);
  // Tells the workers that there is nothing more to measure.
  Status finish();

 private:
  class Round;
  Transport& transport_;
  Mailbox& mailbox_;
  const int32_t workers_;
  const Duration end_;
  Watch* const watch_;
  int64_t rounds_ = 0;
};

// The worker's side: executes the hub's commands until the hub calls finish(). It waits at most
// `silence` for the next message of the hub or of a peer.
//
// Errors: Timeout/Job, Disconnected/Worker, Invalid/Call (a peer asks for too large a batch)
Status serve_measuring(Transport& transport, Mailbox& mailbox, Duration silence);

}  // namespace tenuto
