// Open MPI's side of all_reduce_bench: the members wait for requests on the first one's standard
// input, a line "BYTES REPEATS LATE_MICROSECONDS" each, run that many all-reduces of so many bytes
// of floats, and print the microseconds that each took from the moment when the last member, which
// comes so late, was there.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

struct Request {
  long bytes = 0, repeats = 0, late = 0;
};

// Monotonic time is one and the same for all processes of a machine.
long now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whoever waits for the next request sleeps: other programs are measured meanwhile.
Request next_request(int rank, int size) {
  Request request;
  if (rank == 0) {
    char line[128];
    const bool read = std::fgets(line, sizeof line, stdin) != nullptr;
    if (!read ||
        std::sscanf(line, "%ld %ld %ld", &request.bytes, &request.repeats, &request.late) != 3) {
      request = {};
    }
    for (int other = 1; other < size; ++other) {
      MPI_Send(&request, 3, MPI_LONG, other, 1, MPI_COMM_WORLD);
    }
    return request;
  }
  for (int there = 0; there == 0;) {
    MPI_Iprobe(0, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there == 0) usleep(1000);
  }
  MPI_Recv(&request, 3, MPI_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
      long times[2] = {now_ns(), 0}, last[2] = {};
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
      times[1] = now_ns();
      MPI_Reduce(times, last, 2, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0) std::printf("%ld ", (last[1] - last[0]) / 1000);
    }
    if (rank == 0) {
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
