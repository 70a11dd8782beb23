#include "runtime/tag.h"

#include "base/check.h"

namespace tenuto {

namespace {

// The top two bits of the name of a state transfer's message.
constexpr uint64_t kTransfer = uint64_t{1} << 62;

// Appends `number`, which must be below `limit` (a power of two), to the packed name.
void append(uint64_t& name, int32_t number, int32_t limit) {
  CHECK(number >= 0 && number < limit, "a number does not fit into a message's name");
  name = name * static_cast<uint64_t>(limit) + static_cast<uint64_t>(number);
}

// Removes the number that append() packed last into `name`, and returns it.
int32_t take(uint64_t& name, int32_t limit) {
  const auto number = static_cast<int32_t>(name % static_cast<uint64_t>(limit));
  name /= static_cast<uint64_t>(limit);
  return number;
}

Tag tag_of_kind(int32_t kind, const Value& value, int64_t epoch, int64_t step) {
  uint64_t name = 0;
  append(name, kind, 16);
  append(name, value.part + 1, kTagParts);
  append(name, value.stage.value + 1, kTagStages);
  append(name, value.micro.value + 1, kTagMicros);
  return {epoch, step, name};
}

}  // namespace

Tag tag_of(const Value& value, int64_t epoch, int64_t step) {
  return tag_of_kind(static_cast<int32_t>(value.kind), value, epoch, step);
}

std::optional<Value> value_of(const Tag& tag) {
  uint64_t name = tag.name;
  Value value;
  value.micro.value = take(name, kTagMicros) - 1;
  value.stage.value = take(name, kTagStages) - 1;
  value.part = static_cast<int16_t>(take(name, kTagParts) - 1);
  if (name >= kValueKindCount) return {};
  value.kind = static_cast<ValueKind>(name);
  return value;
}

Tag tag_of_note(const Value& value, int64_t epoch, int64_t step) {
  return tag_of_kind(kValueKindCount + static_cast<int32_t>(value.kind), value, epoch, step);
}

Tag tag_of_transfer(StageId stage, bool body, int64_t epoch, int64_t step) {
  uint64_t name = 0;
  append(name, stage.value, kTagStages);
  append(name, body ? 1 : 0, 2);
  return {epoch, step, name | kTransfer};
}

Purpose purpose_of(const Tag& tag) {
  return tag.name >> 62 == kTransfer >> 62 ? Purpose::Transfer : Purpose::Step;
}

Tag tag_of_move(GroupId group, int16_t part, int32_t round, ChunkId chunk, int64_t epoch,
                int64_t step) {
  uint64_t name = 1;
  append(name, group.value, kTagGroups);
  append(name, part + 1, kTagParts);
  append(name, round, kTagRounds);
  append(name, chunk.value, kTagChunks);
  return {epoch, step, name};
}

std::optional<MoveName> move_of(const Tag& tag) {
  uint64_t name = tag.name;
  MoveName move;
  move.chunk.value = take(name, kTagChunks);
  move.round = take(name, kTagRounds);
  move.part = static_cast<int16_t>(take(name, kTagParts) - 1);
  move.group.value = take(name, kTagGroups);
  if (name != 1) return {};
  return move;
}

}  // namespace tenuto
