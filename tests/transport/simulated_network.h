// A network on one thread, with a seed: reads and writes are cut short, bytes are late, connections
// break at drawn bytes, attempts to connect are refused or never answered.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/tcp/sockets.h"

namespace tenuto::tcp {

// What goes wrong in a network.
struct NetworkFaults {
  int64_t mean_bytes = 0;     // written between two breaks, about; 0 = none breaks
  int refused_of_100 = 0;     // attempts to connect, never more than two of a host in a row
  int unanswered_of_100 = 0;  // the same
  Duration most_latency = std::chrono::microseconds(200);
};

// The network. Its sockets live as long as it does.
class SimulatedNetwork {
 public:
  SimulatedNetwork(uint64_t seed, const NetworkFaults& faults) : random_(seed), faults_(faults) {}
  // The sockets of one more host.
  std::unique_ptr<Sockets> host();
  // The present moment.
  Duration now() const { return now_; }
  // Moves the clock to the next moment at which something happens by itself, or to `limit`.
  void advance(Duration limit);
  // Kills a host as kill -9 would: its connections end, and nobody listens there any more.
  void kill(Sockets& host);
  // Says that nobody turns the loop of this host's wire, as of a stopped process, or again does.
  // The clock does not wait for it.
  void stop(Sockets& host, bool stopped);
  // Ends what comes to a host before its last bytes are there, as somebody in between can, without
  // a sign that it is a break.
  void cut(Sockets& host);
  // How many connections have broken.
  int64_t breaks() const { return breaks_; }
  // When a host has heard, or will hear, of each time that the network has refused or broken an
  // attempt or a connection that this host has dialled.
  static const std::vector<Duration>& troubles_of(const Sockets& host);
  // From now on what is written is lost, and no attempt to connect is answered.
  void fall_silent() { silent_ = true; }
  // Breaks the present connections of a host.
  void break_all(Sockets& host);
  // From now on the present connections of a host carry nothing, and neither end hears of it when
  // the other closes. New ones work. An end that writes nothing more hears after `patience` that
  // its connection is silent, as keep-alive tells it; Duration::max() = never.
  void swallow(Sockets& host, Duration patience);
  // Stops to break anything.
  void heal() { faults_ = {0, 0, 0, faults_.most_latency}; }

 private:
  friend class SimulatedSockets;
  class Host;
  // Bytes under way; `told`: an event about them has been given.
  struct Chunk {
    Duration at{};
    std::vector<std::byte> bytes;
    size_t used = 0;
    bool told = false;
  };
  // One end of a connection.
  struct End {
    std::weak_ptr<End> other;
    std::deque<Chunk> coming;
    size_t size = 0;         // of what is coming
    size_t sent = 0;         // bytes written here
    size_t lost = 0;         // those of them that the network has swallowed
    Duration lost_at{};      // when it swallowed the first of them
    bool swallowed = false;  // it swallows all
    Duration open_at{};      // a dialled end: when it is connected
    Duration ends_at = Duration::max(), breaks_at = Duration::max();
    bool refused = false, broken = false, told_end = false, told_open = false;
    bool blocked = false;  // a write found no space
    int port = 0;          // a dialled end: where to
    int from = 0;          // of a dialled end: the number of its host
    bool arrived = false;  // the listener has been told
    bool accepted = false;
    class SimulatedSockets* dialler = nullptr;  // of a dialled end: whose it is
  };
  void break_now(End& end);
  Duration delay();

  Random random_;
  NetworkFaults faults_;
  Duration now_{std::chrono::seconds(1)};
  int64_t breaks_ = 0;
  int64_t until_break_ = 1000;
  int next_port_ = 1, next_host_ = 1;
  bool silent_ = false;
  std::vector<class SimulatedSockets*> hosts_;
};

}  // namespace tenuto::tcp
