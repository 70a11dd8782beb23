#include "control/store.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostMembers = 1 << 20;

}  // namespace

std::string to_json(const Facts& facts) {
  Json members = Json::array();
  for (const WorkerId member : facts.members) members.push_back(member.value);
  return Json{{"term", facts.term},
              {"epoch", facts.epoch},
              {"committed", facts.committed},
              {"target", facts.target},
              {"members", std::move(members)}}
      .dump();
}

Result<Facts> facts_from_json(std::string_view text, std::string_view origin) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto corrupt = [&](const std::string& what) {
    return Error{Code::Corrupt, Reach::Job, cat(origin, ": ", what)};
  };
  if (!json.is_object()) return corrupt("expected a JSON object");
  Facts facts;
  for (const auto& [name, to] : {std::pair<const char*, int64_t*>{"term", &facts.term},
                                 {"epoch", &facts.epoch},
                                 {"committed", &facts.committed},
                                 {"target", &facts.target}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number_integer()) {
      return corrupt(cat("expected the whole number '", name, "'"));
    }
    *to = found->get<int64_t>();
  }
  const auto members = json.find("members");
  if (members == json.end() || !members->is_array()) return corrupt("expected a list 'members'");
  for (const Json& member : *members) {
    if (!member.is_number_unsigned() || member.get<uint64_t>() >= kMostMembers) {
      return corrupt("'members' expects numbers of workers");
    }
    facts.members.push_back({member.get<int32_t>()});
  }
  return facts;
}

}  // namespace tenuto
