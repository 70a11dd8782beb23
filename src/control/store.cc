#include "control/store.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

}  // namespace

std::string to_json(const Facts& facts) {
  return Json{{"term", facts.term},
              {"epoch", facts.epoch},
              {"committed", facts.committed},
              {"target", facts.target}}
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
  return facts;
}

}  // namespace tenuto
