// The values that travel, by name, for all stages of one worker: what one stage puts here another
// takes, or the wire does. Private to engine/.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "engine/device.h"
#include "ir/op.h"

namespace tenuto {

// Shared by the worker's thread and the compute threads. Only the worker's thread removes values,
// so what it has found stays where it is.
class ValueStore {
 public:
  // Puts a value, in the place of one of the same name. Any thread.
  void put(const Value& value, HostValue held) {
    const std::lock_guard lock(mutex_);
    values_[value] = std::move(held);
  }
  // The value, or nullptr. The worker's thread.
  HostValue* find(const Value& value) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(value);
    return found != values_.end() ? &found->second : nullptr;
  }
  // A copy of the handle; an undefined host when there is no such value. Any thread.
  HostValue get(const Value& value) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(value);
    return found != values_.end() ? found->second : HostValue{};
  }
  // Removes a value, if it is there. The worker's thread.
  void remove(const Value& value) {
    HostValue freed;  // let go after the lock
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(value);
    if (found == values_.end()) return;
    freed = std::move(found->second);
    values_.erase(found);
  }
  // Removes all. The worker's thread, while nothing runs.
  void clear() {
    const std::lock_guard lock(mutex_);
    values_.clear();
  }

 private:
  std::mutex mutex_;  // guards what follows; nothing is locked under it
  std::map<Value, HostValue> values_;
};

}  // namespace tenuto
