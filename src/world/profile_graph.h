// A model as a measured graph of operators, read from a file and cut into a chain of layers.
//
// A line is a node, `ID -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS,
// activation_size=BYTES, parameter_size=BYTES`, or an edge, `ID -- ID`. A node with several outputs
// has a list of sizes, `[BYTES; BYTES]`.
//
// Source: the profiles of PipeDream (Narayanan et al., SOSP 2019) have this form.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "world/layer_chain.h"

namespace tenuto {

// True when the first line of `text` is of such a graph; a chain begins with a number.
bool is_profile_graph(std::string_view text);

// Puts the nodes into an order in which a branch is completed before the next begins, and cuts it
// where a single tensor crosses. When there are fewer than 8 such cuts, it cuts after every node;
// the bytes of a cut are then those of all tensors that are still needed behind it. Nodes that take
// no time and have no parameters form no layer of their own. The time of an input node is that of
// loading data, and is left out. A layer keeps the outputs of its nodes until its backward, except
// those that take no time, which are views.
//
// Errors: Invalid/Call with `source`, line and column: a line of another form, a node twice, an
//         unknown node; a cycle; a part that no edge joins with the rest; and check_totals()
// Cost:   O(nodes + edges), besides sorting names
Result<LayerChain> chain_from_profile_graph(std::string_view text, const std::string& source);

}  // namespace tenuto
