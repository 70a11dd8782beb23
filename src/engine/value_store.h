// The values that go between stages, by name, for all stages of one worker: one stage puts a value
// here, and another stage or the wire takes it. Private to engine/.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/device.h"
#include "runtime/compute.h"
#include "runtime/kept_values.h"

namespace tenuto {

// Shared by the worker's thread, the compute threads and those of the copies. Only the worker's
// thread removes values, so the memory of a value that it has found stays valid.
class ValueStore {
 public:
  // Puts a value; it replaces one of the same name. Any thread.
  void put(const Value& value, HeldValue held) {
    const std::lock_guard lock(mutex_);
    forget(value);
    names_[held.tensor.const_data_ptr()] = value;
    values_[value] = std::move(held);
  }
  // A copy of the handle; an undefined tensor when there is no such value. Any thread.
  HeldValue get(const Value& value) const {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(value);
    return found != values_.end() ? found->second : HeldValue{};
  }
  // The same for the value that begins at `memory`. Any thread.
  HeldValue at(const void* memory) const {
    const std::lock_guard lock(mutex_);
    const auto name = names_.find(memory);
    return name != names_.end() ? values_.at(name->second) : HeldValue{};
  }
  // True when an activation or a gradient begins at `memory`; only these are on the device. Any
  // thread.
  bool holds(const void* memory) const {
    const std::lock_guard lock(mutex_);
    const auto name = names_.find(memory);
    return name != names_.end() && feeds_compute(name->second.kind);
  }
  // Makes `event` the one after which the value that begins at `memory` is complete. Any thread.
  void mark(const void* memory, std::shared_ptr<c10::Event> event) {
    const std::lock_guard lock(mutex_);
    const auto name = names_.find(memory);
    if (name != names_.end()) values_.at(name->second).made = std::move(event);
  }
  // Removes a value, if it is there. The worker's thread.
  void remove(const Value& value) {
    HeldValue freed;  // freed after the lock is released
    const std::lock_guard lock(mutex_);
    freed = forget(value);
  }
  // Moves a value, if it is there, to the values that are kept for resume(). The worker's thread.
  void keep(const Value& value) {
    const std::lock_guard lock(mutex_);
    HeldValue held = forget(value);
    if (held.tensor.defined()) kept_.keep(value, std::move(held));
  }
  // Frees a kept value that is not needed any more. The worker's thread.
  void drop(const Value& value) {
    std::optional<HeldValue> dropped;  // freed after the lock is released
    const std::lock_guard lock(mutex_);
    dropped = kept_.drop(value);
  }
  // Begins step `step` with an empty store; KeptValues says which kept values stay. The worker's
  // thread, while nothing runs.
  void begin(int64_t step) {
    const std::lock_guard lock(mutex_);
    values_.clear();
    names_.clear();
    kept_.begin(step, [](std::map<Value, HeldValue>& values) { values.clear(); });
  }
  // Begins the rest of step `step` with the `stored` values only. The worker's thread, while
  // nothing runs.
  void resume(int64_t step, const std::vector<Value>& stored) {
    const std::lock_guard lock(mutex_);
    kept_.resume(step, stored, values_);
    names_.clear();
    for (const auto& [value, held] : values_) names_[held.tensor.const_data_ptr()] = value;
  }

 private:
  HeldValue forget(const Value& value) {
    const auto found = values_.find(value);
    if (found == values_.end()) return {};
    HeldValue held = std::move(found->second);
    const auto name = names_.find(held.tensor.const_data_ptr());
    if (name != names_.end() && name->second == value) names_.erase(name);
    values_.erase(found);
    return held;
  }

  mutable std::mutex mutex_;  // guards what follows; nothing is locked under it
  std::map<Value, HeldValue> values_;
  KeptValues<HeldValue> kept_;
  std::map<const void*, Value> names_;  // by the address at which each value begins
};

}  // namespace tenuto
