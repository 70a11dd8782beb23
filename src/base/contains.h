// Tells whether an item is in a container.
#pragma once

#include <algorithm>

namespace tenuto {

// True when one of the items equals `item`.
template <class Items, class Item>
bool contains(const Items& items, const Item& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace tenuto
