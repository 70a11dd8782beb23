// The sent values that a device keeps, so that a step can go on when a receiver is lost with its
// copy (compute.h). Values are moved, never copied.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace tenuto {

// The kept values of a worker, all its stages together: of the step that was begun last, and of the
// one before. `Held` is the device's type of a value.
template <class Held>
class KeptValues {
 public:
  // Values by name, as a store has them.
  using Values = std::map<Value, Held>;

  // Step `next` begins, maybe for a second time: of all kept values only those of the step before
  // stay. `give_up` gets each map of values that do not stay, and must leave it empty.
  template <class GiveUp>
  void begin(int64_t next, const GiveUp& give_up) {
    if (step_ != next) {
      if (step_ == next - 1) std::swap(before_, now_);
      if (step_ != next - 1) give_up(before_);
      step_ = next;
    }
    give_up(now_);
  }
  // Keeps a value; it replaces one of the same name.
  void keep(const Value& value, Held held) { now_.insert_or_assign(value, std::move(held)); }
  // Takes out a value that is not needed any more, if it is here.
  std::optional<Held> drop(const Value& value) {
    const auto found = now_.find(value);
    if (found == now_.end()) return std::nullopt;
    std::optional<Held> held(std::move(found->second));
    now_.erase(found);
    return held;
  }
  // The rest of step `wanted` begins: moves the `stored` values, if they are kept, into the store,
  // and removes all others from the store. A second call changes nothing.
  void resume(int64_t wanted, const std::vector<Value>& stored, Values& store) {
    if (step_ != wanted) {  // the step after has been begun, or this one never was
      store.clear();
      now_ = step_ == wanted + 1 ? std::move(before_) : Values();
      step_ = wanted;
    }
    before_.clear();
    Values all;
    for (const Value& value : stored) {
      // Kept values first: they are whole, and in the store may be a buffer whose message has not
      // come.
      for (Values* place : {&now_, &store}) {
        if (const auto found = place->find(value); found != place->end()) {
          all.insert(place->extract(found));
          break;
        }
      }
    }
    store = std::move(all);
  }

 private:
  int64_t step_ = -1;  // the step that was begun last
  Values now_, before_;
};

}  // namespace tenuto
