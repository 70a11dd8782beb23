// Strangers: processes that are no part of a run and connect to its ports.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tenuto {

// Whom they attack, and how hard.
struct StrangerSettings {
  std::vector<std::string> targets;  // "host:port", drawn in turns
  std::string job, token;            // of the run: what a recorded hello has proved
  int64_t a_second = 1000;           // connections that say something, of all kinds
  int64_t silent = 10000;            // connections that say nothing and stay open on this side
  uint64_t seed = 1;
};

// What they have done; plain numbers, because it lies in memory that two processes share.
struct StrangerCounts {
  int64_t opened = 0;    // connections
  int64_t silent = 0;    // those of them that say nothing
  int64_t refused = 0;   // greetings that were answered as a stranger's
  int64_t let_in = 0;    // greetings that were answered otherwise, which must not happen
  int64_t sent = 0;      // bytes
  double processor = 0;  // seconds of processor time; set by stop()
};

// A child process that ends with this object, or when this process ends.
class ChildProcess {
 public:
  // Runs `work` in a fork of this process.
  template <class Work>
  explicit ChildProcess(const Work& work) : pid_(begin()) {
    if (pid_ != 0) return;
    work();
    leave();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { stop(); }
  // Ends it, once; its processor time in seconds.
  double stop();

 private:
  static pid_t begin();
  [[noreturn]] static void leave();
  pid_t pid_;
  double processor_ = 0;
};

// An attack, from its construction until stop(): random bytes of every length up to 64 KiB, UCX's
// magic number, HTTP, recorded hellos, hellos with a wrong token, single bytes that drip, and
// connections that are closed at once.
class Attack {
 public:
  explicit Attack(const StrangerSettings& settings);
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;
  ~Attack();
  // Ends it; call once.
  StrangerCounts stop();

 private:
  StrangerCounts* counts_;  // in memory that the child shares
  ChildProcess child_;
};

// Listens at `ports` ports of 127.0.0.1 in a process of its own, for an attack that touches no run:
// challenges whoever connects, as a worker does, and closes the oldest of 64 for one more.
class Decoy {
 public:
  explicit Decoy(size_t ports);
  // Where it listens.
  const std::vector<std::string>& targets() const { return targets_; }
  // Ends it; its processor time in seconds.
  double stop() { return child_.stop(); }

 private:
  std::vector<int> listeners_;
  std::vector<std::string> targets_;
  ChildProcess child_;
};

}  // namespace tenuto
