// Reads the values of a tree of JSON, for readers of small files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenuto {

// The range of a number and its unit, for sentences.
struct NumberKey {
  std::string_view unit;
  double least = 0, most = 0;
};

// The first fault is kept; a reader skips what follows it. A place is the path of a value:
// "layers[2].name".
class JsonReading {
 public:
  explicit JsonReading(std::string source) : source_(std::move(source)) {}

  // The first fault: Invalid/Call with the source and the place.
  const std::optional<Error>& error() const { return error_; }
  // Notes a fault.
  void refuse(const std::string& place, const std::string& sentence);
  // Notes a value that is not what was expected.
  void refuse_value(const std::string& place, const std::string& wanted, const Json& found);
  // Refuses what is no object with these keys.
  void check_keys(const Json& tree, const std::string& place,
                  std::initializer_list<std::string_view> needed,
                  std::initializer_list<std::string_view> possible);
  // A whole number from 1 to `most`; 1 with a fault.
  int32_t whole_number(const Json& tree, const std::string& place, int32_t most);
  // A number in the key's range; the least one with a fault.
  double number(const Json& tree, const std::string& place, const NumberKey& key);
  // A text; empty with a fault.
  std::string text(const Json& tree, const std::string& place);

 private:
  const std::string source_;
  std::optional<Error> error_;
};

}  // namespace tenuto
