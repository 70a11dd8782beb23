// What is in the workers' stores before their lists begin.
#pragma once

#include <vector>

#include "ir/op.h"

namespace tenuto {

// Of each worker the values that are there before its list begins, each once. Empty: nothing is
// anywhere, as at the start of a step; otherwise the lists are what is left of a step of which some
// has been done.
using Stores = std::vector<std::vector<Value>>;

}  // namespace tenuto
