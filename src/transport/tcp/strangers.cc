#include "transport/tcp/strangers.h"

#include <algorithm>

namespace tenuto::tcp {

void Strangers::add(SocketId socket, const Host& from) {
  all_.push_back({socket, from});
  ++counts_[from];
}

void Strangers::remove(SocketId socket) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [socket](const Stranger& of) { return of.socket == socket; });
  if (found == all_.end()) return;
  const auto count = counts_.find(found->from);
  if (--count->second == 0) counts_.erase(count);
  all_.erase(found);
}

SocketId Strangers::next_to_go() const {
  size_t most = 0;
  for (const auto& [host, count] : counts_) most = std::max(most, count);
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const Stranger& of) { return counts_.at(of.from) == most; });
  return found->socket;
}

}  // namespace tenuto::tcp
