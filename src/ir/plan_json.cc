// The plan's JSON form: to_json and plan_from_json of ir/text.h.
#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

template <class Tag>
Json ids(const std::vector<Id<Tag>>& values) {
  Json array = Json::array();
  for (const Id<Tag> id : values) array.push_back(id.value);
  return array;
}

// Tokens in one string: people can read them, and they take a tenth of the bytes of objects.
template <class Items>
std::string tokens(const Items& items) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ' ';
    text += to_text(item);
  }
  return text;
}

Json to_tree(const Summing& summing) {
  Json tree = {{"algorithm", summing.algorithm}, {"chunks", summing.chunks}};
  if (summing.late.value >= 0) tree["late"] = summing.late.value;
  return tree;
}

Json to_tree(const Schedule& schedule) {
  Json lists = Json::array(), groups = Json::array(), collectives = Json::array();
  for (const auto& list : schedule.lists) lists.push_back(tokens(list));
  for (const Group& group : schedule.groups) {
    groups.push_back({{"stages", ids(group.stages)},
                      {"members", ids(group.members)},
                      {"collective", group.collective.value}});
    if (group.summing != Summing{}) groups.back()["summing"] = to_tree(group.summing);
  }
  for (const Collective& collective : schedule.collectives) {
    Json rounds = Json::array();
    for (const Round& round : collective.rounds) rounds.push_back(tokens(round.moves));
    collectives.push_back({{"members", ids(collective.members)},
                           {"chunk_count", collective.chunk_count},
                           {"rounds", std::move(rounds)}});
  }
  Json tree = {{"stage_count", schedule.stage_count},
               {"micro_count", schedule.micro_count},
               {"lists", std::move(lists)},
               {"groups", std::move(groups)},
               {"collectives", std::move(collectives)}};
  if (schedule.all_reduce != Schedule{}.all_reduce) tree["all_reduce"] = schedule.all_reduce;
  return tree;
}

// The most layers (1,000 for each of 16,384 workers) and chunks of a sum that a plan can have.
// They bound the lists that are allocated with an entry for each layer or chunk.
constexpr int32_t kMostLayers = 16'384'000, kMostChunks = 1 << 24;

// Reads a tree; the first fault is kept, everything after it is skipped.
class TreeReader {
 public:
  explicit TreeReader(std::string_view source) : source_(source) {}

  const std::optional<Error>& error() const { return error_; }

  Plan plan(const Json& tree) {
    Plan plan;
    if (!object(tree, "",
                {"order", "stages", "dispatch", "split_backward", "limits", "schedule",
                 "evaluation"})) {
      return plan;
    }
    plan.order = text(tree["order"], "order");
    each(tree["stages"], "stages", [&](const Json& item, const std::string& place) {
      plan.stages.push_back(stage(item, place));
    });
    const std::string dispatch = text(tree["dispatch"], "dispatch");
    if (dispatch != "listed" && dispatch != "ready") {
      refuse("dispatch", "'listed' or 'ready'", tree["dispatch"]);
    }
    plan.dispatch = dispatch == "ready" ? Dispatch::Ready : Dispatch::Listed;
    plan.split_backward = truth(tree["split_backward"], "split_backward");
    each(tree["limits"], "limits", [&](const Json& item, const std::string& place) {
      plan.limits.push_back(limit(item, place));
    });
    plan.schedule = schedule(tree["schedule"], "schedule");
    plan.evaluation = schedule(tree["evaluation"], "evaluation");
    plan.update = update_style_of(plan.schedule);
    return plan;
  }

 private:
  void refuse(const std::string& place, std::string_view wanted, const Json& found) {
    if (error_) return;
    std::string shown = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > 40) shown = shown.substr(0, 37) + "...";
    error_ = invalid(cat(source_, ": ", place.empty() ? std::string("the plan") : place,
                         ": expected ", wanted, ", found ", shown));
  }

  // True when `tree` is an object with these fields and no others but perhaps `spare`.
  bool object(const Json& tree, const std::string& place,
              std::initializer_list<std::string_view> fields, std::string_view spare = {}) {
    if (error_) return false;
    if (!tree.is_object()) {
      refuse(place, "an object", tree);
      return false;
    }
    const std::string prefix = place.empty() ? place : place + ".";
    for (const std::string_view field : fields) {
      if (tree.contains(std::string(field))) continue;
      error_ =
          invalid(cat(source_, ": ", prefix, field, " is missing",
                      place.empty() ? "; expected a plan, as tenuto plan --plan writes it" : ""));
      return false;
    }
    for (const auto& [key, value] : tree.items()) {
      if (std::find(fields.begin(), fields.end(), std::string_view(key)) != fields.end()) continue;
      if (!spare.empty() && key == spare) continue;
      const std::string near = nearest(key, fields.begin(), fields.size());
      error_ = invalid(cat(source_, ": ", prefix, key.substr(0, 40), " is not a field of a plan",
                           near.empty() ? std::string() : cat(": did you mean ", near, "?")));
      return false;
    }
    return true;
  }

  template <class Visit>
  void each(const Json& tree, const std::string& place, Visit visit) {
    if (error_) return;
    if (!tree.is_array()) {
      refuse(place, "an array", tree);
      return;
    }
    for (size_t i = 0; i < tree.size() && !error_; ++i) visit(tree[i], cat(place, "[", i, "]"));
  }

  std::string text(const Json& tree, const std::string& place) {
    if (error_) return {};
    if (tree.is_string()) return tree.get<std::string>();
    refuse(place, "a text", tree);
    return {};
  }

  bool truth(const Json& tree, const std::string& place) {
    if (error_) return false;
    if (tree.is_boolean()) return tree.get<bool>();
    refuse(place, "true or false", tree);
    return false;
  }

  int32_t number(const Json& tree, const std::string& place, int32_t most = INT32_MAX) {
    if (error_) return 0;
    const bool fits =
        tree.is_number_integer() &&
        (!tree.is_number_unsigned() || tree.get<uint64_t>() <= static_cast<uint64_t>(most)) &&
        tree.get<int64_t>() >= 0;
    if (fits) return tree.get<int32_t>();
    refuse(place, cat("a whole number from 0 to ", most), tree);
    return 0;
  }

  int64_t wide_number(const Json& tree, const std::string& place) {
    if (error_) return 0;
    const bool fits = tree.is_number_integer() &&
                      (!tree.is_number_unsigned() ||
                       tree.get<uint64_t>() <= static_cast<uint64_t>(kMostMemory)) &&
                      tree.get<int64_t>() >= 0;
    if (fits) return tree.get<int64_t>();
    refuse(place, cat("a whole number from 0 to ", kMostMemory), tree);
    return 0;
  }

  Limit limit(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"micros", "warm_up"}, "room")) return {};
    Limit limit{
        number(tree["micros"], place + ".micros"), number(tree["warm_up"], place + ".warm_up"), {}};
    if (!tree.contains("room") ||
        !object(tree["room"], place + ".room", {"most", "whole", "late"})) {
      return limit;
    }
    limit.memory = {wide_number(tree["room"]["most"], place + ".room.most"),
                    wide_number(tree["room"]["whole"], place + ".room.whole"),
                    wide_number(tree["room"]["late"], place + ".room.late")};
    return limit;
  }

  template <class Tag>
  std::vector<Id<Tag>> ids_of(const Json& tree, const std::string& place) {
    std::vector<Id<Tag>> values;
    each(tree, place, [&](const Json& item, const std::string& item_place) {
      values.push_back({number(item, item_place)});
    });
    return values;
  }

  Stage stage(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"layer_first", "layer_end", "holders"}, "recompute")) return {};
    return {number(tree["layer_first"], place + ".layer_first", kMostLayers),
            number(tree["layer_end"], place + ".layer_end", kMostLayers),
            ids_of<WorkerTag>(tree["holders"], place + ".holders"),
            tree.contains("recompute") && truth(tree["recompute"], place + ".recompute")};
  }

  // The tokens of a text, each read by `read` into `items`.
  template <class Item, class Read>
  void read_tokens(const Json& tree, const std::string& place, Read read,
                   std::vector<Item>& items) {
    const std::string all = text(tree, place);
    size_t at = 0;
    while (at < all.size() && !error_) {
      const size_t end = std::min(all.find(' ', at), all.size());
      const auto item = read(std::string_view(all).substr(at, end - at));
      if (!item.ok()) {
        error_ =
            invalid(cat(source_, ": ", place, ", character ", at + 1, ": ", item.error().message));
        return;
      }
      items.push_back(item.value());
      at = end + 1;
      if (at == all.size()) refuse(place, "no blank at the end", tree);
    }
  }

  Collective collective(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"members", "chunk_count", "rounds"})) return {};
    Collective result;
    result.members = ids_of<WorkerTag>(tree["members"], place + ".members");
    result.chunk_count = number(tree["chunk_count"], place + ".chunk_count", kMostChunks);
    each(tree["rounds"], place + ".rounds", [&](const Json& item, const std::string& item_place) {
      read_tokens(item, item_place, move_from_text, result.rounds.emplace_back().moves);
    });
    return result;
  }

  Summing summing(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"algorithm", "chunks"}, "late")) return {};
    Summing result;
    result.algorithm = text(tree["algorithm"], place + ".algorithm");
    result.chunks = number(tree["chunks"], place + ".chunks");
    if (tree.contains("late")) result.late = {number(tree["late"], place + ".late")};
    return result;
  }

  Group group(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"stages", "members", "collective"}, "summing")) return {};
    Group result{ids_of<StageTag>(tree["stages"], place + ".stages"),
                 ids_of<WorkerTag>(tree["members"], place + ".members"),
                 {number(tree["collective"], place + ".collective")}};
    if (tree.contains("summing")) result.summing = summing(tree["summing"], place + ".summing");
    return result;
  }

  Schedule schedule(const Json& tree, const std::string& place) {
    if (!object(tree, place, {"stage_count", "micro_count", "lists", "groups", "collectives"},
                "all_reduce")) {
      return {};
    }
    Schedule result;
    if (tree.contains("all_reduce")) {
      result.all_reduce = text(tree["all_reduce"], place + ".all_reduce");
    }
    result.stage_count = number(tree["stage_count"], place + ".stage_count");
    result.micro_count = number(tree["micro_count"], place + ".micro_count");
    each(tree["lists"], place + ".lists", [&](const Json& item, const std::string& item_place) {
      read_tokens(item, item_place, op_from_text, result.lists.emplace_back());
    });
    each(tree["groups"], place + ".groups", [&](const Json& item, const std::string& item_place) {
      result.groups.push_back(group(item, item_place));
    });
    each(tree["collectives"], place + ".collectives",
         [&](const Json& item, const std::string& item_place) {
           result.collectives.push_back(collective(item, item_place));
         });
    return result;
  }

  std::string_view source_;
  std::optional<Error> error_;
};

// A plan's own depth is 6: the moves of a round of a collective of a schedule.
constexpr int kMostDepth = 8;

}  // namespace

std::string to_json(const Plan& plan) {
  Json stages = Json::array(), limits = Json::array();
  for (const Stage& stage : plan.stages) {
    stages.push_back({{"layer_first", stage.layer_first},
                      {"layer_end", stage.layer_end},
                      {"holders", ids(stage.holders)}});
    if (stage.recompute) stages.back()["recompute"] = true;
  }
  for (const Limit& limit : plan.limits) {
    Json one = {{"micros", limit.micros}, {"warm_up", limit.warm_up}};
    const MemoryLimit& memory = limit.memory;
    if (memory != MemoryLimit{}) {
      one["room"] = {{"most", memory.most}, {"whole", memory.whole}, {"late", memory.late}};
    }
    limits.push_back(std::move(one));
  }
  const Json tree = {{"order", plan.order},
                     {"stages", std::move(stages)},
                     {"dispatch", plan.dispatch == Dispatch::Ready ? "ready" : "listed"},
                     {"split_backward", plan.split_backward},
                     {"limits", std::move(limits)},
                     {"schedule", to_tree(plan.schedule)},
                     {"evaluation", to_tree(plan.evaluation)}};
  return tree.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Plan> plan_from_json(std::string_view text, std::string_view source) {
  const auto tree = parse_json(text, source, {"plan", kMostDepth});
  if (!tree.ok()) return tree.error();
  TreeReader reader(source);
  Plan plan = reader.plan(tree.value());
  if (reader.error()) return *reader.error();
  return plan;
}

}  // namespace tenuto
