#include "world/load.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "world/chaos.h"
#include "world/fault_trace.h"
#include "world/fit.h"
#include "world/keys.h"
#include "world/toml.h"
#include "world/toml_text.h"

namespace tenuto {

namespace {

// A job file is written by hand; a larger file is not one.
constexpr int64_t kMostBytes = 1 << 20;
// The most faults that one chaos may draw, on average.
constexpr int64_t kMostDrawn = 100'000;

// Where a value stands: the file or the flag, and its line and column when it has them.
struct Place {
  std::string source;
  int64_t line = 0, column = 0;
  std::string text() const { return line == 0 ? source : cat(source, ":", line, ":", column); }
};

// What is wrong, and where.
struct Flaw {
  Place place;
  std::string sentence;
};

// A job while it is read. `places` is for error messages that come later, `origin` for the user.
struct Reading {
  LoadedJob loaded;
  std::map<std::string, Place> places;
  std::vector<Flaw> flaws;
};

Place place_of(const std::string& source, const toml::source_region& region) {
  return {source, static_cast<int64_t>(region.begin.line),
          static_cast<int64_t>(region.begin.column)};
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number with a point";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// What was found, for an error: the value, cut short; of a table, a list or a date its type.
std::string found_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    const std::string& value = text->get();
    return value.size() <= 40 ? toml_string(value) : toml_string(value.substr(0, 37)) + "...";
  }
  if (const auto* number = node.as_integer()) return piece(number->get());
  if (const auto* number = node.as_floating_point()) return piece(number->get());
  if (const auto* value = node.as_boolean()) return piece(value->get());
  return type_name(node);
}

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
  const auto* whole = node.as_integer();
  const auto* number = node.as_floating_point();
  if (whole == nullptr && number == nullptr) return false;
  const double found = whole != nullptr ? static_cast<double>(whole->get()) : number->get();
  if (key.range.contains(found)) value = found;
  return key.range.contains(found);
}

// A whole number may also be written with a point or an exponent: 1e3.
bool take(const toml::node& node, const Key& key, int64_t& value) {
  constexpr double kMostExact = 9007199254740992;
  const auto* whole = node.as_integer();
  const auto* number = node.as_floating_point();
  if (whole == nullptr && number == nullptr) return false;
  const double found = whole != nullptr ? static_cast<double>(whole->get()) : number->get();
  if (!key.range.contains(found)) return false;
  if (number != nullptr && (std::floor(found) != found || std::abs(found) > kMostExact))
    return false;
  value = whole != nullptr ? whole->get() : static_cast<int64_t>(found);
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

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string best = nearest(word, names.data(), names.size());
  return best.empty() ? std::string() : cat(", did you mean ", best, "?");
}

// `name` is the key's name; for a key of a [[fault]] it has the table's number: fault[2].link.
void take_value(Reading& reading, const Key& key, const std::string& name, const toml::node& node,
                const Place& place) {
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

// The error for a name that is no key here: of a later version, misspelt, or of another section.
std::string unknown_key(const std::string& section, const std::string& key) {
  const std::string name = section + "." + key;
  const std::string_view later = later_sentence(name);
  if (!later.empty()) return cat(name, " ", later);
  std::vector<std::string_view> keys;
  std::string elsewhere;
  for (const Key& known : job_keys()) {
    const size_t dot = known.name.find('.');
    if (known.name.substr(0, dot) == section) keys.push_back(known.name.substr(dot + 1));
    if (known.name.substr(dot + 1) == key) elsewhere = std::string(known.name.substr(0, dot));
  }
  if (!elsewhere.empty()) {
    return cat("[", section, "] has no key ", key, ": it belongs to [", elsewhere, "]");
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

void read_section(Reading& reading, const std::string& section, const toml::table& table,
                  const std::string& source) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const Key* known = find_key(section + "." + name);
    if (known != nullptr) {
      take_value(reading, *known, section + "." + name, node, place_of(source, node.source()));
    } else {
      reading.flaws.push_back({place_of(source, key.source()), unknown_key(section, name)});
    }
  }
}

// "fault[2]": the name of the fault that is read or written as number `index`.
std::string fault_name(size_t index) { return cat("fault[", index, "]"); }

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
void read_faults(Reading& reading, const toml::node& node, const Place& place,
                 const std::string& source) {
  const toml::array* tables = node.as_array();
  if (tables == nullptr) {
    reading.flaws.push_back(
        {place, cat("fault is a list of tables: expected [[fault]], found ", type_name(node))});
    return;
  }
  std::vector<Fault>& faults = reading.loaded.job.faults;
  for (const toml::node& item : *tables) {
    const Place here = place_of(source, item.source());
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

void read_table(Reading& reading, const toml::table& root, const std::string& source) {
  const std::vector<std::string_view> sections = section_names();
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const Place place = place_of(source, key.source());
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

Error error_of(const Flaw& flaw) { return invalid(cat(flaw.place.text(), ": ", flaw.sentence)); }

// The first flaw in the order of the file, with the count of the others.
std::optional<Error> first_flaw(const Reading& reading) {
  if (reading.flaws.empty()) return {};
  Flaw first = *std::min_element(reading.flaws.begin(), reading.flaws.end(),
                                 [](const Flaw& left, const Flaw& right) {
                                   return std::pair(left.place.line, left.place.column) <
                                          std::pair(right.place.line, right.place.column);
                                 });
  const size_t others = reading.flaws.size() - 1;
  if (others > 0)
    first.sentence += cat(" (and ", others, others == 1 ? " fault" : " faults", " more)");
  return error_of(first);
}

// The text of a file; `what` names it in a refusal.
Result<std::string> file_text(const std::string& path, const std::string& what) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    return invalid(cat(path, ": no such file; expected ", what));
  }
  if (!S_ISREG(about.st_mode)) {
    return invalid(cat(path, ": not a file; expected ", what));
  }
  if (about.st_size > kMostBytes) {
    return invalid(cat(path, ": ", about.st_size, " bytes are too many for ", what, "; expected ",
                       kMostBytes, " at most"));
  }
  return read_file(path, kMostBytes);
}

// The kinds of fault that a key belongs to. An error names the first one.
std::vector<std::string_view> kinds_with(std::string_view word) {
  if (word == "file") return {"slow-link-trace"};
  if (word == "speed") return {"slow-worker"};
  if (word == "worker") {
    return {"slow-worker", "dead-worker", "kill", "stop", "start", "partition", "clock-skew"};
  }
  if (word == "at_op") return {"kill", "stop"};
  if (word == "for_ms") return {"stop", "partition"};
  if (word == "skew_ms") return {"clock-skew"};
  if (word == "until_step") return {"slow-link", "slow-worker", "clock-skew", "chaos"};
  if (word == "seed" || word == "every") return {"chaos"};
  if (word == "at_step") {
    return {"slow-link", "broken-connection", "slow-worker", "dead-worker",      "kill", "stop",
            "start",     "partition",         "clock-skew",  "kill-coordinator", "chaos"};
  }
  if (word == "link" || word == "from" || word == "to") return {"slow-link", "broken-connection"};
  return {"slow-link"};
}

// Checks that a fault of a worker has the keys that it needs. Returns the first flaw, or none.
std::optional<Flaw> flaw_of_worker(const Fault& fault, const Place& table,
                                   const std::string& name) {
  if (fault.worker.empty()) {
    return Flaw{table, cat(name, ".worker is missing: expected \"PIPELINE.STAGE\", or a number")};
  }
  if (fault.kind == "slow-worker" && fault.speed == 0) {
    return Flaw{table, cat(name, ".speed is missing: expected a number in (0, 1)")};
  }
  if (fault.kind == "partition" && fault.for_ms == 0) {
    return Flaw{table, cat(name, ".for_ms is missing: expected how long the worker is cut off")};
  }
  if (fault.kind == "clock-skew" && fault.skew_ms == 0) {
    return Flaw{table, cat(name, ".skew_ms is missing: expected how far the clock is ahead")};
  }
  if (fault.kind == "dead-worker" && fault.at_step > 0) {
    return Flaw{table, cat(name, ".at_step ", fault.at_step,
                           ": a worker can be absent from the start of a run (0) only; to lose one "
                           "later, take kind = \"kill\"")};
  }
  return {};
}

// Checks that the keys of a fault go together. Returns the first flaw, or none.
std::optional<Flaw> flaw_of_fault(const Reading& reading, const Fault& fault,
                                  const std::string& name) {
  const auto place_of_key = [&](const std::string& key) {
    const auto found = reading.places.find(cat(name, ".", key));
    return found == reading.places.end() ? std::optional<Place>() : found->second;
  };
  const Place& table = reading.places.at(name);
  if (!place_of_key("kind")) {
    return Flaw{table, cat(name, ".kind is missing: expected ", expected(fault_keys().front()))};
  }
  const bool trace = fault.kind == "slow-link-trace", breaks = !lasts(fault);
  for (const Key& key : fault_keys()) {
    const std::string word(key.name.substr(key.name.find('.') + 1));
    const auto place = place_of_key(word);
    if (word == "kind" || !place) continue;
    const std::vector<std::string_view> kinds = kinds_with(word);
    if (std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end()) continue;
    return Flaw{*place, cat(name, ".", word, " belongs to kind = \"", kinds.front(), "\", found \"",
                            fault.kind, "\": leave it out")};
  }
  const auto until = [&]() -> std::optional<Flaw> {
    if (fault.until_step < 0 || fault.until_step > fault.at_step) return {};
    return Flaw{*place_of_key("until_step"),
                cat(name, ".until_step ", fault.until_step, ": expected a step after at_step (",
                    fault.at_step, ")")};
  };
  if (is_of_coordinator(fault)) return {};
  if (fault.kind == "chaos") return until();
  if (is_of_worker(fault)) {
    const auto flaw = flaw_of_worker(fault, table, name);
    return flaw ? flaw : until();
  }
  if (trace) {
    if (!fault.file.empty()) return {};
    return Flaw{table, cat(name, ".file is missing: expected the file of the trace")};
  }
  const bool link = place_of_key("link").has_value();
  const bool from = place_of_key("from").has_value(), to = place_of_key("to").has_value();
  if (link ? from || to : !from || !to) {
    return Flaw{table, cat(name, " expects either link, or from and to")};
  }
  if (breaks) return {};
  if (fault.latency_ms == 0 && fault.jitter_ms == 0 && fault.megabytes_per_second == 0) {
    return Flaw{table, cat(name,
                           " changes nothing: expected latency_ms, jitter_ms or "
                           "megabytes_per_second above 0")};
  }
  return until();
}

// Builds the new list of a job's faults, in which traces and chaos are replaced by their faults.
class SettledFaults {
 public:
  explicit SettledFaults(Reading& reading) : reading_(reading) {}

  // Keeps the job's fault number `index`.
  void keep(size_t index) {
    const std::string name = fault_name(index), next = fault_name(faults_.size());
    places_[next] = reading_.places.at(name);
    for (const Key& key : fault_keys()) {
      const std::string word(key.name.substr(key.name.find('.')));
      const auto place = reading_.places.find(name + word);
      if (place != reading_.places.end()) places_[next + word] = place->second;
    }
    add(reading_.loaded.job.faults[index], reading_.loaded.origin[name]);
  }
  void add(const Fault& fault, const std::string& origin) {
    origins_[fault_name(faults_.size())] = origin;
    faults_.push_back(fault);
  }
  // The same; errors about the fault or its link name that place.
  void add(const Fault& fault, const std::string& origin, const Place& of_link) {
    const std::string name = fault_name(faults_.size());
    places_[name] = places_[name + ".link"] = of_link;
    add(fault, origin);
  }
  // Makes the new list the job's.
  void put() {
    const auto of_faults = [](const auto& entry) { return entry.first.starts_with("fault["); };
    std::erase_if(reading_.places, of_faults);
    std::erase_if(reading_.loaded.origin, of_faults);
    reading_.places.merge(places_);
    reading_.loaded.origin.merge(origins_);
    reading_.loaded.job.faults = std::move(faults_);
  }

 private:
  Reading& reading_;
  std::vector<Fault> faults_;
  std::map<std::string, Place> places_;
  std::map<std::string, std::string> origins_;
};

// Checks the keys of each fault and replaces each trace by its faults.
Status settle_faults(Reading& reading) {
  const std::vector<Fault>& faults = reading.loaded.job.faults;
  SettledFaults settled(reading);
  for (size_t i = 0; i < faults.size(); ++i) {
    const std::string name = fault_name(i);
    if (const auto flaw = flaw_of_fault(reading, faults[i], name)) return error_of(*flaw);
    if (faults[i].file.empty()) {
      settled.keep(i);
      continue;
    }
    const std::string& file = faults[i].file;
    const auto text = file_text(file, "a trace of slow links");
    if (!text.ok()) {
      return error_of(
          {reading.places.at(name + ".file"), cat(name, ".file: ", text.error().message)});
    }
    const auto traced = read_fault_trace(text.value(), file);
    if (!traced.ok()) return traced.error();
    for (const TracedFault& each : traced.value()) {
      settled.add(each.fault, cat(file, ":", each.line), {file, each.line, each.column});
    }
  }
  settled.put();
  return ok();
}

// Replaces each chaos by the faults that it draws. The job's size must be known.
Status settle_chaos(Reading& reading) {
  const Job& job = reading.loaded.job;
  SettledFaults settled(reading);
  for (size_t i = 0; i < job.faults.size(); ++i) {
    const Fault& fault = job.faults[i];
    if (fault.kind != "chaos") {
      settled.keep(i);
      continue;
    }
    const int64_t end = fault.until_step < 0 ? job.steps : std::min(job.steps, fault.until_step);
    if ((end - fault.at_step) / fault.every > kMostDrawn) {
      const std::string name = fault_name(i);
      return error_of({reading.places.at(name),
                       cat(name, ".every ", fault.every, ": chaos would draw more than ",
                           kMostDrawn, " faults up to step ", end,
                           "; expected a larger number, or an earlier until_step")});
    }
    const Place place = reading.places.at(fault_name(i));
    for (const Fault& drawn : draw_chaos(fault, job)) {
      settled.add(drawn, cat("chaos ", fault.seed), place);
    }
  }
  settled.put();
  return ok();
}

Status read_text(Reading& reading, const std::string& text, const std::string& source) {
  if (const auto deep = find_deep_name(text)) {
    return error_of({{source, deep->line, deep->column}, cat("not TOML: ", deep->sentence)});
  }
  const toml::parse_result parsed = toml::parse(text, source);
  if (!parsed) {
    return error_of({place_of(source, parsed.error().source()),
                     cat("not TOML: ", parsed.error().description())});
  }
  read_table(reading, parsed.table(), source);
  if (auto flaw = first_flaw(reading)) return *flaw;
  return settle_faults(reading);
}

// The TOML of a flag's value. Strings may be bare, lists may be bare and separated by commas.
std::string flag_toml(const Key& key, const std::string& text) {
  Job job;
  const Slot slot = key.slot(job);
  const bool quote = !text.empty() && (text[0] == '"' || text[0] == '\'');
  const bool bracket = !text.empty() && text[0] == '[';
  if (std::holds_alternative<std::string*>(slot)) return quote ? text : toml_string(text);
  if (std::holds_alternative<std::vector<std::string>*>(slot)) {
    return quote || bracket ? text : toml_string(text);
  }
  const bool numbers = std::holds_alternative<std::vector<int64_t>*>(slot) ||
                       std::holds_alternative<std::vector<double>*>(slot);
  return numbers && !bracket ? cat("[", text, "]") : text;
}

Status read_override(Reading& reading, const std::string& flag) {
  const size_t start = flag.find_first_not_of('-');
  const std::string body = start == std::string::npos ? std::string() : flag.substr(start);
  const Place place{"--" + body, 0, 0};
  const size_t equals = body.find('='), dot = body.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    return invalid(cat("\"", flag, "\" is no setting: expected --section.key=value"));
  }
  const std::string section = body.substr(0, dot), key = body.substr(dot + 1, equals - dot - 1);
  const Key* known = find_key(body.substr(0, equals));
  if (known == nullptr && (section == "fault" || section.starts_with("fault["))) {
    return error_of(
        {place, "injected faults have no flags: write [[fault]] tables into the job file"});
  }
  if (known == nullptr) {
    const auto sections = section_names();
    const bool section_known =
        std::find(sections.begin(), sections.end(), section) != sections.end();
    return error_of({place, section_known ? unknown_key(section, key) : unknown_section(section)});
  }
  const std::string value = body.substr(equals + 1);
  const std::string text = cat("value = ", flag_toml(*known, value));
  const auto refuse = [&] {
    return error_of({place, cat(known->name, " expects ", expected(*known), ", found ",
                                value.empty() ? std::string("nothing") : toml_string(value))});
  };
  if (find_deep_name(text)) return refuse();
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed || parsed.table().size() != 1) return refuse();
  take_value(reading, *known, std::string(known->name), *parsed.table().get("value"), place);
  if (auto flaw = first_flaw(reading)) return *flaw;
  return ok();
}

Status check_fit(const Reading& reading) {
  const auto misfit = find_misfit(reading.loaded.job);
  if (!misfit) return ok();
  const auto place = reading.places.find(misfit->key);
  const std::string sentence = cat(misfit->key, " ", misfit->sentence);
  if (place == reading.places.end()) return invalid(sentence);
  return error_of({place->second, sentence});
}

// Does what needs the whole job, after every text and every flag has been read.
Status settle(Reading& reading) {
  if (const Status fits = check_fit(reading); !fits.ok()) return fits;
  if (const Status drawn = settle_chaos(reading); !drawn.ok()) return drawn;
  return check_fit(reading);
}

Reading fresh_reading() {
  Reading reading;
  for (const Key& key : job_keys()) reading.loaded.origin[std::string(key.name)] = "default";
  return reading;
}

// The kind of a fault and those of its keys that are not at their defaults.
std::string fault_toml(const Fault& fault) {
  Job job, plain;
  job.faults = {fault};
  plain.faults = {Fault{}};
  std::string text;
  for (const Key& key : fault_keys()) {
    const std::string value = value_text(key, job);
    if (key.name != "fault.kind" && value == value_text(key, plain)) continue;
    text += cat(key.name.substr(key.name.find('.') + 1), " = ", value, "\n");
  }
  return text;
}

}  // namespace

Result<LoadedJob> load_job(const std::string& path, const std::vector<std::string>& overrides) {
  Reading reading = fresh_reading();
  if (!path.empty()) {
    const auto text = file_text(path, "a job in TOML (see examples/)");
    if (!text.ok()) return text.error();
    const Status read = read_text(reading, text.value(), path);
    if (!read.ok()) return read.error();
  }
  for (const std::string& flag : overrides) {
    const Status read = read_override(reading, flag);
    if (!read.ok()) return read.error();
  }
  const Status settled = settle(reading);
  if (!settled.ok()) return settled.error();
  return reading.loaded;
}

std::string to_toml(const Job& job, const std::map<std::string, std::string>* origin) {
  std::string text, section;
  for (const Key& key : job_keys()) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = std::string(key.name.substr(0, dot));
      text += cat(text.empty() ? "" : "\n", "[", section, "]\n");
    }
    std::string line = cat(key.name.substr(dot + 1), " = ", value_text(key, job));
    if (origin != nullptr) {
      const auto from = origin->find(std::string(key.name));
      if (line.size() < 40) line.resize(40, ' ');
      line += cat("  # ", from == origin->end() ? std::string("default") : from->second);
    }
    text += line + "\n";
  }
  for (size_t i = 0; i < job.faults.size(); ++i) {
    const auto from = origin == nullptr ? std::map<std::string, std::string>::const_iterator()
                                        : origin->find(fault_name(i));
    std::string head = "\n[[fault]]";
    if (origin != nullptr && from != origin->end()) {
      head.resize(41, ' ');
      head += "  # " + from->second;
    }
    text += head + "\n" + fault_toml(job.faults[i]);
  }
  return text;
}

Result<Job> job_from_toml(const std::string& text, const std::string& source) {
  Reading reading = fresh_reading();
  const Status read = read_text(reading, text, source);
  if (!read.ok()) return read.error();
  const Status settled = settle(reading);
  if (!settled.ok()) return settled.error();
  return reading.loaded.job;
}

}  // namespace tenuto
