// Flags of the command line: read strictly, and refused in one sentence.
//
// A number is the whole text of its flag, finite and in range. A list has no empty entries. Errors
// that the command-line library finds by itself are reported in the same form.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace tenuto {

// Which numbers a flag takes, ends included.
struct NumberRange {
  double low = 0, high = 1e9;
  bool whole = false;
};

// Whole numbers from `low` to `high`.
inline NumberRange whole_numbers(double low, double high = std::numeric_limits<int32_t>::max()) {
  return {low, high, true};
}

// The whole of `text` as a number; none when it is no number, or not finite.
std::optional<double> number_of(std::string_view text);

// The same, for a whole number that is in the range of an int64_t; "1e3" is one, too.
std::optional<int64_t> whole_number_of(std::string_view text);

// The entries of a list, separated by commas; Invalid/Call "expected ..., found ..." when one is
// empty. An empty text is a list without entries.
Result<std::vector<std::string_view>> entries_of(std::string_view text);

// Adds a flag that takes one number and hands it to `take`.
CLI::Option* add_number(CLI::App& app, const std::string& name, const NumberRange& range,
                        const std::string& help, std::function<void(double)> take);

// Adds a flag whose number goes to `target`, a number or an optional one.
template <class Target>
CLI::Option* number_flag(CLI::App& app, const std::string& name, Target& target,
                         const NumberRange& range, const std::string& help) {
  return add_number(app, name, range, help, [&target](double value) {
    if constexpr (requires { typename Target::value_type; }) {
      target = static_cast<typename Target::value_type>(value);
    } else {
      target = static_cast<Target>(value);
    }
  });
}

// Adds a flag that takes numbers, separated by commas.
CLI::Option* numbers_flag(CLI::App& app, const std::string& name, std::vector<double>& target,
                          const NumberRange& range, const std::string& help);

// Adds a flag that takes texts, separated by commas.
CLI::Option* list_flag(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::string& help);

// Adds a flag that takes the name of a file or a folder, which is never empty.
CLI::Option* path_flag(CLI::App& app, const std::string& name, std::string& target,
                       const std::string& help);

// Converts arguments that are not flags of the command into settings: "--section.key=value" becomes
// "section.key=value".
//
// Errors: Invalid/Call  any other argument
Result<std::vector<std::string>> overrides_in(const std::vector<std::string>& extras);

// The exit code of an error: 1 = out of memory, 2 = wrong flags or an unreadable file, 3 = the plan
// is refused.
int exit_code_of_command(const Error& error);

// The library's error about wrong flags, as one sentence that names the help to look at.
std::string sentence_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tenuto
