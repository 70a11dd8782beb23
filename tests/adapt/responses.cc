#include "adapt/responses.h"

#include <algorithm>

#include "adapt/route.h"

namespace tenuto {

namespace {

constexpr Duration kNever = Duration::max();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Fixed lists on a mesh, one step after the other.
class Listed {
 public:
  Listed(const Mesh& mesh, const Routing& routing, const TaskLists& lists)
      : mesh_(mesh), routing_(routing), lists_(lists) {
    for (const auto& stage : mesh.stages) free_at_.emplace_back(stage.size());
  }

  // Runs a step; each holder begins when it is free. Returns false if the step deadlocks.
  bool step() {
    const std::vector<Duration> open(at(mesh_.micros), kNever);
    activation_at_.assign(at(mesh_.depth()), open);
    gradient_at_ = activation_at_;
    activation_at_[0].assign(at(mesh_.micros), Duration{});
    std::vector<std::vector<size_t>> next;
    for (const auto& stage : mesh_.stages) next.emplace_back(stage.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int32_t s = 0; s < mesh_.depth(); ++s) {
        for (int32_t i = 0; i < mesh_.width(s); ++i) {
          size_t& place = next[at(s)][at(i)];
          while (place < lists_[at(s)][at(i)].size() && run(s, i, lists_[at(s)][at(i)][place])) {
            ++place;
            moved = true;
          }
        }
      }
    }
    for (int32_t s = 0; s < mesh_.depth(); ++s) {
      for (int32_t i = 0; i < mesh_.width(s); ++i) {
        if (next[at(s)][at(i)] < lists_[at(s)][at(i)].size()) return false;
      }
    }
    return true;
  }
  // The workers of each stage begin the next step together.
  void join() {
    for (auto& stage : free_at_) {
      std::fill(stage.begin(), stage.end(), *std::max_element(stage.begin(), stage.end()));
    }
  }
  Duration end() const {
    Duration end{};
    for (const auto& stage : free_at_) {
      for (const Duration time : stage) end = std::max(end, time);
    }
    return end;
  }

 private:
  bool run(int32_t s, int32_t i, const Task& task) {
    const Holder& own = mesh_.holder(s, i);
    Duration& free_at = free_at_[at(s)][at(i)];
    const int32_t m = task.micro;
    if (task.kind == OpKind::BackwardWeight) {
      free_at += own.weight;
      return true;
    }
    const bool forward = task.kind == OpKind::Forward;
    const Duration here = (forward ? activation_at_ : gradient_at_)[at(s)][at(m)];
    if (here == kNever) return false;
    free_at = std::max(free_at, here) + (forward ? own.forward : own.backward);
    if (forward && s + 1 == mesh_.depth()) {
      gradient_at_[at(s)][at(m)] = free_at;
    } else if (forward) {
      const Way& way = mesh_.way(s, i, routing_[at(s) + 1][at(m)]);
      activation_at_[at(s) + 1][at(m)] = free_at + way.there();
    } else if (s > 0) {
      const Way& way = mesh_.way(s - 1, routing_[at(s) - 1][at(m)], i);
      gradient_at_[at(s) - 1][at(m)] = free_at + way.back();
    }
    return true;
  }

  const Mesh& mesh_;
  const Routing& routing_;
  const TaskLists& lists_;
  std::vector<std::vector<Duration>> free_at_, activation_at_, gradient_at_;
};

Mesh mesh_of(const Mixture& it) { return mesh_with(it.size, it.troubles, it.slots, it.pace); }

// The mesh as it would be if dead workers were the only trouble.
Mesh mesh_but_for_the_dead(const Mixture& it) {
  std::vector<Mishap> dead;
  for (const Mishap& trouble : it.troubles) {
    if (trouble.kind == MishapKind::DeadWorker) dead.push_back(trouble);
  }
  return mesh_with(it.size, dead, it.slots, it.pace);
}

bool has_dead(const Mixture& it) {
  return std::any_of(it.troubles.begin(), it.troubles.end(),
                     [](const Mishap& trouble) { return trouble.kind == MishapKind::DeadWorker; });
}

// Ready dispatch: the better of the global order and the order in which inputs arrive.
std::optional<Duration> ready_time(const Mesh& mesh, const Routing& routing) {
  MeshPlayer player(mesh);
  const auto global = player.time(routing, global_orders(mesh, routing));
  const auto free = player.time(routing, orders_of(player.as_they_come(routing)->lists));
  return global && free ? std::min(*global, *free) : global ? global : free;
}

// Even routing, with lists made for a cluster whose only trouble is dead workers.
std::optional<Duration> even_lists(const Mixture& it) {
  const Mesh believed = mesh_but_for_the_dead(it);
  const Routing routing = even_routing(believed);
  MeshPlayer player(believed);
  const auto lists = player.lists(routing, global_orders(believed, routing));
  return listed_time(mesh_of(it), routing, *lists);
}

std::optional<Duration> drop(const Mixture& it) {
  const Mesh mesh = mesh_of(it);
  std::optional<Duration> best;
  for (int32_t level = 0; level < 3; ++level) {
    std::vector<uint8_t> out(at(it.size.pipelines), 0);
    for (const Mishap& trouble : it.troubles) {
      const int32_t from = trouble.kind == MishapKind::DeadWorker   ? 0
                           : trouble.kind == MishapKind::SlowWorker ? 1
                                                                    : 2;
      if (from <= level) out[at(trouble.pipeline)] = 1;
    }
    const auto left = static_cast<int32_t>(std::count(out.begin(), out.end(), 0));
    if (left == 0) continue;
    std::vector<int32_t> counts(out.size(), 0);
    int32_t number = 0;
    for (size_t p = 0; p < out.size(); ++p) {
      if (out[p] != 0) continue;
      counts[p] = mesh.micros / left + (number++ < mesh.micros % left ? 1 : 0);
    }
    const auto time = ready_time(mesh, whole_routing(mesh, counts));
    if (time && (!best || *time < *best)) best = time;
  }
  return best;
}

}  // namespace

std::optional<Duration> listed_time(const Mesh& mesh, const Routing& routing,
                                    const TaskLists& lists) {
  Listed run(mesh, routing, lists);
  if (!run.step()) return std::nullopt;
  if (mesh.pace == Pace::Barrier) return run.end();
  constexpr int32_t kSteps = 12;
  Duration middle{};
  for (int32_t step = 1; step < kSteps; ++step) {
    if (step == kSteps / 2) middle = run.end();
    if (mesh.pace == Pace::Joint) run.join();
    run.step();
  }
  return (run.end() - middle) / (kSteps / 2);
}

const std::vector<Response>& responses() {
  static const std::vector<Response> all = {
      {"nothing", [](const Mixture& it) { return has_dead(it) ? std::nullopt : even_lists(it); }},
      {"orders",
       [](const Mixture& it) {
         const Mesh mesh = mesh_of(it);
         return has_dead(it) ? std::nullopt : ready_time(mesh, even_routing(mesh));
       }},
      {"peers", even_lists},
      {"both",
       [](const Mixture& it) {
         const Mesh mesh = mesh_of(it);
         return ready_time(mesh, even_routing(mesh));
       }},
      {"drop", drop},
      {"pipelines",
       [](const Mixture& it) {
         const Mesh mesh = mesh_of(it);
         const std::vector<int32_t> counts = whole_counts(mesh);
         return counts.empty() ? std::nullopt : ready_time(mesh, whole_routing(mesh, counts));
       }},
  };
  return all;
}

}  // namespace tenuto
