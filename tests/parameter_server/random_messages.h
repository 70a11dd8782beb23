// Messages of server shards with random contents, for tests of what carries them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "base/random.h"
#include "sync/servers/message.h"

namespace tenuto::servers {

inline constexpr size_t kMessageKinds = std::variant_size_v<decltype(Message::body)>;

// A message of this kind, which is the index of its body. Numbers are drawn from all that there
// are, lists have up to three items, and payloads up to `most_payload` bytes.
Message random_message(Random& random, size_t kind, int64_t most_payload = 100);

// Random bytes.
Payload random_payload(Random& random, int64_t size);

// A message whose head has so many bytes, at least 200.
Message message_with_head(int64_t size);

// Whether two messages say the same, member by member.
bool are_same(const Message& left, const Message& right);

}  // namespace tenuto::servers
