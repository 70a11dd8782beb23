// Measures the links between workers. A hub, which is no worker, tells two workers at a time to
// send each other messages, and collects what they measured. The hub is at place 0 of a meeting
// (join.h), worker w at place w + 1.
//
// The rate of a direction is the difference of two times at the receiver, of one message and of
// several of the same size: latency, and what a shaped link lets pass at once after a pause, are in
// both. The latency is half of a round trip of 8 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/watch.h"
#include "transport/transport.h"
#include "world/link_table.h"

namespace tenuto {

// The hub. Every word of it goes to all workers.
class LinkHub {
 public:
  // Transport and mailbox are connected with all workers, and outlive this. What is not measured
  // at `end`, on the monotonic clock, fails. `watch` counts the pairs; may be null.
  LinkHub(Transport& transport, Mailbox& mailbox, int32_t workers, Duration end, Watch* watch)
      : transport_(transport), mailbox_(mailbox), workers_(workers), end_(end), watch_(watch) {}

  // Measures all pairs, in rounds in which every worker is in one pair at most.
  //
  // Errors: Timeout/Job          not all was measured before the end
  //         Disconnected/Worker  a worker is lost; the sentence names it
  Result<LinkTable> measure_pairs();
  // Each of the workers sends to the next one and the last to the first, all at once. Returns the
  // rate of the slowest, in bytes per second. `pairs` says how much is to be sent. Errors as
  // measure_pairs.
  //
  // Requires: two workers or more, none twice
  Result<double> measure_ring(const std::vector<WorkerId>& ring, const LinkTable& pairs);
  // Tells the workers that all is measured.
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

// A worker's part: does what the hub says, until it says that all is measured. `silence` is the
// limit for the next word of the hub or a peer.
//
// Errors: Timeout/Worker, Disconnected/Worker
Status serve_measuring(Transport& transport, Mailbox& mailbox, Duration silence);

}  // namespace tenuto
