// One run with server shards over real processes, for processes_test.py:
//
//     server_processes SCENARIO MODE SERVERS SECONDS [KIND:SECONDS ...]
//
// With --peer it is one of these processes. MODE may be look-ahead.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/sync_peer.h"
#include "bench/sync_run.h"

using namespace tenuto;

namespace {

// Returns the value, or exits with the error's sentence.
template <class T>
T expect(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "server_processes: %s\n", result.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "--peer") return run_sync_peer();
  if (count < 5) {
    std::fprintf(stderr,
                 "usage: server_processes SCENARIO MODE SERVERS SECONDS [KIND:SECONDS ...]\n");
    return 2;
  }
  SyncRunSetting setting;
  const SyncScenario* scenario = find_sync_scenario(words[1]);
  if (scenario == nullptr) return 2;
  setting.trial.scenario = *scenario;
  setting.trial.seed = 1;
  if (std::string(words[2]) == "look-ahead") {
    setting.trial.policy = SyncPolicy::LookAhead;
  } else {
    setting.trial.mode = expect(sync_mode_from_text(words[2]));
  }
  setting.servers = std::atoi(words[3]);
  setting.trial.limit = from_milliseconds(1000 * std::atof(words[4]));
  for (int i = 5; i < count; ++i) {
    setting.kills.push_back(expect(process_kill_from_text(words[i])));
  }
  const SyncRunResult result = expect(run_sync_processes(setting));
  std::printf("updates %lld epochs %lld\n", static_cast<long long>(result.updates),
              static_cast<long long>(result.epochs));
  return 0;
}
