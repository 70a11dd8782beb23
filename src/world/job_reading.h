// Reads a job's TOML, value by value. Each flaw is kept with its place, so that the error can name
// the one that comes first in the file. A part of load.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "world/keys.h"
#include "world/load.h"
#include "world/toml_reading.h"

namespace tenuto {

// A job while it is read. `places` is used by later error messages; loaded.origin is shown to the
// user.
struct JobReading {
  LoadedJob loaded;
  std::map<std::string, TextPlace> places;
  std::vector<TomlFlaw> flaws;
};

// Reads the value of `key` from `node` into the job, or adds a flaw. `name` is the key's name, for
// a key of a [[fault]] with the number of its table: fault[2].link.
void take_value(JobReading& reading, const Key& key, const std::string& name,
                const toml::node& node, const TextPlace& place);

// The names of the sections of a job.
std::vector<std::string_view> section_names();

// The error for a name that is no key here: of a later version, misspelt, or of another section.
std::string unknown_key(const std::string& section, const std::string& key);

// The same for an unknown section.
std::string unknown_section(const std::string& section);

// "fault[2]": the name of the fault that is read or written as number `index`.
std::string fault_name(size_t index);

// Reads a parsed text into the job; what is wrong with it is added to the flaws.
void read_table(JobReading& reading, const toml::table& root, const std::string& source);

}  // namespace tenuto
