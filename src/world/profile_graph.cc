#include "world/profile_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/cut_text.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "ir/plan.h"
#include "world/line_reading.h"

namespace tenuto {

namespace {

constexpr std::string_view kSeparator = " -- ", kAttributes = " -- forward_compute_time=";
constexpr size_t kMostEdges = 1'000'000;
// With this many single-tensor cuts the layers between them are fine enough for a good layout.
constexpr size_t kEnoughCuts = 8;

// A node; edges by the numbers of nodes.
struct Node {
  std::string id, operation;          // operation: the description up to its arguments
  double forward = 0, backward = 0;   // milliseconds
  double output = 0, parameters = 0;  // bytes
  std::vector<int32_t> before, after;
  bool takes_time() const { return forward > 0 || backward > 0; }
  bool works() const { return takes_time() || parameters > 0; }
};
using Graph = std::vector<Node>;

size_t at(int32_t node) { return static_cast<size_t>(node); }

// The attributes of a node; `most`: the largest value.
struct Attribute {
  std::string_view name;
  double most = 0;
  double Node::*target = nullptr;
};
const std::array<Attribute, 4>& attributes() {
  static const double most_ms = to_milliseconds(kLongestTime);
  static const auto most_bytes = static_cast<double>(kMostMemory);
  static const std::array<Attribute, 4> all{{{"forward_compute_time", most_ms, &Node::forward},
                                             {"backward_compute_time", most_ms, &Node::backward},
                                             {"activation_size", most_bytes, &Node::output},
                                             {"parameter_size", most_bytes, &Node::parameters}}};
  return all;
}

// A part of `line` that begins `offset` letters behind its begin.
LinePiece part_of(const LinePiece& line, size_t offset, size_t length = std::string_view::npos) {
  return {line.text.substr(offset, length), line.line, line.column + static_cast<int64_t>(offset)};
}

// The sum of a number or of a list of them, [A; B]; nothing when it is neither.
std::optional<double> sum_of(std::string_view text) {
  if (text.empty() || text.front() != '[') return finite_number(text);
  if (text.back() != ']') return {};
  text = text.substr(1, text.size() - 2);
  double sum = 0;
  while (true) {
    const size_t end = std::min(text.find(';'), text.size());
    const auto number = finite_number(text.substr(0, end));
    if (!number || *number < 0) return {};
    sum += *number;
    if (end == text.size()) return sum;
    text.remove_prefix(end + 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
}

// Reads nodes and edges; edges may come before their nodes.
class GraphReader {
 public:
  explicit GraphReader(const std::string& source) : source_(source) {}

  Result<Graph> read(std::string_view text) {
    for (const LinePiece& line : lines_of(text)) {
      const size_t attributes_at = line.text.find(kAttributes);
      const Status status = attributes_at == std::string_view::npos
                                ? take_edge(line)
                                : take_node(line, attributes_at);
      if (!status.ok()) return status.error();
    }
    if (const Status status = join_edges(); !status.ok()) return status.error();
    return std::move(graph_);
  }

 private:
  Status take_node(const LinePiece& line, size_t attributes_at) {
    const size_t name_end = line.text.find(kSeparator);
    Node node;
    node.id = line.text.substr(0, name_end);
    const size_t begin = std::min(name_end + kSeparator.size(), attributes_at);
    const std::string_view description = line.text.substr(begin, attributes_at - begin);
    node.operation = description.substr(0, description.find('('));
    // Something may follow the attributes, such as " -- stage_id=3".
    size_t from = attributes_at + kSeparator.size();
    const size_t end = std::min(line.text.find(kSeparator, from), line.text.size());
    for (const Attribute& attribute : attributes()) {
      const size_t comma = std::min(line.text.find(", ", from), end);
      const LinePiece field = part_of(line, std::min(from, end), comma - std::min(from, end));
      const std::string wanted = cat(attribute.name, "=");
      const auto number = field.text.substr(0, wanted.size()) == wanted
                              ? sum_of(field.text.substr(wanted.size()))
                              : std::nullopt;
      if (!number || *number < 0 || *number > attribute.most) {
        return error_at(source_, field,
                        cat("expected ", wanted, " with a number from 0 to ", attribute.most,
                            found_text(field.text)));
      }
      node.*attribute.target = *number;
      from = comma + 2;
    }
    if (!numbers_.emplace(node.id, static_cast<int32_t>(graph_.size())).second) {
      return error_at(source_, line,
                      cat("the node ", node.id.substr(0, cut_of(node.id, 40)), " stands twice"));
    }
    if (graph_.size() == static_cast<size_t>(kMostChainLayers)) {
      return error_at(source_, line, cat("expected ", kMostChainLayers, " nodes at most"));
    }
    graph_.push_back(std::move(node));
    return ok();
  }

  Status take_edge(const LinePiece& line) {
    const size_t end = line.text.find(kSeparator);
    if (end == std::string_view::npos ||
        line.text.find(kSeparator, end + 1) != std::string_view::npos) {
      return error_at(source_, line,
                      cat("expected an edge, 'ID -- ID', or a node, 'ID -- DESCRIPTION -- ",
                          "forward_compute_time=..., backward_compute_time=..., ",
                          "activation_size=..., parameter_size=...'", found_text(line.text)));
    }
    if (edges_.size() == kMostEdges) {
      return error_at(source_, line, cat("expected ", kMostEdges, " edges at most"));
    }
    edges_.push_back({part_of(line, 0, end), part_of(line, end + kSeparator.size())});
    return ok();
  }

  Status join_edges() {
    std::set<std::pair<int32_t, int32_t>> known;
    for (const auto& [from, to] : edges_) {
      std::array<int32_t, 2> ends{};
      for (size_t i = 0; i < 2; ++i) {
        const LinePiece& name = i == 0 ? from : to;
        const auto found = numbers_.find(name.text);
        if (found == numbers_.end()) {
          return error_at(source_, name,
                          cat("expected a node of this file", found_text(name.text)));
        }
        ends[i] = found->second;
      }
      if (!known.insert({ends[0], ends[1]}).second) continue;
      graph_[at(ends[0])].after.push_back(ends[1]);
      graph_[at(ends[1])].before.push_back(ends[0]);
    }
    return ok();
  }

  const std::string& source_;
  Graph graph_;
  std::map<std::string, int32_t, std::less<>> numbers_;
  std::vector<std::pair<LinePiece, LinePiece>> edges_;
};

// A cycle, "a -> b -> a"; among the nodes `left` each has one before it that is left, too.
std::string cycle_text(const Graph& graph, const std::vector<int32_t>& left) {
  const auto is_left = [&](int32_t node) { return left[at(node)] > 0; };
  int32_t node = 0;
  while (!is_left(node)) ++node;
  std::vector<int32_t> way;
  std::vector<bool> seen(graph.size());
  while (!seen[at(node)]) {
    seen[at(node)] = true;
    way.push_back(node);
    const std::vector<int32_t>& before = graph[at(node)].before;
    node = *std::find_if(before.begin(), before.end(), is_left);
  }
  constexpr size_t kMostShown = 6;
  std::string text = graph[at(node)].id;
  size_t shown = 0;
  for (size_t i = way.size(); i-- > 0;) {
    text += ++shown > kMostShown ? std::string() : cat(" -> ", graph[at(way[i])].id);
    if (way[i] == node) break;
  }
  return shown > kMostShown ? cat(text, " -> ... -> ", graph[at(node)].id) : text;
}

// How many edges the longest way from an input to each node has; an error for a cycle.
Result<std::vector<int32_t>> depths_of(const Graph& graph, const std::string& source) {
  std::vector<int32_t> left(graph.size()), depth(graph.size()), ready;
  for (size_t i = 0; i < graph.size(); ++i) {
    left[i] = static_cast<int32_t>(graph[i].before.size());
    if (left[i] == 0) ready.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (const int32_t next : graph[at(ready[i])].after) {
      depth[at(next)] = std::max(depth[at(next)], depth[at(ready[i])] + 1);
      if (--left[at(next)] == 0) ready.push_back(next);
    }
  }
  if (ready.size() == graph.size()) return depth;
  return invalid(cat(source, ": expected a graph without cycles, found ", cycle_text(graph, left),
                     "; remove one of these edges"));
}

// Refuses a graph of several parts.
Status check_connected(const Graph& graph, const std::string& source) {
  std::vector<bool> seen(graph.size());
  std::vector<int32_t> open{0};
  seen[0] = true;
  for (size_t i = 0; i < open.size(); ++i) {
    const Node& node = graph[at(open[i])];
    for (const std::vector<int32_t>* ends : {&node.before, &node.after}) {
      for (const int32_t other : *ends) {
        if (seen[at(other)]) continue;
        seen[at(other)] = true;
        open.push_back(other);
      }
    }
  }
  if (open.size() == graph.size()) return ok();
  const auto apart = static_cast<size_t>(std::find(seen.begin(), seen.end(), false) - seen.begin());
  return invalid(cat(source, ": expected a connected graph, found no way of edges between ",
                     graph[0].id, " and ", graph[apart].id, "; add the edge that is missing"));
}

// Orders the nodes so that each comes after those before it and few tensors are alive at a time.
class Ordering {
 public:
  Ordering(const Graph& graph, const std::vector<int32_t>& depth)
      : graph_(graph), placed_(graph.size()), needed_(graph.size()), left_(graph.size()) {
    for (size_t i = 0; i < graph.size(); ++i) {
      left_[i] = static_cast<int32_t>(graph[i].before.size());
      // Short side branches come after the long one, close to where they are used.
      inputs_.push_back(graph[i].before);
      std::stable_sort(inputs_[i].begin(), inputs_[i].end(), [&](int32_t one, int32_t other) {
        return depth[at(one)] > depth[at(other)];
      });
    }
    // The main output is the deepest one. What does not lead to it is placed as early as possible:
    // what it reads is then not kept for it.
    const auto main =
        static_cast<int32_t>(std::max_element(depth.begin(), depth.end()) - depth.begin());
    mark_needed(main);
    place_with_inputs(main);
    for (size_t i = 0; i < graph.size(); ++i) place_with_inputs(static_cast<int32_t>(i));
  }

  std::vector<int32_t> order() && { return std::move(order_); }

 private:
  void mark_needed(int32_t output) {
    std::vector<int32_t> open{output};
    needed_[at(output)] = true;
    for (size_t i = 0; i < open.size(); ++i) {
      for (const int32_t node : graph_[at(open[i])].before) {
        if (needed_[at(node)]) continue;
        needed_[at(node)] = true;
        open.push_back(node);
      }
    }
  }

  // Places a node behind all that it depends on, one branch after the other.
  void place_with_inputs(int32_t node) {
    std::vector<std::pair<int32_t, size_t>> path{{node, 0}};  // a node and its next input
    while (!path.empty()) {
      auto& [last, next] = path.back();
      const std::vector<int32_t>& inputs = inputs_[at(last)];
      if (!placed_[at(last)] && next < inputs.size()) {
        const int32_t input = inputs[next++];
        if (!placed_[at(input)]) path.push_back({input, 0});
        continue;
      }
      place(last);
      path.pop_back();
    }
  }

  // Places a node and what needs only placed ones and does not lead to the main output.
  void place(int32_t node) {
    std::vector<int32_t> open{node};
    while (!open.empty()) {
      const int32_t it = open.back();
      open.pop_back();
      if (placed_[at(it)]) continue;
      placed_[at(it)] = true;
      order_.push_back(it);
      for (const int32_t next : graph_[at(it)].after) {
        if (--left_[at(next)] == 0 && !needed_[at(next)]) open.push_back(next);
      }
    }
  }

  const Graph& graph_;
  std::vector<std::vector<int32_t>> inputs_;  // of each node, the deepest first
  std::vector<bool> placed_, needed_;
  std::vector<int32_t> left_, order_;
};

// A place where the order may be cut: behind its first `end` nodes.
struct Cut {
  size_t end = 0;
  double bytes = 0;     // that cross it
  int32_t tensors = 0;  // that cross it
};

std::vector<Cut> all_cuts(const Graph& graph, const std::vector<int32_t>& order) {
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[at(order[i])] = i;
  std::vector<Cut> change(order.size() + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    const Node& node = graph[at(order[i])];
    if (node.after.empty() || node.output == 0) continue;
    size_t last = i;
    for (const int32_t next : node.after) last = std::max(last, place[at(next)]);
    // The tensor crosses the cuts behind i + 1, ..., last nodes.
    change[i + 1].bytes += node.output;
    ++change[i + 1].tensors;
    change[last + 1].bytes -= node.output;
    --change[last + 1].tensors;
  }
  std::vector<Cut> cuts;
  Cut now;
  for (size_t end = 1; end < order.size(); ++end) {
    now = {end, now.bytes + change[end].bytes, now.tensors + change[end].tensors};
    cuts.push_back(now);
  }
  return cuts;
}

// Those of `cuts` with nodes that work on both sides; of several with no such node between them,
// the one with the fewest bytes.
std::vector<Cut> useful(const Graph& graph, const std::vector<int32_t>& order,
                        const std::vector<Cut>& cuts) {
  std::vector<size_t> working(order.size() + 1);  // among the first nodes
  for (size_t i = 0; i < order.size(); ++i) {
    working[i + 1] = working[i] + (graph[at(order[i])].works() ? 1 : 0);
  }
  std::vector<Cut> kept;
  for (const Cut& cut : cuts) {
    const size_t before = working[cut.end];
    if (before == 0 || before == working.back()) continue;
    if (kept.empty() || working[kept.back().end] != before) {
      kept.push_back(cut);
    } else if (cut.bytes < kept.back().bytes) {
      kept.back() = cut;
    }
  }
  return kept;
}

std::vector<Cut> chosen_cuts(const Graph& graph, const std::vector<int32_t>& order) {
  const std::vector<Cut> all = all_cuts(graph, order);
  std::vector<Cut> single;
  for (const Cut& cut : all) {
    if (cut.tensors <= 1) single.push_back(cut);
  }
  single = useful(graph, order, single);
  return single.size() >= kEnoughCuts ? single : useful(graph, order, all);
}

// Adds the layer of these nodes, named after the one that takes longest.
void add_layer(const Graph& graph, const std::vector<int32_t>& nodes, double cut_bytes,
               LayerChain& chain) {
  double forward = 0, backward = 0, stash = 0, parameters = 0;
  const Node* longest = &graph[at(nodes.front())];
  for (const int32_t number : nodes) {
    const Node& node = graph[at(number)];
    forward += node.forward;
    backward += node.backward;
    parameters += node.parameters;
    stash += node.takes_time() ? node.output : 0;
    if (node.forward + node.backward > longest->forward + longest->backward) longest = &node;
  }
  Layer layer;
  layer.forward = from_milliseconds(forward);
  layer.backward_input = from_milliseconds(backward);
  layer.activation = {std::llround(cut_bytes)};
  layer.stash = {std::llround(stash)};
  layer.parameters = {std::llround(parameters)};
  chain.model.layers.push_back(layer);
  chain.names.push_back(cat(longest->operation, " (", longest->id, ")"));
}

}  // namespace

bool is_profile_graph(std::string_view text) {
  const std::vector<LinePiece> lines = lines_of(text.substr(0, text.find('\n', 1 << 16)));
  if (lines.empty() || lines[0].text.find(kSeparator) == std::string_view::npos) return false;
  return !finite_number(words_of(lines[0], 2)[0].text);
}

Result<LayerChain> chain_from_profile_graph(std::string_view text, const std::string& source) {
  auto read = GraphReader(source).read(text);
  if (!read.ok()) return read.error();
  Graph graph = std::move(read).value();
  if (graph.empty()) return invalid(cat(source, ": expected a node, found edges only"));
  double bytes = 0;
  for (Node& node : graph) {
    // The time of an input is that of loading data.
    const bool input = node.before.empty() && node.operation.rfind("Input", 0) == 0;
    if (input) node.forward = node.backward = 0;
    bytes += node.output + node.parameters;
  }
  if (bytes > static_cast<double>(kMostMemory)) {
    return invalid(cat(source, ": the nodes together have more than ", kMostMemory,
                       " bytes of activations and parameters; are the sizes in bytes?"));
  }
  if (const Status status = check_connected(graph, source); !status.ok()) return status.error();
  const auto depth = depths_of(graph, source);
  if (!depth.ok()) return depth.error();
  const std::vector<int32_t> order = Ordering(graph, depth.value()).order();
  std::vector<Cut> cuts = chosen_cuts(graph, order);
  cuts.push_back({order.size(), 0, 0});
  LayerChain chain;
  size_t begin = 0;
  for (const Cut& cut : cuts) {
    add_layer(graph,
              std::vector<int32_t>(order.begin() + static_cast<std::ptrdiff_t>(begin),
                                   order.begin() + static_cast<std::ptrdiff_t>(cut.end)),
              cut.bytes, chain);
    begin = cut.end;
  }
  if (const Status status = check_totals(chain, source); !status.ok()) return status.error();
  return chain;
}

}  // namespace tenuto
