// What is in the workers' stores before their lists begin.
#pragma once

#include <vector>

#include "ir/op.h"

namespace tenuto {

// For each worker, the values that it has before its list begins, each once. Empty: no worker has
// any, as at the start of a step; otherwise the lists are the rest of a step that was partly done.
using Stores = std::vector<std::vector<Value>>;

}  // namespace tenuto
