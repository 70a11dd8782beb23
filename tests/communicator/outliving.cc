// A member of a group in which other members die. It sums again and again, and prints the
// contributors and the result of each sum. outliving_test.py kills members. The algorithm "asked"
// is auto, with a ready service.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/join.h"

using namespace tenuto;

namespace {

// Returns the value, or exits with the error's sentence.
template <class T>
T expect(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "outliving: %s\n", result.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    std::fprintf(stderr, "usage: outliving HOST:PORT PLACE COUNT ALGORITHM CALLS\n");
    return 2;
  }
  JoinSettings who;
  who.meeting = words[1];
  who.place = std::atoi(words[2]);
  who.count = std::atoi(words[3]);
  const std::string algorithm = words[4];
  who.ready_service = algorithm == "asked";
  const auto joined = expect(join(who));
  {
    CommunicatorSettings settings = joined->settings();
    settings.way = {who.ready_service ? "auto" : algorithm};
    if (settings.way.algorithm == "late-one") settings.way.late = {{who.count - 1}};
    settings.survive_deaths = true;
    const auto group = expect(Communicator::make(joined->communicator(), settings));
    // A call's tensors stay until the next call has ended: other members may still need them.
    std::vector<int64_t> owns[2], totals[2];
    for (int call = 0; call < std::atoi(words[5]); ++call) {
      std::vector<int64_t>&own = owns[call % 2], &total = totals[call % 2];
      own.resize(1 << 18);
      total.resize(own.size());
      for (size_t i = 0; i < own.size(); ++i) {
        own[i] = (int64_t{1} << (8 * who.place)) *
                 static_cast<int64_t>(1 + (i + static_cast<size_t>(call)) % 7);
      }
      CallRequest request;
      request.element = Element::Int64;
      request.own = std::as_bytes(std::span(own));
      request.total = std::as_writable_bytes(std::span(total));
      expect(group->run(request));
      int64_t digits = 0;
      for (const WorkerId each : group->contributors()) digits += int64_t{1} << (8 * each.value);
      bool right = true;
      for (size_t i = 0; i < total.size(); ++i) {
        right = right &&
                total[i] == digits * static_cast<int64_t>(1 + (i + static_cast<size_t>(call)) % 7);
      }
      std::printf("%d %s", call, right ? "right" : "wrong");
      for (const WorkerId each : group->contributors()) std::printf(" %d", each.value);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  expect(joined->leave(std::chrono::seconds(10)));
  return 0;
}
