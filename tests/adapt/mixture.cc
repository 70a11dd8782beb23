#include "adapt/mixture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Duration times(double factor) {
  return Duration(std::llround(factor * static_cast<double>(kMixtureOp.count())));
}

bool same_place(const Mishap& a, const Mishap& b) {
  return (a.kind == MishapKind::SlowLink) == (b.kind == MishapKind::SlowLink) &&
         a.pipeline == b.pipeline && a.stage == b.stage;
}

bool leaves_a_worker(const MixtureSize& size, const Mishap& next,
                     const std::vector<Mishap>& troubles) {
  if (next.kind != MishapKind::DeadWorker) return true;
  int32_t dead = 1;
  for (const Mishap& it : troubles) {
    dead += it.kind == MishapKind::DeadWorker && it.stage == next.stage;
  }
  return dead < size.pipelines;
}

Way way_with(const std::vector<Mishap>& troubles, int32_t stage, int32_t from, int32_t to) {
  double delay = from == to ? 0 : 0.1;
  for (const Mishap& it : troubles) {
    const bool link =
        it.kind == MishapKind::SlowLink && from == to && it.pipeline == from && it.stage == stage;
    const bool card =
        it.kind == MishapKind::SlowCard && ((it.pipeline == from && it.stage == stage) ||
                                            (it.pipeline == to && it.stage == stage + 1));
    if (link || card) delay = std::max(delay, it.size);
  }
  return {times(delay), times(delay), {}, {}};
}

}  // namespace

std::optional<MixtureSize> read_size(const std::string& text) {
  MixtureSize size;
  char more = 0;
  const int read =
      std::sscanf(text.c_str(), "%d,%d,%d%c", &size.stages, &size.pipelines, &size.micros, &more);
  if (read != 3 || std::min({size.stages, size.pipelines, size.micros}) < 1) return std::nullopt;
  return size;
}

const std::vector<std::pair<std::string, Mishap>>& trouble_kinds() {
  static const std::vector<std::pair<std::string, Mishap>> kinds = {
      {"slow1.5", {MishapKind::SlowWorker, 1.5}}, {"slow2", {MishapKind::SlowWorker, 2}},
      {"slow4", {MishapKind::SlowWorker, 4}},     {"link1", {MishapKind::SlowLink, 1}},
      {"link2", {MishapKind::SlowLink, 2}},       {"link4", {MishapKind::SlowLink, 4}},
      {"card2", {MishapKind::SlowCard, 2}},       {"dead", {MishapKind::DeadWorker, 0}}};
  return kinds;
}

bool add_trouble(Random& random, const MixtureSize& size, Mishap kind, std::vector<Mishap>& to) {
  const int32_t stages = size.stages - (kind.kind == MishapKind::SlowLink ? 1 : 0);
  const auto fits = [&](int32_t pipeline, int32_t stage) {
    kind.pipeline = pipeline;
    kind.stage = stage;
    const bool taken =
        std::any_of(to.begin(), to.end(), [&](const Mishap& it) { return same_place(it, kind); });
    return !taken && leaves_a_worker(size, kind, to);
  };
  bool any = false;
  for (int32_t place = 0; place < size.pipelines * stages; ++place) {
    any = any || fits(place / stages, place % stages);
  }
  if (!any) return false;
  for (bool found = false; !found;) {
    const auto pipeline = static_cast<int32_t>(random.below(size.pipelines));
    found = fits(pipeline, static_cast<int32_t>(random.below(stages)));
  }
  to.push_back(kind);
  return true;
}

std::vector<Mishap> draw_troubles(Random& random, const MixtureSize& size, const std::string& row) {
  std::vector<Mishap> troubles;
  const auto& kinds = trouble_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const auto& it) { return it.first == row; });
  if (kind != kinds.end()) {
    add_trouble(random, size, kind->second, troubles);
    return troubles;
  }
  const int count = row == "pair" ? 2 : row == "triple" ? 3 : row == "six" ? 6 : 0;
  CHECK(count > 0, row + ": no such row");
  for (int i = 0; i < count; ++i) {
    for (bool added = false; !added;) {
      const auto any = static_cast<size_t>(random.below(8));
      added = add_trouble(random, size, kinds[any].second, troubles);
    }
  }
  return troubles;
}

Mesh mesh_with(const MixtureSize& size, const std::vector<Mishap>& troubles, int32_t slots,
               Pace pace) {
  Mesh mesh;
  mesh.pipelines = size.pipelines;
  mesh.micros = size.pipelines * size.micros;
  mesh.pace = pace;
  for (int32_t s = 0; s < size.stages; ++s) {
    auto& stage = mesh.stages.emplace_back();
    for (int32_t p = 0; p < size.pipelines; ++p) {
      double slower = 1;
      for (const Mishap& it : troubles) {
        if (it.pipeline != p || it.stage != s) continue;
        if (it.kind == MishapKind::SlowWorker) slower = it.size;
        if (it.kind == MishapKind::DeadWorker) slower = 0;
      }
      if (slower == 0) continue;
      Holder holder;
      holder.worker = {p * size.stages + s};
      holder.pipeline = p;
      holder.forward = holder.backward = holder.weight = times(slower);
      if (slots > 0) holder.memory = {slots, 1, 1};
      stage.push_back(holder);
    }
  }
  for (int32_t s = 0; s + 1 < size.stages; ++s) {
    auto& ways = mesh.ways.emplace_back();
    for (const Holder& from : mesh.stages[at(s)]) {
      for (const Holder& to : mesh.stages[at(s) + 1]) {
        ways.push_back(way_with(troubles, s, from.pipeline, to.pipeline));
      }
    }
  }
  return mesh;
}

Mesh random_mesh(Random& random, int32_t most_stages, int32_t most_pipelines, int32_t most_micros) {
  const auto upto = [&](int32_t most) { return 1 + static_cast<int32_t>(random.below(most)); };
  Mesh mesh;
  const int32_t stages = upto(most_stages);
  mesh.pipelines = upto(most_pipelines);
  mesh.micros = mesh.pipelines * upto(most_micros);
  mesh.pace = static_cast<Pace>(random.below(3));
  const bool limited = random.below(3) > 0, shares = random.below(3) == 0;
  const bool equal = random.below(2) == 0, whole = random.below(4) == 0;
  const bool updates = mesh.pace == Pace::Joint && random.below(2) == 0;
  const auto time = [&] { return Duration(equal ? 10 : 4 + random.below(12)); };
  for (int32_t s = 0; s < stages; ++s) {
    auto& stage = mesh.stages.emplace_back();
    const int32_t kept = static_cast<int32_t>(random.below(mesh.pipelines));
    const Duration forward = time(), backward = time(), weight = whole ? Duration{} : time();
    for (int32_t p = 0; p < mesh.pipelines; ++p) {
      if (p != kept && random.below(5) == 0) continue;
      const int64_t slower = random.below(3) == 0 ? 1 + random.below(4) : 1;
      Holder holder;
      holder.worker = {p * stages + s};
      holder.pipeline = p;
      holder.forward = slower * forward;
      holder.backward = slower * backward;
      holder.weight = slower * weight;
      if (updates) holder.update = Duration(random.below(20));
      if (limited) holder.memory = {6 * upto(stages + 2), 6, shares ? random.below(7) : 6};
      stage.push_back(holder);
    }
  }
  for (int32_t s = 0; s + 1 < stages; ++s) {
    auto& ways = mesh.ways.emplace_back();
    const size_t count = mesh.stages[at(s)].size() * mesh.stages[at(s) + 1].size();
    for (size_t i = 0; i < count; ++i) {
      const int64_t most = random.below(4) == 0 ? 40 : 4;
      Way way{Duration(random.below(most)), Duration(random.below(most)), {}, {}};
      if (random.below(4) == 0) way.down_busy = way.up_busy = Duration(random.below(8));
      ways.push_back(way);
    }
  }
  return mesh;
}

Routing random_routing(Random& random, const Mesh& mesh) {
  Routing routing;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& own = routing.emplace_back();
    for (int32_t m = 0; m < mesh.micros; ++m) {
      own.push_back(static_cast<int32_t>(random.below(mesh.width(s))));
    }
  }
  return routing;
}

}  // namespace tenuto
