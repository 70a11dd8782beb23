// The keys of a job in one table. Job files, flags, to_toml and the documents all use it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "world/job.h"

namespace tenuto {

// Where a key's value lives in a Job. The type of the pointer is the type of the key.
using Slot = std::variant<std::string*, bool*, int32_t*, int64_t*, double*,
                          std::vector<std::string>*, std::vector<int64_t>*, std::vector<double>*>;

// The numbers that a key takes; an open end is excluded.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool zero = false;  // 0 is allowed, too, although it is below `low`
  // True for a finite number inside.
  bool contains(double number) const;
};

// Choices of earlier versions, each with what it is called now.
using RenamedChoices = std::vector<std::pair<std::string_view, std::string_view>>;

// One key.
struct Key {
  std::string_view name;  // "optimizer.clip"
  Slot (*slot)(Job&);
  Range range;                            // of a number, or of each number of a list
  std::vector<std::string_view> choices;  // of a string; empty = any text
  std::string_view help;                  // one line
  RenamedChoices renamed = {};            // accepted in job files, not listed
  std::string_view former = {};           // its name in earlier versions, accepted too; "" = none
};

// Every key, by section, in the order in which a job is written.
const std::vector<Key>& job_keys();

// The keys of a [[fault]], such as "fault.link". Their slots are in the last fault of a job; a job
// without faults gets one.
const std::vector<Key>& fault_keys();

// The key of that name, former names included, or nullptr: find_key searches job_keys,
// find_fault_key searches fault_keys.
const Key* find_key(std::string_view name);
const Key* find_fault_key(std::string_view name);

// What the key takes, in words: a number in (0, inf); or: "cpu", "cuda" or "paced".
std::string expected(const Key& key);

// The value that `job` holds, as TOML.
std::string value_text(const Key& key, const Job& job);

// `text` as a TOML string, quoted and escaped.
std::string toml_string(std::string_view text);

// The sentence for a section or key that belongs to another version, or "".
std::string_view later_sentence(std::string_view name);

}  // namespace tenuto
