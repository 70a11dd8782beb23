#include "collective/growth.h"

#include "collective/slice.h"

namespace tenuto {

std::optional<Collective> collective_of_growth(const Collective& whole, const SumGrowth& growth) {
  if (growth.parts.empty() || whole.members.size() < 2 || whole.chunk_count < 1) return {};
  const int64_t bytes = growth.elements * static_cast<int64_t>(sizeof(float));
  const int32_t slices = slices_for(bytes, whole.chunk_count, kGrowthSliceBytes);
  if (slices < kLeastGrowthSlices) return {};
  const Collective cut = sliced(whole, slices);
  return delayed(cut, delays_by_growth(growth.elements, cut.chunk_count, growth.parts));
}

}  // namespace tenuto
