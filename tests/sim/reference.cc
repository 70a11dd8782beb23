#include "sim/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace tenuto {

namespace {

// A value of a stage and a micro-batch: 'a' activation, 'g' gradient, 's' stash, 'w' weight work.
using Thing = std::tuple<char, int, int>;

struct Doing {
  Op op;
  Duration end{-1};
  bool begun = false, over = false;
};

struct Person {
  std::vector<Doing> list;
  std::set<Thing> has;
  std::map<Thing, int> came_from;  // values in a receive buffer, and their sender
  int forwards = 0, forwards_begun = 0, held = 0;
  int whole = 0;  // of those held: the input gradient has not ended
};

class Reference {
 public:
  Reference(const Plan& plan, const Model& model, const Cluster& cluster,
            const PriceOptions& options)
      : plan_(plan), model_(model), cluster_(cluster), options_(options) {
    last_ = plan.schedule.stage_count - 1;
    for (const auto& list : plan.schedule.lists) {
      Person person;
      for (const Op& op : list) {
        person.list.push_back({op});
        if (op.kind == OpKind::Forward) ++person.forwards;
      }
      people_.push_back(person);
    }
  }

  std::vector<std::vector<Duration>> run() {
    for (;;) {
      while (finish_and_start()) {
      }
      if (begin_compute()) continue;
      Duration next = Duration::max();
      for (const Person& person : people_) {
        for (const Doing& it : person.list) {
          if (it.begun && !it.over && it.end > now_) next = std::min(next, it.end);
        }
      }
      if (next == Duration::max()) break;
      now_ = next;
    }
    std::vector<std::vector<Duration>> ends;
    for (const Person& person : people_) {
      auto& row = ends.emplace_back();
      for (const Doing& it : person.list) row.push_back(it.over ? it.end : Duration{-1});
    }
    return ends;
  }

 private:
  static bool trains(const Op& op) {
    return op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
           op.kind == OpKind::BackwardWeight;
  }
  static bool travels(const Op& op) {
    return op.moved == ValueKind::Activation || op.moved == ValueKind::Gradient;
  }
  static Thing moved(const Op& op) {
    return {op.moved == ValueKind::Activation ? 'a' : 'g', op.stage.value, op.micro.value};
  }

  std::vector<Thing> needs(const Op& op) const {
    const int s = op.stage.value, m = op.micro.value;
    switch (op.kind) {
      case OpKind::Forward:
        return s == 0 ? std::vector<Thing>{} : std::vector<Thing>{{'a', s - 1, m}};
      case OpKind::BackwardInput:
        return s == last_ ? std::vector<Thing>{{'s', s, m}}
                          : std::vector<Thing>{{'s', s, m}, {'g', s + 1, m}};
      case OpKind::BackwardWeight:
        return {{'w', s, m}};
      default:
        return {moved(op)};
    }
  }
  std::vector<Thing> makes(const Op& op) const {
    const int s = op.stage.value, m = op.micro.value;
    if (op.kind == OpKind::Forward) return {{'s', s, m}, {'a', s, m}};
    if (op.kind == OpKind::BackwardInput) return {{'w', s, m}, {'g', s, m}};
    return {};
  }

  bool ready(const Person& person, const Op& op) const {
    const std::vector<Thing> all = needs(op);
    return std::all_of(all.begin(), all.end(),
                       [&](const Thing& thing) { return person.has.count(thing) > 0; });
  }

  // Ends what ends now, posts receives, starts messages. True when something happened.
  bool finish_and_start() {
    bool changed = false;
    for (size_t w = 0; w < people_.size(); ++w) {
      for (Doing& it : people_[w].list) {
        if (!it.begun || it.over || it.end != now_) continue;
        finish(w, it);
        changed = true;
      }
    }
    for (size_t w = 0; w < people_.size(); ++w) {
      for (Doing& it : people_[w].list) {
        if (it.op.kind == OpKind::Send && travels(it.op) && !it.begun) changed |= try_send(w, it);
      }
    }
    return changed;
  }

  void finish(size_t w, Doing& it) {
    Person& person = people_[w];
    it.over = true;
    if (it.op.kind == OpKind::Recv) {
      person.has.insert(moved(it.op));
      return;
    }
    for (const Thing& thing : needs(it.op)) {
      person.has.erase(thing);
      person.came_from.erase(thing);
    }
    for (const Thing& thing : makes(it.op)) person.has.insert(thing);
    if (it.op.kind == OpKind::BackwardInput) --person.whole;
    if (it.op.kind == OpKind::BackwardWeight) --person.held;
  }

  // A receive is posted when fewer than 32 buffers of its peer and direction are in use.
  bool posted(size_t w, const Op& recv) const {
    int before = 0;
    const Person& person = people_[w];
    for (const Doing& it : person.list) {
      if (it.op.kind != OpKind::Recv || it.op.peer != recv.peer || it.op.moved != recv.moved) {
        continue;
      }
      if (it.op == recv) return before < 32;
      const bool still = !it.over || person.has.count(moved(it.op)) > 0;
      if (still) ++before;
    }
    return false;
  }

  // Where a message from `w` to `peer` is counted in a port: as (port, direction).
  std::vector<std::pair<size_t, int>> doors(size_t w, size_t peer) const {
    std::vector<std::pair<size_t, int>> all;
    for (size_t p = 0; p < cluster_.ports.size(); ++p) {
      const Port& port = cluster_.ports[p];
      const auto here = [&](size_t who) {
        return std::count(port.devices.begin(), port.devices.end(),
                          WorkerId{static_cast<int32_t>(who)}) > 0;
      };
      if (here(w) && here(peer) && !port.inside) continue;
      if (!here(w) && !here(peer)) continue;
      if (port.half_duplex) {
        all.emplace_back(p, 0);
        continue;
      }
      if (here(w)) all.emplace_back(p, 1);
      if (here(peer)) all.emplace_back(p, 2);
    }
    return all;
  }

  // A send starts when its value is here, the sends before it in its lane have started and its
  // receive is posted; then it gets the wire and the ports after the sends that asked before it.
  bool try_send(size_t w, Doing& it) {
    Person& person = people_[w];
    if (!ready(person, it.op)) return false;
    for (const Doing& other : person.list) {
      if (&other == &it) break;
      if (other.op.kind == OpKind::Send && other.op.peer == it.op.peer &&
          other.op.moved == it.op.moved && !other.begun) {
        return false;
      }
    }
    const auto peer = static_cast<size_t>(it.op.peer.value);
    for (Doing& recv : people_[peer].list) {
      if (recv.op.kind != OpKind::Recv || moved(recv.op) != moved(it.op) ||
          recv.op.moved != it.op.moved || recv.op.peer.value != static_cast<int>(w)) {
        continue;
      }
      if (!posted(peer, recv.op)) return false;
      Cluster bare = cluster_;
      bare.ports.clear();
      Link link = bare.link({static_cast<int>(w)}, it.op.peer);
      std::pair<size_t, size_t> wire{w, peer};
      if (cluster_.half_duplex && w > peer) wire = {peer, w};
      const Sizes sizes = sizes_of(model_, plan_.stages);
      const Bytes size =
          sizes.of[static_cast<size_t>(it.op.stage.value)][static_cast<size_t>(it.op.moved)];
      Duration begin = std::max(now_, wire_[wire]);
      for (const auto& door : doors(w, peer)) {
        begin = std::max(begin, door_[door]);
        const double rate = cluster_.ports[door.first].bytes_per_second;
        if (link.bytes_per_second == 0 || rate < link.bytes_per_second) {
          link.bytes_per_second = rate;
        }
      }
      for (const auto& door : doors(w, peer)) {
        const double rate = cluster_.ports[door.first].bytes_per_second;
        door_[door] = begin + transfer_time(size, rate);
      }
      const Duration out = begin + transfer_time(size, link.bytes_per_second);
      wire_[wire] = out;
      it.begun = recv.begun = true;
      it.end = out;
      recv.end = out + link.latency;
      return true;
    }
    return false;
  }

  bool begin_compute() {
    bool changed = false;
    for (size_t w = 0; w < people_.size(); ++w) {
      Person& person = people_[w];
      const bool busy = std::any_of(person.list.begin(), person.list.end(), [](const Doing& it) {
        return trains(it.op) && it.begun && !it.over;
      });
      Doing* next = busy ? nullptr : choose(w);
      if (next == nullptr) continue;
      next->begun = true;
      next->end = now_ + time_of(w, next->op);
      if (next->op.kind == OpKind::Forward) {
        ++person.held;
        ++person.whole;
        ++person.forwards_begun;
      }
      changed = true;
    }
    return changed;
  }

  Doing* choose(size_t w) {
    Person& person = people_[w];
    if (plan_.dispatch == Dispatch::Listed) {
      for (Doing& it : person.list) {
        if (trains(it.op) && !it.over) return ready(person, it.op) ? &it : nullptr;
      }
      return nullptr;
    }
    const Limit limit = w < plan_.limits.size() ? plan_.limits[w] : Limit{};
    for (const OpKind kind : {OpKind::BackwardInput, OpKind::Forward, OpKind::BackwardWeight}) {
      for (Doing& it : person.list) {
        if (it.op.kind != kind || it.over) continue;
        const bool warm = person.forwards_begun >= std::min(limit.warm_up, person.forwards);
        const MemoryLimit& of = limit.memory;
        const int late = person.held - person.whole;
        const bool memory =
            (limit.micros == 0 || person.held < limit.micros) &&
            (of.most == 0 || of.whole * (person.whole + 1) + of.late * late <= of.most);
        if (ready(person, it.op) && (kind != OpKind::BackwardInput || warm) &&
            (kind != OpKind::Forward || memory)) {
          return &it;
        }
        break;
      }
    }
    return nullptr;
  }

  Duration time_of(size_t w, const Op& op) const {
    const Stage& stage = plan_.stages[static_cast<size_t>(op.stage.value)];
    Duration forward{}, input{}, weight{};
    for (int32_t l = stage.layer_first; l < stage.layer_end; ++l) {
      const Layer& layer = model_.layers[static_cast<size_t>(l)];
      forward += layer.forward;
      input += layer.backward_input;
      weight += layer.backward_weight;
    }
    Duration time = forward;
    if (op.kind == OpKind::BackwardInput) time = plan_.split_backward ? input : input + weight;
    if (op.kind == OpKind::BackwardWeight) time = plan_.split_backward ? weight : Duration{};
    const double speed = cluster_.workers[w].speed;
    return Duration(std::llround(static_cast<double>(time.count()) / speed)) + options_.per_op;
  }

  const Plan& plan_;
  const Model& model_;
  const Cluster& cluster_;
  const PriceOptions& options_;
  int last_ = 0;
  std::vector<Person> people_;
  std::map<std::pair<size_t, size_t>, Duration> wire_;
  std::map<std::pair<size_t, int>, Duration> door_;
  Duration now_{};
};

}  // namespace

std::vector<std::vector<Duration>> reference_ends(const Plan& plan, const Model& model,
                                                  const Cluster& cluster,
                                                  const PriceOptions& options) {
  return Reference(plan, model, cluster, options).run();
}

}  // namespace tenuto
