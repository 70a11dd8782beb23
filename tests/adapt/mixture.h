// Pipelines with any mixture of slow or dead workers and slow links, on which tests and a benchmark
// try routings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapt/mesh.h"
#include "base/random.h"

namespace tenuto {

// How large a step is.
struct MixtureSize {
  int32_t stages = 1, pipelines = 1, micros = 1;  // micros of each pipeline
};

// Reads a size written as stages,pipelines,micro-batches: 8,4,32. Returns nothing for other text.
std::optional<MixtureSize> read_size(const std::string& text);

// The kinds of trouble.
enum class MishapKind : uint8_t { SlowWorker, SlowLink, SlowCard, DeadWorker };

// One trouble at one place. A card is all links of a worker; the delay is in ops, each way.
struct Mishap {
  MishapKind kind = MishapKind::SlowWorker;
  double size = 0;                  // how many times slower, or the delay
  int32_t pipeline = 0, stage = 0;  // of a link: the one to the next stage of the pipeline
};

// The eight kinds of trouble by name: slow1.5, slow2, slow4, link1, link2, link4, card2, dead.
const std::vector<std::pair<std::string, Mishap>>& trouble_kinds();

// Puts a trouble at a random place that has none, so that every stage keeps a live worker. Returns
// false if there is no such place.
bool add_trouble(Random& random, const MixtureSize& size, Mishap kind, std::vector<Mishap>& to);

// Draws the troubles of a row by its name: one of the kinds, or pair, triple, six for that many of
// random kinds.
std::vector<Mishap> draw_troubles(Random& random, const MixtureSize& size, const std::string& row);

// The time of one op of an undisturbed worker. Messages within a pipeline take no time, messages
// between pipelines a tenth of it.
inline constexpr Duration kMixtureOp = std::chrono::milliseconds(10);

// The mesh with these troubles; each worker has memory for `slots` micro-batches, 0 = for all.
Mesh mesh_with(const MixtureSize& size, const std::vector<Mishap>& troubles, int32_t slots,
               Pace pace);

// Small random meshes of every sort: op times, ways, memory limits, missing holders, updates,
// paces.
Mesh random_mesh(Random& random, int32_t most_stages, int32_t most_pipelines, int32_t most_micros);

// A random routing.
Routing random_routing(Random& random, const Mesh& mesh);

}  // namespace tenuto
