#include "base/json.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace tenuto {

Result<Json> parse_json(std::string_view text, std::string_view source, const JsonForm& form) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      // Printing a tree recurses once for each level, so deeper levels than allowed are not stored.
      deep = deep || depth >= form.most_depth;
      if (deep) return false;
    }
    if (deep) return true;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!keys.back().insert(key).second && twice.empty()) twice = key;
    return true;
  };
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return invalid(cat(source, ": expected a ", form.what, " as JSON, found an empty file"));
  }
  Json tree;
  try {
    tree = Json::parse(text, watch);
  } catch (const Json::parse_error& fault) {
    return invalid(cat(source, ":", line_and_column(text, fault.byte), ": expected a ", form.what,
                       " as JSON, found text that is not JSON (is the file cut off, or is a number "
                       "written in another form?)"));
  } catch (const Json::exception&) {
    return invalid(cat(source, ": a number of the ", form.what, " is too large to be read"));
  }
  if (deep) {
    return invalid(cat(source, ": expected a ", form.what, ", found lists or objects nested ",
                       form.most_depth + 1, " times and more"));
  }
  if (!twice.empty()) {
    return invalid(cat(source, ": the key ", twice.substr(0, 40), " stands twice: leave one out"));
  }
  return tree;
}

}  // namespace tenuto
