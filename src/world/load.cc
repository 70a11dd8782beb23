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
#include "world/job_files.h"
#include "world/job_reading.h"
#include "world/keys.h"
#include "world/plan_settings.h"
#include "world/toml.h"
#include "world/toml_text.h"

namespace tenuto {

namespace {

// People write job files by hand; a larger file is no job file.
constexpr int64_t kMostBytes = 1 << 20;
// The most faults that one chaos may draw, on average.
constexpr int64_t kMostDrawn = 100'000;

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
    return {"slow-worker", "dead-worker", "kill",    "stop",         "start",
            "partition",   "clock-skew",  "cpu-hog", "bandwidth-hog"};
  }
  if (word == "at_op") return {"kill", "stop"};
  if (word == "for_ms") return {"stop", "partition", "cpu-hog", "bandwidth-hog"};
  if (word == "threads") return {"cpu-hog"};
  if (word == "megabytes_per_second") return {"slow-link", "bandwidth-hog"};
  if (word == "skew_ms") return {"clock-skew"};
  if (word == "until_step") {
    return {"slow-link", "slow-worker", "clock-skew", "cpu-hog", "bandwidth-hog", "chaos"};
  }
  if (word == "seed" || word == "every" || word == "hogs") return {"chaos"};
  if (word == "at_step") {
    return {"slow-link",     "broken-connection",
            "slow-worker",   "dead-worker",
            "kill",          "stop",
            "start",         "partition",
            "clock-skew",    "cpu-hog",
            "bandwidth-hog", "kill-coordinator",
            "chaos"};
  }
  if (word == "pair" || word == "port") return {"slow-link"};
  if (word == "link" || word == "from" || word == "to") return {"slow-link", "broken-connection"};
  return {"slow-link"};
}

// Checks that a fault of a worker has the keys that it needs. Returns the first flaw, or none.
std::optional<TomlFlaw> flaw_of_worker(const Fault& fault, const TextPlace& table,
                                       const std::string& name) {
  if (fault.worker.empty()) {
    return TomlFlaw{table,
                    cat(name, ".worker is missing: expected \"PIPELINE.STAGE\" or a number")};
  }
  if (fault.kind == "slow-worker" && fault.speed == 0) {
    return TomlFlaw{table, cat(name, ".speed is missing: expected a number in (0, 1)")};
  }
  if (fault.kind == "partition" && fault.for_ms == 0) {
    return TomlFlaw{table,
                    cat(name, ".for_ms is missing: expected how long the worker is cut off")};
  }
  if (fault.kind == "clock-skew" && fault.skew_ms == 0) {
    return TomlFlaw{table, cat(name, ".skew_ms is missing: expected how far the clock is ahead")};
  }
  if (fault.kind == "cpu-hog" && fault.threads == 0) {
    return TomlFlaw{table, cat(name, ".threads is missing: expected how many threads compute")};
  }
  if (is_hog(fault) && fault.for_ms > 0 && fault.until_step >= 0) {
    return TomlFlaw{table, cat(name, " expects either for_ms or until_step")};
  }
  if (fault.kind == "dead-worker" && fault.at_step > 0) {
    return TomlFlaw{table,
                    cat(name, ".at_step ", fault.at_step,
                        ": a worker can be absent from the start of a run (0) only; to lose one "
                        "later, take kind = \"kill\"")};
  }
  return {};
}

// Checks that the keys of a fault go together. Returns the first flaw, or none.
std::optional<TomlFlaw> flaw_of_fault(const JobReading& reading, const Fault& fault,
                                      const std::string& name) {
  const auto place_of_key = [&](const std::string& key) {
    const auto found = reading.places.find(cat(name, ".", key));
    return found == reading.places.end() ? std::optional<TextPlace>() : found->second;
  };
  const TextPlace& table = reading.places.at(name);
  if (!place_of_key("kind")) {
    return TomlFlaw{table,
                    cat(name, ".kind is missing: expected ", expected(fault_keys().front()))};
  }
  const bool trace = fault.kind == "slow-link-trace", breaks = !lasts(fault);
  for (const Key& key : fault_keys()) {
    const std::string word(key.name.substr(key.name.find('.') + 1));
    const auto place = place_of_key(word);
    if (word == "kind" || !place) continue;
    const std::vector<std::string_view> kinds = kinds_with(word);
    if (std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end()) continue;
    return TomlFlaw{*place, cat(name, ".", word, " belongs to kind = \"", kinds.front(),
                                "\", found \"", fault.kind, "\": leave it out")};
  }
  const auto until = [&]() -> std::optional<TomlFlaw> {
    if (fault.until_step < 0 || fault.until_step > fault.at_step) return {};
    return TomlFlaw{*place_of_key("until_step"),
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
    return TomlFlaw{table, cat(name, ".file is missing: expected the file of the trace")};
  }
  const bool from = place_of_key("from").has_value(), to = place_of_key("to").has_value();
  int ways = from || to ? 1 : 0;  // in which the links are named
  for (const char* key : {"link", "pair", "port"}) ways += place_of_key(key) ? 1 : 0;
  if (ways != 1 || from != to) {
    return TomlFlaw{
        table, cat(name, " expects either link, ", breaks ? "" : "pair, port, ", "or from and to")};
  }
  if (breaks) return {};
  if (fault.latency_ms == 0 && fault.jitter_ms == 0 && fault.megabytes_per_second == 0) {
    return TomlFlaw{table, cat(name,
                               " changes nothing: expected latency_ms, jitter_ms or "
                               "megabytes_per_second above 0")};
  }
  return until();
}

// Builds the new list of a job's faults, in which traces and chaos are replaced by their faults.
class FaultList {
 public:
  explicit FaultList(JobReading& reading) : reading_(reading) {}

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
  // Appends a fault. Errors about the fault or its link give `of_link` as their place.
  void add(const Fault& fault, const std::string& origin, const TextPlace& of_link) {
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
  JobReading& reading_;
  std::vector<Fault> faults_;
  std::map<std::string, TextPlace> places_;
  std::map<std::string, std::string> origins_;
};

// Checks the keys of each fault and replaces each trace by its faults.
Status read_traces(JobReading& reading) {
  const std::vector<Fault>& faults = reading.loaded.job.faults;
  FaultList list(reading);
  for (size_t i = 0; i < faults.size(); ++i) {
    const std::string name = fault_name(i);
    if (const auto flaw = flaw_of_fault(reading, faults[i], name)) return error_of(*flaw);
    if (faults[i].file.empty()) {
      list.keep(i);
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
      list.add(each.fault, cat(file, ":", each.line), {file, each.line, each.column});
    }
  }
  list.put();
  return ok();
}

// Replaces each chaos by the faults that it draws. The job's size must be known.
Status draw_faults(JobReading& reading) {
  const Job& job = reading.loaded.job;
  FaultList list(reading);
  for (size_t i = 0; i < job.faults.size(); ++i) {
    const Fault& fault = job.faults[i];
    if (fault.kind != "chaos") {
      list.keep(i);
      continue;
    }
    const int64_t end = fault.until_step < 0 ? job.steps : std::min(job.steps, fault.until_step);
    if ((end - fault.at_step) / fault.every > kMostDrawn) {
      const std::string name = fault_name(i);
      return error_of({reading.places.at(name),
                       cat(name, ".every ", fault.every, ": chaos would create more than ",
                           kMostDrawn, " faults up to step ", end,
                           "; expected a larger number, or an earlier until_step")});
    }
    const TextPlace place = reading.places.at(fault_name(i));
    for (const Fault& drawn : draw_chaos(fault, job)) {
      list.add(drawn, cat("chaos ", fault.seed), place);
    }
  }
  list.put();
  return ok();
}

Status read_text(JobReading& reading, const std::string& text, const std::string& source) {
  const auto parsed = parse_toml(text, source);
  if (!parsed.ok()) return parsed.error();
  read_table(reading, parsed.value(), source);
  if (auto flaw = first_flaw(reading.flaws)) return *flaw;
  return read_traces(reading);
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

Status read_override(JobReading& reading, const std::string& flag) {
  const size_t start = flag.find_first_not_of('-');
  const std::string body = start == std::string::npos ? std::string() : flag.substr(start);
  const TextPlace place{"--" + body, 0, 0};
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
  if (known->name == kSecretKey) {
    return error_of({place,
                     "every user of this host can read the command line, and a token is a secret: "
                     "put it into a file (--token-file FILE), into the environment (TENUTO_TOKEN) "
                     "or into the job file"});
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
  if (auto flaw = first_flaw(reading.flaws)) return *flaw;
  return ok();
}

Status check_fit(const JobReading& reading) {
  const auto misfit = find_misfit(reading.loaded.job);
  if (!misfit) return ok();
  const auto place = reading.places.find(misfit->key);
  const std::string sentence = cat(misfit->key, " ", misfit->sentence);
  if (place == reading.places.end()) return invalid(sentence);
  return error_of({place->second, sentence});
}

// Does what needs the whole job, after every text and every flag has been read.
Status finish(JobReading& reading) {
  if (const Status read = read_contents(reading.loaded.job); !read.ok()) return read;
  if (const Status fits = check_fit(reading); !fits.ok()) return fits;
  if (const Status drawn = draw_faults(reading); !drawn.ok()) return drawn;
  return check_fit(reading);
}

JobReading fresh_reading() {
  JobReading reading;
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
  JobReading reading = fresh_reading();
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
  if (const Status taken = take_files(reading.loaded); !taken.ok()) return taken.error();
  if (const Status taken = take_plan(reading.loaded); !taken.ok()) return taken.error();
  const Status finished = finish(reading);
  if (!finished.ok()) return finished.error();
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
    if (key.name == kSecretKey) continue;
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
  JobReading reading = fresh_reading();
  const Status read = read_text(reading, text, source);
  if (!read.ok()) return read.error();
  const Status finished = finish(reading);
  if (!finished.ok()) return finished.error();
  return reading.loaded.job;
}

}  // namespace tenuto
