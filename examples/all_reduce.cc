// Averages a tensor over processes, without a job. Start it once for each place, on one host or
// several:
//
//     for place in 0 1 2 3; do all_reduce 10.0.0.1:7000 $place 4 & done; wait
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/join.h"

using namespace tenuto;

// Returns the value, or prints the error and exits.
template <class T>
T expect(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "all_reduce: %s\n", result.error().message.c_str());
  std::exit(1);
}

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: all_reduce HOST:PORT PLACE COUNT\n");
    return 2;
  }
  JoinSettings who;
  who.meeting = words[1];
  who.place = std::atoi(words[2]);
  who.count = std::atoi(words[3]);
  const auto joined = expect(join(who));
  {
    const auto group = expect(Communicator::make(joined->communicator(), joined->settings()));
    std::vector<float> gradient(1 << 20, static_cast<float>(who.place + 1));
    CallRequest request;
    request.operation = Operation::Average;
    request.total = std::as_writable_bytes(std::span(gradient));
    request.own = request.total;  // in place
    for (int step = 0; step < 5; ++step) expect(group->run(request));
    std::printf("member %d of %d: %g\n", who.place, who.count, gradient.front());
    for (const std::string& note : group->take_notes()) std::printf("  %s\n", note.c_str());
  }
  expect(joined->leave(std::chrono::seconds(10)));
  return 0;
}
