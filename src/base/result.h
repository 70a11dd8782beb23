// Result: a value, or the one sentence that says why there is none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tenuto {

// The kind of an error. A code is added only where some caller acts differently on it.
enum class Code : uint8_t {
  Invalid,       // the input is wrong: correct it and call again
  Infeasible,    // the input is right and cannot be satisfied
  Timeout,       // a limit ran out
  Disconnected,  // the other side is gone
  Corrupt,       // bytes are not what they should be
  Exhausted,     // memory, disk or another bounded thing is full
  Cancelled,     // someone asked to stop
};

// What is lost with an error: this call only, the link, the worker, or the whole job.
enum class Reach : uint8_t { Call, Link, Worker, Job };

// Why there is no value. The message is one sentence that names file, line and column or worker,
// stage and link, what was expected, what was found and what to do.
struct Error {
  Code code = Code::Invalid;
  Reach reach = Reach::Call;
  std::string message;
};

// A value or an Error. Reading the wrong one is a programmer's mistake.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  // True when there is a value.
  bool ok() const { return state_.index() == 0; }
  // The value; requires ok().
  const T& value() const& {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  // The value, changeable; requires ok().
  T& value() & {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  // The value, moved out; requires ok().
  T&& value() && {
    CHECK(ok(), error_text());
    return std::get<0>(std::move(state_));
  }
  // The error; requires !ok().
  const Error& error() const {
    CHECK(!ok(), "a value was there");
    return std::get<1>(state_);
  }

 private:
  std::string error_text() const { return ok() ? std::string() : std::get<1>(state_).message; }
  std::variant<T, Error> state_;
};

// Success without a value, or an Error.
using Status = Result<std::monostate>;

// The successful Status.
inline Status ok() { return std::monostate{}; }

// Shorthands for the errors that functions return most often.
inline Error invalid(std::string message) {
  return {Code::Invalid, Reach::Call, std::move(message)};
}

}  // namespace tenuto
