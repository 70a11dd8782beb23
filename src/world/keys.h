// The keys of a job, one table: reading, flags, writing and the documents all go by it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "world/job.h"

namespace tenuto {

// Where a key's value lives in a Job. The type of the pointer is the type of the key.
using Slot = std::variant<std::string*, bool*, int32_t*, int64_t*, double*,
                          std::vector<std::string>*, std::vector<int64_t>*, std::vector<double>*>;

// The numbers that a key takes; an open end is not itself allowed.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool zero = false;  // 0 too, which is below `low`
  // True for a finite number inside.
  bool contains(double number) const;
};

// One key.
struct Key {
  std::string_view name;  // "optimizer.clip"
  Slot (*slot)(Job&);
  Range range;                            // of a number, or of each number of a list
  std::vector<std::string_view> choices;  // of a string; empty = any text
  std::string_view help;                  // one line
};

// Every key, by section, in the order in which a job is written.
const std::vector<Key>& job_keys();

// The keys of a [[fault]], "fault.link". Their slots are in the last fault of a job, which gets one
// when it has none.
const std::vector<Key>& fault_keys();

// The key of that name, or nullptr; of a fault's keys only those of find_fault_key.
const Key* find_key(std::string_view name);
const Key* find_fault_key(std::string_view name);

// What the key takes, in words: "a number in (0, inf)", "cpu, cuda or paced".
std::string expected(const Key& key);

// The value that `job` holds, as TOML.
std::string value_text(const Key& key, const Job& job);

// `text` as a TOML string, quoted and escaped.
std::string toml_string(std::string_view text);

// A name that this version does not know yet, or will never know, and the sentence that says so.
struct LaterName {
  std::string_view name;  // a section, or "section.key"
  std::string_view sentence;
};

// The sentence for a section or key that belongs to another version, or "".
std::string_view later_sentence(std::string_view name);

}  // namespace tenuto
