// The processes of a run with server shards as its coordinator sees them: who has come, what each
// has said, and what each is told.
//
// Idea:  each worker number is a *place*: that of a part of a replica, or of a server, if the job
//        has such. The process in a place may be replaced; for the host of the run
//        (parameter_server/server_run.h) the next one is another process. Commands and reports are
//        numbered, and are repeated until the other side has them, so a stream that breaks loses
//        none.
// Right: tests/run/served_processes_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "parameter_server/host_message.h"
#include "protocol/report.h"
#include "world/job.h"

namespace tenuto {

// A worker number, and what is known of its process.
struct ServedPlace {
  WorkerId worker;
  servers::RunProcess process;    // its number is none while the process does not belong to the run
  int32_t stages = 1;             // of a replica
  int32_t incarnation = -1;       // of the process; -1 = none is here
  int32_t least_incarnation = 0;  // that a process may have: those below are lost
  int64_t elements = 0;           // Report::elements; 0 = not known yet
  int64_t heard = 0;              // serial of the last of its reports that has come
  int64_t told = 0;               // serial of the last command
  std::vector<Numbered> commands;  // that it has not obeyed yet
  Duration heard_at{};
  bool has_exited = true;  // no process of the launcher lives here, as far as is known
  std::optional<Duration> suspect_since;  // its stream has ended, or another process has lost it
  std::string suspicion;                  // what makes it suspect, as a clause
  bool is_declared_lost = false;          // by another process: it stays suspect
  int32_t deaths = 0;                     // of processes in this place
  // A process is here.
  bool is_taken() const { return incarnation >= 0; }
  // The process belongs to the run.
  bool is_hosted() const { return process.number.value >= 0; }
};

// A process is here, and if it is that of a part, it knows the number of parameters.
bool is_ready(const ServedPlace& place);

// What a place is called in sentences: "worker 3 (server)", "worker 1 (replica 1)", with several
// stages "worker 3 (replica 1, stage 1)".
std::string name_of(const ServedPlace& place);

// All places of a run.
class ServedProcesses {
 public:
  // One place for each process of the job, and none of them taken.
  explicit ServedProcesses(const Job& job);

  // The process in the place says this. A process that was not here before takes a free place.
  //
  // Returns: its place; null if the report is of a process that is lost, or of none of the run
  ServedPlace* hear(const Report& report, Duration now);
  // The process belongs to the run, under a number of its own.
  void host(ServedPlace& place, WorkerId process);
  // The process is to get this command.
  void command(WorkerId process, const servers::HostCommand& command);
  // The reports that have not come before, as bytes, in their order. They count as heard.
  static std::vector<std::string> take_said(ServedPlace& place, const Report& report);
  // The process in the place is lost; the place is free.
  void lose(ServedPlace& place);
  // Moves all that was measured on this process's clock: it has slept itself for so long.
  void forgive(Duration slept);

  // What all processes are told of the run.
  std::vector<Hosted> hosted() const;
  // The parameters of each stage; empty until a part of every stage has said it.
  std::vector<int64_t> elements() const;
  // All places are taken, and their parts know the number of parameters.
  bool are_all_here() const;
  // Whether some replica has a process in each of its places, or is to have one: `comes` says that
  // of a place that is free.
  bool may_have_replica(const std::function<bool(const ServedPlace&)>& comes) const;
  // Those that are not, as text: "worker 1 (replica 1), worker 3 (server)".
  std::string missing() const;
  // The place of a process that belongs to the run; null if it is lost.
  ServedPlace* at_process(WorkerId process);
  // The place of this worker; null if there is none.
  ServedPlace* at(WorkerId worker);
  // All places, by worker.
  const std::vector<ServedPlace>& all() const { return places_; }
  // The same, to be changed.
  std::vector<ServedPlace>& all() { return places_; }

 private:
  const Job& job_;
  std::vector<ServedPlace> places_;  // by worker
};

}  // namespace tenuto
