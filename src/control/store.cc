#include "control/store.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostMembers = 1 << 20;
constexpr int64_t kMostStarts = std::numeric_limits<int32_t>::max();

// Reads the fields of one object; keeps what is wrong with the first bad one.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {
    if (!json.is_object()) wrong_ = "expected a JSON object";
  }

  void read(const char* name, int64_t& to, int64_t low = std::numeric_limits<int64_t>::min(),
            int64_t high = std::numeric_limits<int64_t>::max()) {
    const Json* found = find(name);
    const bool fits = found != nullptr && found->is_number_integer() &&
                      (!found->is_number_unsigned() ||
                       found->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
                      found->get<int64_t>() >= low && found->get<int64_t>() <= high;
    if (!fits) return flaw(cat("expected the whole number '", name, "'"));
    to = found->get<int64_t>();
  }
  void read(const char* name, int& to) {
    int64_t wide = 0;
    read(name, wide, 0, 255);  // an exit code
    to = static_cast<int>(wide);
  }
  void read(const char* name, bool& to) {
    const Json* found = find(name);
    if (found == nullptr || !found->is_boolean())
      return flaw(cat("expected true or false '", name, "'"));
    to = found->get<bool>();
  }
  void read(const char* name, std::string& to) {
    const Json* found = find(name);
    if (found == nullptr || !found->is_string()) return flaw(cat("expected the text '", name, "'"));
    to = found->get<std::string>();
  }
  // Numbers below `end`, none negative.
  std::vector<int32_t> read_list(const char* name, const char* what, int64_t end) {
    const Json* found = find(name);
    std::vector<int32_t> all;
    if (found == nullptr || !found->is_array()) {
      flaw(cat("expected a list '", name, "'"));
      return all;
    }
    for (const Json& one : *found) {
      if (!one.is_number_unsigned() || one.get<uint64_t>() >= static_cast<uint64_t>(end)) {
        flaw(cat("'", name, "' expects ", what));
        return {};
      }
      all.push_back(one.get<int32_t>());
    }
    return all;
  }
  // Reads moves of layers; each is a list of three numbers: stage, donor, receiver.
  std::vector<LayerMove> read_moves(const Json& json) {
    std::vector<LayerMove> moves;
    for (const Json& one : json) {
      const bool three =
          one.is_array() && one.size() == 3 &&
          std::all_of(one.begin(), one.end(), [](const Json& number) {
            return number.is_number_unsigned() && number.get<uint64_t>() < kMostMembers;
          });
      if (!three) {
        flaw("'moves' expects lists of a stage and two workers");
        return {};
      }
      moves.push_back({{one[0].get<int32_t>()}, {one[1].get<int32_t>()}, {one[2].get<int32_t>()}});
    }
    return moves;
  }
  // The object of that name; null when it is not there or null itself.
  const Json* part(const char* name) const {
    const Json* found = find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  void flaw(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const Json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& json_;
  std::string wrong_;
};

std::string read_ending(const Json& json, Ending& ending) {
  Fields fields(json);
  fields.read("exit_code", ending.exit_code);
  fields.read("sentence", ending.sentence);
  return fields.wrong();
}

std::string read_last_resort(const Json& json, LastResort& last) {
  Fields fields(json);
  fields.read("cause", last.cause);
  fields.read("exit_saved", last.exit_saved);
  fields.read("exit_bare", last.exit_bare);
  fields.read("ceiling", last.ceiling);
  return fields.wrong();
}

std::string read_treatments(const Json& json, Treatments& treatments) {
  Fields fields(json);
  for (const TreatmentKey key : kTreatmentKeys) {
    std::string name;
    fields.read(name_of(key), name);
    const std::optional<Treatment> how = treatment_from(key, name);
    if (!how) fields.flaw(cat("'", name_of(key), "' expects a treatment, found '", name, "'"));
    if (how) treatments.set(key, *how);
  }
  return fields.wrong();
}

}  // namespace

std::string to_json(const Facts& facts) {
  const auto numbers = [](const std::vector<WorkerId>& workers) {
    Json all = Json::array();
    for (const WorkerId worker : workers) all.push_back(worker.value);
    return all;
  };
  Json json = {{"run", facts.run},
               {"term", facts.term},
               {"epoch", facts.epoch},
               {"committed", facts.committed},
               {"target", facts.target},
               {"members", numbers(facts.members)},
               {"incarnations", facts.incarnations},
               {"joiners", numbers(facts.joiners)},
               {"begun", facts.begun},
               {"first_plan", facts.first_plan},
               {"plan", facts.plan},
               {"plan_from", facts.plan_from},
               {"plan_name", facts.plan_name},
               {"previous_plan", facts.previous_plan}};
  if (facts.rest) json["rest"] = true;
  if (facts.grown) json["grown"] = true;
  if (facts.moving) json["moving"] = true;
  for (const LayerMove& move : facts.moves) {
    json["moves"].push_back({move.stage.value, move.from.value, move.to.value});
  }
  if (const auto& last = facts.last_resort) {
    json["last_resort"] = {{"cause", last->cause},
                           {"exit_saved", last->exit_saved},
                           {"exit_bare", last->exit_bare},
                           {"ceiling", last->ceiling}};
  }
  if (const auto& treatments = facts.treatments) {
    for (const TreatmentKey key : kTreatmentKeys) {
      json["treatments"][name_of(key)] = name_of(key, treatments->of(key));
    }
  }
  if (const auto& ending = facts.ending) {
    json["ending"] = {{"exit_code", ending->exit_code}, {"sentence", ending->sentence}};
  }
  // A sentence may contain a file name, which need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Facts> facts_from_json(std::string_view text, std::string_view origin) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Fields fields(json);
  Facts facts;
  fields.read("run", facts.run);
  fields.read("term", facts.term);
  fields.read("epoch", facts.epoch);
  fields.read("committed", facts.committed);
  fields.read("target", facts.target);
  for (const int32_t member : fields.read_list("members", "numbers of workers", kMostMembers)) {
    facts.members.push_back({member});
  }
  facts.incarnations = fields.read_list("incarnations", "numbers of starts", kMostStarts);
  // An earlier version wrote "learners".
  const char* joiners = fields.part("learners") != nullptr ? "learners" : "joiners";
  for (const int32_t joiner : fields.read_list(joiners, "numbers of workers", kMostMembers)) {
    facts.joiners.push_back({joiner});
  }
  if (fields.part("rest") != nullptr) fields.read("rest", facts.rest);
  fields.read("begun", facts.begun);
  if (fields.part("grown") != nullptr) fields.read("grown", facts.grown);
  if (fields.part("moving") != nullptr) fields.read("moving", facts.moving);
  if (const Json* moves = fields.part("moves")) facts.moves = fields.read_moves(*moves);
  fields.read("first_plan", facts.first_plan);
  fields.read("plan", facts.plan);
  fields.read("plan_from", facts.plan_from);
  fields.read("plan_name", facts.plan_name);
  fields.read("previous_plan", facts.previous_plan);
  if (const Json* part = fields.part("last_resort")) {
    fields.flaw(read_last_resort(*part, facts.last_resort.emplace()));
  }
  if (const Json* part = fields.part("treatments")) {
    fields.flaw(read_treatments(*part, facts.treatments.emplace()));
  }
  if (const Json* part = fields.part("ending")) {
    fields.flaw(read_ending(*part, facts.ending.emplace()));
  }
  if (facts.incarnations.size() != facts.members.size()) {
    fields.flaw("expected an incarnation for each of 'members'");
  }
  if (fields.wrong().empty()) return facts;
  return Error{Code::Corrupt, Reach::Job, cat(origin, ": ", fields.wrong())};
}

}  // namespace tenuto
