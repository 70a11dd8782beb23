// Where the coordinator writes down what it has decided, before it tells anyone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"

namespace tenuto {

// What must outlive a coordinator: everything else is rebuilt from the workers' reports.
struct Facts {
  int64_t term = 0;        // how often a coordinator has taken office
  int64_t epoch = 0;       // of the membership
  int64_t committed = -1;  // this version is final
  // The version from which this epoch goes on, or that is saved at last; -1 = not agreed on yet.
  int64_t target = -1;
  std::vector<WorkerId> members = {};  // of the epoch
  auto operator<=>(const Facts&) const = default;
};

// The facts as one line of JSON, and back.
std::string to_json(const Facts& facts);
// Errors: Corrupt/Job with what is wrong; `origin` says where the text comes from.
Result<Facts> facts_from_json(std::string_view text, std::string_view origin);

// The place for them. One writer: who has lost that right can write no more.
class Store {
 public:
  virtual ~Store() = default;
  // Replaces the facts; durable, as far as the store is, when it returns.
  //
  // Errors: Exhausted/Job    there is no room
  //         Disconnected/Job the store is out of reach, or somebody else is the writer by now
  virtual Status write(const Facts& facts) = 0;
  // The facts written last, by whomever; all none in a fresh store.
  virtual Facts read() const = 0;
};

// Facts that live as long as the process: enough while coordinator and launcher are one.
class MemoryStore : public Store {
 public:
  Status write(const Facts& facts) override {
    facts_ = facts;
    return ok();
  }
  Facts read() const override { return facts_; }

 private:
  Facts facts_;
};

}  // namespace tenuto
