// What the process of every coordinator does, whatever decides in it: it listens to workers, waits
// for news, talks to the launcher, and takes its leave when the run has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "control/input.h"
#include "control/server.h"
#include "run/descriptor.h"
#include "run/fault_news.h"
#include "run/live_page.h"
#include "run/notice.h"
#include "run/run_files.h"
#include "run/run_input.h"

namespace tenuto {

// The process, between the launcher and the workers of one run.
class CoordinatorProcess {
 public:
  // `input` must outlive it.
  explicit CoordinatorProcess(const RunInput& input);

  // Ends the present wait(), or the next one. May be called from any thread.
  std::function<void()> bell() const;
  // Starts to listen to workers with numbers below `worker_count`, and to serve the page of the
  // run, whose wishes are among the server's questions. This process must outlive the server.
  //
  // Errors: those of start_server
  Result<std::unique_ptr<Server>> listen(int32_t worker_count);
  // The page, which has to be shown the run. It does nothing if the job wants none.
  LivePage& page() { return page_; }
  // Hands on an event of the run to the page, as RunFiles::set_listener wants it.
  RunFiles::Listener page_listener();
  // Writes down where questions about the run can be asked.
  //
  // Errors: those of write_coordinator_address
  Status write_address(const Server& server) const;
  // How a person starts the workers of this run, in one sentence.
  std::string how_to_start(size_t workers, const std::string& address) const;

  // Says this to the launcher. Without `wait` the notice is dropped when its queue is full.
  void send(const Notice& notice, bool wait) const { (void)launcher_.send(notice, wait); }
  // What the launcher has said since the last call.
  std::vector<Notice> take_notices();
  // Waits for news, a tenth of a second at most.
  void wait() const;
  // To be called in each round: shows the launcher and the workers that this process is alive. Ends
  // or stops this process if end_later() has asked for it. `committed`: so many steps are done.
  void show_life(Server& server, int64_t committed);

  // Why a request about the process of a worker cannot be carried out, in one sentence; empty = it
  // can. `kind`: of the fault of a Request::Kind::Signal or ::Hog. `has_come`: a process has
  // reported as this worker.
  std::string refusal_of(WorkerId worker, const std::string& kind, bool has_ended,
                         bool has_come) const;
  // Has the launcher send the signal, or start a process if `kind` is "start".
  void carry_out(WorkerId worker, const std::string& kind, int number) const;
  // Has the launcher start the hog among the job's faults that has news, or end it.
  void carry_out_hog(const FaultNews& news) const;
  // Has the launcher start a requested hog (Request::Kind::Hog) or end it. One that is started ends
  // the one of its kind that was requested before beside the same worker.
  void carry_out_hog(const Request& request) const;
  // This process gets the signal a little later, when the answer to the person has left.
  void end_later(int number);

  // Tells the launcher that the run has ended, and waits until its workers have, for a limited
  // time. `collect` is called after each wait and must call take_notices().
  void leave(bool well, const std::function<void()>& collect);

 private:
  void start_hog(int32_t number, const Fault& hog) const;

  const RunInput& input_;
  const Post& launcher_;
  const Descriptor wake_;
  // The last notice that this process is alive: the committed steps in it, and when it was sent.
  int64_t noticed_ = -1;
  Duration noticed_at_{};
  bool is_alone_ = false;  // all workers of the launcher have ended
  // A request to kill or suspend this process: which signal, and when.
  std::optional<std::pair<int, Duration>> own_end_;
  LivePage page_;  // its thread rings wake_, so it ends first
};

}  // namespace tenuto
