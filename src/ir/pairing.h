// Which send and which receive belong to the same message.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ir/schedule.h"

namespace tenuto {

// The ops of a schedule under one numbering, lists one after the other, and the other end of each
// message.
struct Pairing {
  std::vector<int32_t> first;    // first[w] = number of worker w's first op; one more at the end
  std::vector<int32_t> partner;  // of a Send or Recv: the number of the other end; else -1

  // The number of an op.
  int32_t number(WorkerId worker, int32_t index) const {
    return first[static_cast<size_t>(worker.value)] + index;
  }
  // The worker whose list holds the op. O(log workers).
  WorkerId worker_of(int32_t number) const;
  // The op's index in that list.
  int32_t index_of(int32_t number) const {
    return number - first[static_cast<size_t>(worker_of(number).value)];
  }
};

// Pairs by equality: a Send and a Recv of the same value between the same two workers.
//
// Errors: Invalid/Job  an end is missing or listed twice; a sentence, and the lists with an arrow
Result<Pairing> pair_messages(const Schedule& schedule);

}  // namespace tenuto
