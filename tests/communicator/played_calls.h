// For tests: drawn calls that a group makes and checks, and what its members find.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "communicators.h"

namespace tenuto {

using ByteVector = std::vector<std::byte>;

// Results of the members of a run, compared with each other.
class Findings {
 public:
  // Takes the bits of a result; all results under one name must be equal.
  void tell(const std::string& name, std::span<const std::byte> bits) {
    const std::lock_guard lock(mutex_);
    const auto [place, fresh] = bits_.emplace(name, ByteVector(bits.begin(), bits.end()));
    const bool same =
        fresh || std::equal(bits.begin(), bits.end(), place->second.begin(), place->second.end());
    if (!same) faults_.push_back(name + ": other bits than another member or another time");
  }
  void fault(std::string what) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(std::move(what));
  }
  // The first fault, or "".
  std::string first() {
    const std::lock_guard lock(mutex_);
    return faults_.empty() ? std::string() : faults_.front();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, ByteVector> bits_;
  std::vector<std::string> faults_;
};

// A call of one member with its memory.
struct OpenCall {
  DrawnCall drawn;
  ByteVector own, total;
  ByteVector before;  // a copy of `own`, which the call must not change
  CallNumber number{};
  int index = 0;
};
// Its request, over its memory.
CallRequest request_of(OpenCall& call);

// Checks the result of a call that has ended at the member at `place`.
void judge(const OpenCall& call, int32_t place, const std::vector<WorkerId>& members,
           Findings& findings, bool keep_bits);

// One member's calls: `rounds` batches of calls, each made `times` times with different arrival
// times.
struct CallScript {
  uint64_t seed = 0;
  int rounds = 0, times = 1;
  int64_t most_elements = 0;
  bool keep_bits = true;
};

// Makes and checks one member's calls of the script.
void play(Communicator& group, int32_t place, const std::vector<WorkerId>& members,
          const CallScript& script, Findings& findings);

// A group's settings, drawn from a seed.
CommunicatorSettings drawn_settings(uint64_t seed);
// Settings of groups that always use the ring.
CommunicatorSettings plain_settings();

// Runs one all-reduce of `floats` numbers; returns its status.
Status reduce(Communicator& group, size_t floats, const std::function<void(CallRequest&)>& change);

}  // namespace tenuto
