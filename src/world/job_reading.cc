#include "world/job_reading.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

// Reads one value from a TOML node. False when it has another type or is out of range.
bool take(const toml::node& node, const Key&, bool& value) {
  const auto* found = node.as_boolean();
  if (found != nullptr) value = found->get();
  return found != nullptr;
}

bool take(const toml::node& node, const Key& key, std::string& value) {
  const auto* found = node.as_string();
  if (found == nullptr || found->get().find('\0') != std::string::npos) return false;
  std::string_view text = found->get();
  for (const auto& [before, now] : key.renamed) {
    if (text == before) text = now;
  }
  const auto& choices = key.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
    return false;
  value = text;
  return true;
}

bool take(const toml::node& node, const Key& key, double& value) {
  const auto found = number_of(node);
  if (!found || !key.range.contains(*found)) return false;
  value = *found;
  return true;
}

bool take(const toml::node& node, const Key& key, int64_t& value) {
  const auto found = whole_number_of(node);
  if (!found || !key.range.contains(static_cast<double>(*found))) return false;
  value = *found;
  return true;
}

bool take(const toml::node& node, const Key& key, int32_t& value) {
  int64_t wide = 0;
  if (!take(node, key, wide) || wide > std::numeric_limits<int32_t>::max()) return false;
  value = static_cast<int32_t>(wide);
  return true;
}

// A list; a single value stands for a list of one.
template <class T>
bool take(const toml::node& node, const Key& key, std::vector<T>& values) {
  std::vector<T> found;
  const auto take_one = [&](const toml::node& item) {
    T value{};
    if (!take(item, key, value)) return false;
    found.push_back(std::move(value));
    return true;
  };
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      if (!take_one(item)) return false;
    }
  } else if (!take_one(node)) {
    return false;
  }
  values = std::move(found);
  return true;
}

// The first item of a list that does not fit, or the node itself, as text.
std::string misfit_text(const Key& key, const toml::node& node) {
  const auto* list = node.as_array();
  Job job;
  const Slot slot = key.slot(job);
  const bool wants_list = std::holds_alternative<std::vector<std::string>*>(slot) ||
                          std::holds_alternative<std::vector<int64_t>*>(slot) ||
                          std::holds_alternative<std::vector<double>*>(slot);
  if (list == nullptr || !wants_list) return found_text(node);
  for (size_t i = 0; i < list->size(); ++i) {
    const toml::node& item = *list->get(i);
    const bool fits = std::visit([&](auto* value) { return take(item, key, *value); }, slot);
    if (!fits) return cat(found_text(item), " as item ", i);
  }
  return found_text(node);
}

void read_section(JobReading& reading, const std::string& section, const toml::table& table,
                  const std::string& source) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const Key* known = find_key(section + "." + name);
    if (known != nullptr) {
      take_value(reading, *known, std::string(known->name), node, place_of(source, node.source()));
    } else {
      reading.flaws.push_back({place_of(source, key.source()), unknown_key(section, name)});
    }
  }
}

std::string unknown_fault_key(const std::string& key) {
  std::vector<std::string_view> keys;
  std::string all;
  for (const Key& known : fault_keys()) {
    keys.push_back(known.name.substr(known.name.find('.') + 1));
    all += cat(all.empty() ? "" : ", ", keys.back());
  }
  const std::string hint = did_you_mean(key, keys);
  return cat("[[fault]] has no key ", key, hint.empty() ? cat("; it has ", all) : hint);
}

// Appends a fault to the job for each [[fault]] table and then reads the table's keys into it.
void read_faults(JobReading& reading, const toml::node& node, const TextPlace& place,
                 const std::string& source) {
  const toml::array* tables = node.as_array();
  if (tables == nullptr) {
    reading.flaws.push_back(
        {place, cat("fault is a list of tables: expected [[fault]], found ", type_name(node))});
    return;
  }
  std::vector<Fault>& faults = reading.loaded.job.faults;
  for (const toml::node& item : *tables) {
    const TextPlace here = place_of(source, item.source());
    const toml::table* table = item.as_table();
    if (table == nullptr) {
      reading.flaws.push_back(
          {here, cat("fault is a list of tables: expected [[fault]], found ", type_name(item))});
      continue;
    }
    const std::string name = fault_name(faults.size());
    faults.emplace_back();
    reading.places[name] = here;
    reading.loaded.origin[name] = cat(here.source, ":", here.line);
    for (const auto& [key, value] : *table) {
      const std::string word(key.str());
      const Key* known = find_fault_key("fault." + word);
      if (known != nullptr) {
        take_value(reading, *known, cat(name, ".", word), value, place_of(source, value.source()));
      } else {
        reading.flaws.push_back({place_of(source, key.source()), unknown_fault_key(word)});
      }
    }
  }
}

}  // namespace

void take_value(JobReading& reading, const Key& key, const std::string& name,
                const toml::node& node, const TextPlace& place) {
  const bool fits = std::visit([&](auto* value) { return take(node, key, *value); },
                               key.slot(reading.loaded.job));
  if (fits) {
    reading.places[name] = place;
    reading.loaded.origin[name] =
        place.line == 0 ? std::string("flag") : cat(place.source, ":", place.line);
    return;
  }
  std::string hint;
  if (const auto* text = node.as_string(); text != nullptr && !key.choices.empty()) {
    hint = did_you_mean(text->get(), key.choices);
  }
  reading.flaws.push_back(
      {place, cat(name, " expects ", expected(key), ", found ", misfit_text(key, node), hint)});
}

std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names;
  for (const Key& key : job_keys()) {
    const std::string_view section = key.name.substr(0, key.name.find('.'));
    if (names.empty() || names.back() != section) names.push_back(section);
  }
  return names;
}

std::string unknown_key(const std::string& section, const std::string& key) {
  const std::string name = section + "." + key;
  const std::string_view later = later_sentence(name);
  if (!later.empty()) return cat(name, " ", later);
  std::vector<std::string_view> keys;
  std::string elsewhere;
  for (const Key& known : job_keys()) {
    const size_t dot = known.name.find('.');
    if (known.name.substr(0, dot) == section) keys.push_back(known.name.substr(dot + 1));
    if (known.name.substr(dot + 1) != key) continue;
    elsewhere += cat(elsewhere.empty() ? "[" : " or [", known.name.substr(0, dot), "]");
  }
  if (!elsewhere.empty()) {
    return cat("[", section, "] has no key ", key, ": it belongs to ", elsewhere);
  }
  std::string all;
  for (const std::string_view known : keys) all += cat(all.empty() ? "" : ", ", known);
  const std::string hint = did_you_mean(key, keys);
  return cat("[", section, "] has no key ", key, hint.empty() ? cat("; it has ", all) : hint);
}

std::string unknown_section(const std::string& section) {
  const std::string_view later = later_sentence(section);
  if (!later.empty()) return cat("[", section, "] ", later);
  std::vector<std::string_view> names = section_names();
  names.push_back("fault");
  const std::string hint = did_you_mean(section, names);
  if (!hint.empty()) return cat("there is no section [", section, "]", hint);
  for (const Key& key : job_keys()) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(dot + 1) == section) {
      return cat("the key ", section, " stands outside its section; it belongs to [",
                 key.name.substr(0, dot), "]");
    }
  }
  std::string all;
  for (const std::string_view name : names) all += cat(all.empty() ? "[" : ", [", name, "]");
  return cat("there is no section [", section, "]; there are ", all);
}

std::string fault_name(size_t index) { return cat("fault[", index, "]"); }

void read_table(JobReading& reading, const toml::table& root, const std::string& source) {
  const std::vector<std::string_view> sections = section_names();
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const TextPlace place = place_of(source, key.source());
    if (name == "fault") {
      read_faults(reading, node, place, source);
    } else if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
      reading.flaws.push_back({place, unknown_section(name)});
    } else if (const toml::table* table = node.as_table()) {
      read_section(reading, name, *table, source);
    } else {
      reading.flaws.push_back(
          {place, cat(name, " is a section: expected [", name, "], found ", type_name(node))});
    }
  }
}

}  // namespace tenuto
