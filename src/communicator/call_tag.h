// Tags of the messages that members of a group send each other.
#pragma once

#include <cstdint>

#include "ir/collective.h"
#include "transport/transport.h"

namespace tenuto {

// A message of a call.
struct CallTag {
  int64_t group = 0;
  int64_t generation = 0;  // the attempt after which the call was begun, or that completes it
  int64_t call = 0;        // below 2^40
  int32_t part = 0;        // of the call: below 4
  int32_t round = 0;       // below 2^30
  ChunkId chunk;
};

// The name of a message of a call.
inline Tag tag_of(const CallTag& named) {
  const auto chunk = static_cast<uint64_t>(named.chunk.value);
  const auto round = static_cast<uint64_t>(named.round);
  return {named.group, (named.generation << 40) | named.call,
          chunk << 32 | round << 2 | static_cast<uint64_t>(named.part)};
}

// And back.
inline CallTag call_tag_of(const Tag& tag) {
  return {tag.epoch,
          tag.step >> 40,
          tag.step & ((int64_t{1} << 40) - 1),
          static_cast<int32_t>(tag.name & 3),
          static_cast<int32_t>((tag.name >> 2) & ((uint64_t{1} << 30) - 1)),
          {static_cast<int32_t>(tag.name >> 32)}};
}

// The messages of an attempt (agreement.h).
enum class Saying : uint8_t {
  Dead,     // whom the sender knows to be dead
  Report,   // what the sender has of each call
  Through,  // the sender needs nothing more of the others in this attempt
};

// The name of such a message.
inline Tag tag_of_word(int64_t group, int64_t attempt, Saying what) {
  return {group, -1, static_cast<uint64_t>(attempt) << 2 | static_cast<uint64_t>(what)};
}

// The tag of a member's message number `number` to the ready service, and of the answer to it.
inline Tag tag_of_ready(int64_t number) { return {-2, 0, static_cast<uint64_t>(number)}; }

}  // namespace tenuto
