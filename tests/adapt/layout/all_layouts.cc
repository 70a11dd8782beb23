#include "adapt/layout/all_layouts.h"

namespace tenuto {

namespace {

// Adds all layouts that begin with the stages of `layout`.
void add_layouts(const LayoutSpace& space, size_t used, Layout& layout,
                 std::vector<Layout>& layouts) {
  const int32_t first = layout.empty() ? 0 : layout.back().layer_end;
  if (first == space.layers) {
    if (used == space.order.size() || space.idle) layouts.push_back(layout);
    return;
  }
  for (int32_t end = first + 1; end <= space.layers; ++end) {
    for (const int32_t count : space.counts) {
      const size_t next = used + static_cast<size_t>(count * space.unit);
      if (next > space.order.size()) continue;
      Stage stage{first, end, {}};
      for (size_t i = used; i < next; ++i) stage.holders.push_back(space.order[i]);
      layout.push_back(stage);
      add_layouts(space, next, layout, layouts);
      layout.pop_back();
    }
  }
}

}  // namespace

std::vector<Layout> all_layouts(const LayoutSpace& space) {
  std::vector<Layout> layouts;
  Layout layout;
  add_layouts(space, 0, layout, layouts);
  return layouts;
}

}  // namespace tenuto
