// A relay between real sockets that breaks the connections that it passes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "transport/address.h"

namespace tenuto {

// Passes on what connects to it to `target`, in a thread of its own, and breaks a connection
// (by a reset at both ends) after drawn numbers of bytes: bytes_until_break() with `mean_bytes`.
class CuttingRelay {
 public:
  CuttingRelay(const std::string& target, int64_t mean_bytes, uint64_t seed);
  CuttingRelay(const CuttingRelay&) = delete;
  CuttingRelay& operator=(const CuttingRelay&) = delete;
  ~CuttingRelay();
  // Where it listens, "host:port".
  const std::string& address() const { return address_; }
  // How many connections it has broken.
  int64_t breaks() const { return breaks_; }

 private:
  // One connection: the end that has connected and the one to the target.
  struct Side {
    int socket = -1;
    std::vector<char> unsent;  // what has come from the other side
    bool ended = false;        // it writes no more
  };
  struct Pair {
    Side sides[2];
    bool over = false;
  };
  void run();
  void accept_one();
  void pass(Pair& pair, int from);
  static void flush(Pair& pair, int to);
  static void close_both(Pair& pair, bool reset);

  SocketAddress target_;
  int64_t mean_bytes_;
  Random random_;
  int64_t until_break_;
  int listener_ = -1;
  std::string address_;
  std::list<Pair> pairs_;
  std::atomic<int64_t> breaks_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace tenuto
