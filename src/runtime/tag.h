// Names on the wire: 64 bits that say which value or which chunk of which reduction a message is.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/op.h"
#include "transport/pace.h"
#include "transport/transport.h"

namespace tenuto {

// The numbers in a name are below these. A plan with larger ones is refused before its first op.
inline constexpr int32_t kTagParts = 1 << 12;
inline constexpr int32_t kTagStages = 1 << 18;
inline constexpr int32_t kTagMicros = 1 << 25;
inline constexpr int32_t kTagGroups = 1 << 15;
inline constexpr int32_t kTagRounds = 1 << 20;
inline constexpr int32_t kTagChunks = 1 << 16;

// The tag of a value on the wire. `step` counts the runs of steps (Runner). The top 5 bits are 0;
// then come kind (4 bits), part + 1, stage + 1, micro + 1.
//
// Requires: part + 1, stage + 1 and micro + 1 below the limits above
Tag tag_of(const Value& value, int64_t epoch, int64_t step);

// The value that a tag names; none if the tag is that of a note, a collective's move or a state
// transfer.
std::optional<Value> value_of(const Tag& tag);

// The tag of the note that the receiver of a value sends back when messages leave through the
// device's queue (rehearsal/queued_messages.h). No value's tag has its kind bits.
Tag tag_of_note(const Value& value, int64_t epoch, int64_t step);

// The tag of a collective's move: of `chunk` in `round`, for bucket `part` of group `group`. Top
// bit 1, so that it is never a value's. It has no stage, because the two ends of a tied weight name
// different stages.
Tag tag_of_move(GroupId group, int16_t part, int32_t round, ChunkId chunk, int64_t epoch,
                int64_t step);

// What the tag of one message of a collective contains.
struct MoveName {
  GroupId group;
  int16_t part = -1;
  int32_t round = 0;
  ChunkId chunk;
};

// The contents of a tag that tag_of_move() made; none for any other tag.
std::optional<MoveName> move_of(const Tag& tag);

// The tag of a message of a state transfer: the head or the body of a part of the state of `stage`,
// for a worker that receives it between two steps. Bit 62 is 1; in a value's tag it is 0.
Tag tag_of_transfer(StageId stage, bool body, int64_t epoch, int64_t step);

// What the message of a tag is for: a state transfer's, or the step.
Purpose purpose_of(const Tag& tag);

}  // namespace tenuto
