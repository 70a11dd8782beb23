// Reads and checks the values of a JSON tree, for readers of small files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenuto {

// The range of a number, and its unit for error messages.
struct NumberKey {
  std::string_view unit;
  double least = 0, most = 0;
};

// Keeps the first fault. A reader need not go on after it. A place is the path of a value in the
// tree: "layers[2].name".
class JsonReading {
 public:
  explicit JsonReading(std::string source) : source_(std::move(source)) {}

  // The first fault: Invalid/Call with the source and the place.
  const std::optional<Error>& error() const { return error_; }
  // Records a fault at this place.
  void refuse(const std::string& place, const std::string& sentence);
  // Records that a value is not what was expected.
  void refuse_value(const std::string& place, const std::string& wanted, const Json& found);
  // Refuses a value that is not an object with these keys.
  void check_keys(const Json& tree, const std::string& place,
                  std::initializer_list<std::string_view> needed,
                  std::initializer_list<std::string_view> possible);
  // A whole number from 1 to `most`. If it is wrong, records the fault and returns 1.
  int32_t whole_number(const Json& tree, const std::string& place, int32_t most);
  // A number in the range of `key`. If it is wrong, records the fault and returns the least one.
  double number(const Json& tree, const std::string& place, const NumberKey& key);
  // A text. If it is wrong, records the fault and returns an empty text.
  std::string text(const Json& tree, const std::string& place);

 private:
  const std::string source_;
  std::optional<Error> error_;
};

}  // namespace tenuto
