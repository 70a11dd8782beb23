// Open MPI's side of all_reduce_bench. The first member reads requests from standard input, one
// line "BYTES REPEATS LATE_MICROSECONDS CALLS" each. The members then run, REPEATS times, CALLS
// all-reduces of BYTES bytes of floats in a row, and print the microseconds of a call for each
// repeat. With one call, the time runs from the arrival of the last member, which is late by
// LATE_MICROSECONDS; with several, it is the time from the first arrival, divided by CALLS.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

struct Request {
  long bytes = 0, repeats = 0, late = 0, calls = 0;
};

// All processes of a machine share this monotonic clock.
long now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Members sleep while they wait for a request, because other programs are measured meanwhile.
Request next_request(int rank, int size) {
  Request request;
  if (rank == 0) {
    char line[128];
    const bool read = std::fgets(line, sizeof line, stdin) != nullptr;
    if (!read || std::sscanf(line, "%ld %ld %ld %ld", &request.bytes, &request.repeats,
                             &request.late, &request.calls) != 4) {
      request = {};
    }
    for (int other = 1; other < size; ++other) {
      MPI_Send(&request, 4, MPI_LONG, other, 1, MPI_COMM_WORLD);
    }
    return request;
  }
  for (int there = 0; there == 0;) {
    MPI_Iprobe(0, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there == 0) usleep(1000);
  }
  MPI_Recv(&request, 4, MPI_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return request;
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<float> values;
  for (;;) {
    const Request request = next_request(rank, size);
    if (request.repeats == 0) break;
    values.assign(static_cast<size_t>(request.bytes) / sizeof(float), 0.0F);
    for (long i = 0; i < request.repeats; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == size - 1) std::this_thread::sleep_for(std::chrono::microseconds(request.late));
      const long begun = now_ns();
      for (long call = 0; call < request.calls; ++call) {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
      }
      const long times[3] = {begun, -begun, now_ns()};
      long most[3] = {};
      MPI_Reduce(times, most, 3, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
      const long from = request.calls > 1 ? -most[1] : most[0];
      if (rank == 0) std::printf("%ld ", (most[2] - from) / 1000 / request.calls);
    }
    if (rank == 0) {
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
