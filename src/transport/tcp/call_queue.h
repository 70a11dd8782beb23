// The calls on their way to a wire: a queue without locks.
#pragma once

#include <atomic>
#include <utility>

namespace tenuto::tcp {

// Any thread adds; one at a time takes all, in the order in which they were added.
template <class Call>
class CallQueue {
 public:
  CallQueue() = default;
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  ~CallQueue() {
    take_all([](const Call&) {});
  }
  // Adds a call.
  void push(Call call) {
    Node* node = new Node{std::move(call), head_.load()};
    while (!head_.compare_exchange_weak(node->next, node)) continue;
  }
  // Whether there is none.
  bool empty() const { return head_.load() == nullptr; }
  // Takes all that are there and gives each to `use`.
  template <class Use>
  void take_all(Use use) {
    Node* newest = head_.exchange(nullptr);
    Node* first = nullptr;
    while (newest != nullptr) {
      Node* next = std::exchange(newest->next, first);
      first = std::exchange(newest, next);
    }
    while (first != nullptr) {
      use(first->call);
      delete std::exchange(first, first->next);
    }
  }

 private:
  struct Node {
    Call call;
    Node* next = nullptr;
  };
  std::atomic<Node*> head_{nullptr};  // the newest
};

}  // namespace tenuto::tcp
