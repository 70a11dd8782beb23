#include "transport/jitter.h"

#include "base/random.h"

namespace tenuto {

Duration jitter_of(uint64_t seed, WorkerId from, WorkerId to, const Tag& tag, Duration jitter) {
  if (jitter <= Duration::zero()) return {};
  const uint64_t link =
      mix(seed, static_cast<uint64_t>(from.value), static_cast<uint64_t>(to.value));
  const uint64_t bits = mix(link, static_cast<uint64_t>(tag.step), tag.name);
  return Duration(static_cast<int64_t>(bits % static_cast<uint64_t>(jitter.count())));
}

}  // namespace tenuto
