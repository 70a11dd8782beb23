#include "bench/all_reduce_live.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/quantile.h"
#include "base/text.h"
#include "bench/all_reduce_member.h"
#include "bench/line_process.h"
#include "bench/stolen_time.h"
#include "sim/procedure_price.h"

namespace tenuto {
namespace {

constexpr int kSeconds = 120;  // longer than any answer takes
// If the host takes a larger share of the processors' time than kMostStolen, the measurement is
// repeated, up to kMostTries in all. If none is better, the row says so.
constexpr double kMostStolen = 0.03;
constexpr int kMostTries = 8;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "all_reduce_bench: %s\n", why.c_str());
  std::exit(1);
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// Hosts 0 to n - 1 of tools/virtual_cluster; without one all are this machine.
struct Hosts {
  std::string cluster;  // the program; empty = the loopback
  std::string host(int32_t self) const {
    return cluster.empty() ? "127.0.0.1" : cat("10.77.0.", self + 1);
  }
  std::string device() const { return cluster.empty() ? "lo" : "eth0"; }
  // The words of a command that runs on the host of member `self`.
  std::vector<std::string> on(const std::string& self, std::vector<std::string> words) const {
    if (!cluster.empty()) words.insert(words.begin(), {cluster, "exec", self});
    return words;
  }
};

// What a library is asked to run.
struct Request {
  int32_t members = 8;
  int64_t bytes = 0;
  int32_t repeats = 1;
  int32_t calls = 1;    // per repeat, one after the other
  int64_t late_us = 0;  // the last member's
  std::string algorithm = "ring";
  int32_t chunks = 0;
  int64_t slice = 0;
  bool survives = false;  // ours: by a group that survives deaths
};

// The processes of one library.
class Library {
 public:
  virtual ~Library() = default;
  // The microseconds of a call, for each repeat: from the last arrival to the last end; with
  // several calls in a row, the time from the first arrival to the last end, divided by their
  // number. Empty if the library cannot run it.
  virtual std::vector<double> run(const Request& request) = 0;

 protected:
  // Computes these times from all members' answers, each with arrivals and ends in nanoseconds.
  static std::vector<double> times_of(const std::vector<std::vector<double>>& answers,
                                      const Request& request) {
    std::vector<double> times;
    for (size_t i = 0; i < static_cast<size_t>(request.repeats); ++i) {
      std::vector<double> begun, ended;
      for (const auto& answer : answers) {
        if (answer.size() != 2 * static_cast<size_t>(request.repeats)) {
          give_up("a member gave no answer");
        }
        begun.push_back(answer[2 * i]);
        ended.push_back(answer[2 * i + 1]);
      }
      const auto [first, last] = std::minmax_element(begun.begin(), begun.end());
      const double end = *std::max_element(ended.begin(), ended.end());
      times.push_back((end - (request.calls > 1 ? *first : *last)) / 1e3 / request.calls);
    }
    return times;
  }
};

class Own : public Library {
 public:
  Own(const Hosts& hosts, int32_t members, const LiveSettings& settings) {
    for (int32_t i = 0; i < members; ++i) {
      processes_.push_back(std::make_unique<LineProcess>(hosts.on(
          cat(i),
          {own_path(), "--member", cat(i), "--members", cat(members), "--host", hosts.host(i),
           "--device", hosts.device(), "--wire", settings.wire, "--progress", settings.progress,
           "--sends", cat(settings.sends), "--receives", cat(settings.receives), "--link-megabits",
           cat(hosts.cluster.empty() ? 0 : settings.megabits)})));
    }
    std::string addresses;
    for (auto& process : processes_) {
      const std::string line = process->read(kSeconds);
      if (!line.starts_with("address ")) give_up("a member of ours does not start");
      addresses += cat(addresses.empty() ? "" : " ", line.substr(8));
    }
    for (auto& process : processes_) process->write(addresses);
    for (auto& process : processes_) {
      if (process->read(kSeconds) != "ready") give_up("members of ours do not connect");
    }
  }
  std::vector<double> run(const Request& request) override {
    for (auto& process : processes_) {
      process->write(cat(request.members, " ", request.bytes, " ", request.repeats, " ",
                         request.late_us, " ", request.algorithm, " ", request.chunks, " -1 ",
                         request.slice, " ", request.calls, " ", request.survives ? 1 : 0));
    }
    std::vector<std::vector<double>> answers;
    for (size_t i = 0; i < processes_.size(); ++i) {
      auto answer = numbers_of(processes_[i]->read(kSeconds));
      if (i < static_cast<size_t>(request.members)) answers.push_back(std::move(answer));
    }
    return times_of(answers, request);
  }

 private:
  std::vector<std::unique_ptr<LineProcess>> processes_;
};

class Gloo : public Library {
 public:
  Gloo(const Hosts& hosts, int32_t members, const LiveSettings& settings) {
    const std::string script = settings.source + "/bench/all_reduce_gloo.py";
    for (int32_t i = 0; i < members; ++i) {
      processes_.push_back(std::make_unique<LineProcess>(
          hosts.on(cat(i), {settings.python, script, cat(i), cat(members), hosts.host(0),
                            cat(20000 + getpid() % 10000), hosts.device()})));
    }
    for (auto& process : processes_) {
      if (process->read(kSeconds) != "ready") give_up("members of Gloo do not connect");
    }
  }
  std::vector<double> run(const Request& request) override {
    for (auto& process : processes_) {
      process->write(
          cat(request.bytes, " ", request.repeats, " ", request.late_us, " ", request.calls));
    }
    std::vector<std::vector<double>> answers;
    for (auto& process : processes_) answers.push_back(numbers_of(process->read(kSeconds)));
    return times_of(answers, request);
  }

 private:
  std::vector<std::unique_ptr<LineProcess>> processes_;
};

class OpenMpi : public Library {
 public:
  OpenMpi(const Hosts& hosts, int32_t members, const LiveSettings& settings)
      : process_(hosts.on("0", words_for(hosts, members, settings.mpi))) {}
  // On some machines Open MPI does not connect all members. That leaves its cells empty, and the
  // rest of the table is measured.
  std::vector<double> run(const Request& request) override {
    if (is_silent_) return {};
    process_.write(
        cat(request.bytes, " ", request.repeats, " ", request.late_us, " ", request.calls));
    auto times = numbers_of(process_.read(kSeconds));
    is_silent_ = times.size() != static_cast<size_t>(request.repeats);
    if (!is_silent_) return times;
    std::fprintf(stderr, "Open MPI gave no answer: its cells stay empty from here on\n");
    process_.kill();
    return {};
  }

 private:
  // The mpirun command: starts one process for each member, in a cluster one on each host.
  static std::vector<std::string> words_for(const Hosts& hosts, int32_t members,
                                            const std::string& program) {
    std::vector<std::string> words{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                                   cat(members)};
    const auto set = [&words](const std::string& name, const std::string& value) {
      words.insert(words.end(), {"--mca", name, value});
    };
    set("pml", "ob1");
    set("btl", "tcp,self");
    set("btl_tcp_if_include", hosts.device());
    set("mpi_yield_when_idle", "1");
    if (!hosts.cluster.empty()) {
      std::string all;
      for (int32_t i = 0; i < members; ++i) all += cat(i > 0 ? "," : "", hosts.host(i));
      words.insert(words.end(), {"--host", all});
      set("plm_rsh_agent", hosts.cluster + " shell");
      set("plm_rsh_no_tree_spawn", "1");
      set("oob_tcp_if_include", hosts.device());
      set("orte_keep_fqdn_hostnames", "1");
    }
    words.push_back(program);
    return words;
  }

  LineProcess process_;
  bool is_silent_ = false;
};

// NaN without values.
double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A figure with so many digits behind the point, or the sign of an empty cell.
std::string cell_of(double value, int digits) {
  return std::isnan(value) ? "-" : fixed(value, digits);
}

std::string size_name(int64_t bytes) {
  return bytes >= 1 << 20 ? cat(bytes >> 20, " MiB") : cat(bytes >> 10, " KiB");
}

// One column of a table: a library and the algorithm that it is asked for.
struct Column {
  std::string name;
  Library* library = nullptr;
  std::string algorithm;
  int32_t chunks = 0;
  std::vector<double> times;
  double stolen = 0;  // the largest share of processor time that the host took in a run
  bool survives = false;
};

// Runs a column's calls, if possible at a time when the host takes no processor time.
std::vector<double> run_alone(Column& column, const Request& request) {
  double least = 2;
  std::vector<double> best;
  for (int tries = 0; tries < kMostTries && least > kMostStolen; ++tries) {
    const StolenTime stolen;
    auto times = column.library->run(request);
    const double share = stolen.share();
    if (share >= least) continue;
    least = share;
    best = std::move(times);
  }
  column.stolen = std::max(column.stolen, least);
  return best;
}

// Ends a row with a warning if the host took too much processor time.
void end_row(const std::vector<Column>& columns) {
  double stolen = 0;
  for (const Column& column : columns) stolen = std::max(stolen, column.stolen);
  if (stolen > kMostStolen) {
    std::printf("  (the host took up to %.0f %% of the time)", 100 * stolen);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// The columns take turns, so that other load on the machine affects all of them equally.
void measure(std::vector<Column>& columns, Request request, int32_t rounds) {
  for (Column& column : columns) {
    column.times.clear();
    column.stolen = 0;
  }
  for (int32_t round = -1; round < rounds; ++round) {
    for (Column& column : columns) {
      request.algorithm = column.algorithm;
      request.chunks = column.chunks;
      request.survives = column.survives;
      if (round < 0) {  // warms up pages, connections, procedures
        column.library->run(request);
        continue;
      }
      const auto times = run_alone(column, request);
      column.times.insert(column.times.end(), times.begin(), times.end());
    }
  }
}

}  // namespace

int print_loopback(const LiveSettings& settings) {
  Own own({}, settings.members, settings);
  std::unique_ptr<Library> gloo, mpi;
  std::vector<Column> columns;
  for (const char* name : {"ring", "halving", "direct"}) {
    columns.push_back({name, &own, name, 0, {}});
  }
  const size_t ours = columns.size();
  // What our best algorithm is compared with, and its columns, of which the fastest counts.
  std::vector<std::pair<std::string, std::vector<size_t>>> others;
  const auto add = [&](const std::string& name, Library* library) {
    others.push_back({name, {columns.size()}});
    columns.push_back({name, library, "", 0, {}});
  };
  if (settings.survives) {
    others.push_back({"survive", {}});
    for (size_t i = 0; i < ours; ++i) {
      others.back().second.push_back(columns.size());
      columns.push_back({cat("+", columns[i].name), &own, columns[i].name, 0, {}});
      columns.back().survives = true;
    }
  }
  if (!settings.python.empty()) {
    gloo = std::make_unique<Gloo>(Hosts{}, settings.members, settings);
    add("Gloo", gloo.get());
  }
  if (!settings.mpi.empty()) {
    mpi = std::make_unique<OpenMpi>(Hosts{}, settings.members, settings);
    add("Open MPI", mpi.get());
  }
  std::printf(
      "Loopback TCP, %d processes, nobody late: medians in ms; ratios above 1: ours is "
      "faster\n%-10s",
      settings.members, "size");
  for (const Column& column : columns) std::printf("%11s", column.name.c_str());
  for (const auto& [name, places] : others) std::printf("%17s", cat("best to ", name).c_str());
  std::printf("\n");
  for (int64_t bytes = 64 << 10; bytes <= settings.most_bytes; bytes *= 4) {
    Request request;
    request.members = settings.members;
    request.bytes = bytes;
    request.slice = settings.slice_bytes;
    request.calls = static_cast<int32_t>(std::clamp<int64_t>((int64_t{64} << 20) / bytes, 2, 20));
    measure(columns, request, settings.rounds);
    std::printf("%-10s", size_name(bytes).c_str());
    std::vector<double> times;
    for (const Column& column : columns) {
      times.push_back(median(column.times) / 1e3);
      std::printf("%11s", cell_of(times.back(), 2).c_str());
    }
    const double best =
        *std::min_element(times.begin(), times.begin() + static_cast<int64_t>(ours));
    for (const auto& [name, places] : others) {
      double fastest = times[places.front()];
      for (const size_t place : places) fastest = std::min(fastest, times[place]);
      std::printf("%17s", cell_of(fastest / best, 2).c_str());
    }
    end_row(columns);
  }
  return 0;
}

namespace {

// A cluster of network namespaces that lives as long as this object.
class Namespaces {
 public:
  Namespaces(const LiveSettings& settings) : program_(settings.source + "/tools/virtual_cluster") {
    call(cat("up ", settings.members, " ", settings.megabits));
  }
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;
  ~Namespaces() { call("down"); }
  const std::string& program() const { return program_; }

 private:
  void call(const std::string& words) const {
    if (std::system(cat("'", program_, "' ", words, " >&2").c_str()) != 0) {
      give_up(cat("virtual_cluster ", words,
                  " failed: it needs ip and tc, and root or the right "
                  "to make namespaces (tools/virtual_cluster alone CMD...)"));
    }
  }
  std::string program_;
};

Duration price_of(const std::string& algorithm, int32_t chunks, int32_t members, Duration late,
                  Bytes size, AlphaBeta link) {
  CollectiveShape shape;
  for (int32_t i = 0; i < members; ++i) shape.members.push_back({i});
  shape.chunks = chunks;
  if (algorithm == "late-one") shape.late = {{members - 1}};
  const auto made = make_procedure(algorithm, shape);
  if (!made.ok()) give_up(made.error().message);
  std::vector<Duration> arrivals(shape.members.size());
  arrivals.back() = late;
  const Cluster cluster = uniform_cluster(members, {link.alpha, link.bytes_per_second});
  return price_collective(made.value().collective, arrivals, size, cluster).last - late;
}

void print_lateness(std::vector<Column>& columns, Request request, double times_ring,
                    AlphaBeta link, int32_t rounds) {
  const Bytes size{request.bytes};
  const Duration ring = ring_time(request.members, size, link);
  const Duration late(static_cast<int64_t>(times_ring * static_cast<double>(ring.count())));
  request.late_us = late.count() / 1000;
  measure(columns, request, rounds);
  std::printf("%3d%8s%7s", request.members, size_name(request.bytes).c_str(),
              fixed(times_ring, 2).c_str());
  double ring_took = 0;
  for (const Column& column : columns) {
    const double took = median(column.times) / 1e3;
    if (column.algorithm == "ring") ring_took = took;
    std::printf("%10s", cell_of(took, 1).c_str());
    if (column.algorithm.empty()) continue;
    const Duration price = price_of(column.algorithm, column.chunks, request.members,
                                    Duration(request.late_us * 1000), size, link);
    std::printf("%7s", fixed(took / to_milliseconds(price), 3).c_str());
    if (column.algorithm != "ring") std::printf("%7s", fixed(ring_took / took, 2).c_str());
  }
  end_row(columns);
}

void print_members(Own& own, const Hosts& hosts, int32_t members, AlphaBeta link,
                   const LiveSettings& settings) {
  std::unique_ptr<Library> gloo, mpi;
  std::vector<Column> columns = {{"ring", &own, "ring", 0, {}},
                                 {"k=n-1", &own, "late-one", members - 1, {}},
                                 {"best k", &own, "late-one", 0, {}}};
  if (!settings.python.empty()) {
    gloo = std::make_unique<Gloo>(hosts, members, settings);
    columns.push_back({"Gloo", gloo.get(), "", 0, {}});
  }
  if (!settings.mpi.empty()) {
    mpi = std::make_unique<OpenMpi>(hosts, members, settings);
    columns.push_back({"Open MPI", mpi.get(), "", 0, {}});
  }
  for (const int64_t mib : settings.shaped_mib) {
    Request request;
    request.members = members;
    request.bytes = mib << 20;
    request.slice = settings.slice_bytes;
    columns[2].chunks = call_costs(members, {request.bytes}, link, {}).chunks;  // as "auto" sets it
    columns[2].name = cat("k=", columns[2].chunks);
    std::printf("%3s%8s%7s%10s%7s%10s%7s%7s%10s%7s%7s", "n", "size", "late", "ring", "price",
                "k=n-1", "price", "ring", columns[2].name.c_str(), "price", "ring");
    for (size_t i = 3; i < columns.size(); ++i) std::printf("%10s", columns[i].name.c_str());
    std::printf("\n");
    for (const double times_ring : settings.lateness) {
      print_lateness(columns, request, times_ring, link, settings.rounds);
    }
  }
}

}  // namespace

int print_shaped(const LiveSettings& settings) {
  const Namespaces cluster(settings);
  const Hosts hosts{cluster.program()};
  Own own(hosts, settings.members, settings);
  std::vector<Column> small = {{"ring", &own, "ring", 0, {}}};
  Request request;
  request.members = settings.members;
  request.bytes = 4 * settings.members;
  request.repeats = 20;
  measure(small, request, 1);
  const double alpha_us = median(small[0].times) / (2 * (settings.members - 1));
  const AlphaBeta link{Duration(static_cast<int64_t>(alpha_us * 1e3)),
                       payload_rate(settings.megabits)};
  std::printf(
      "%d Mbit/s, a message costs %s us; ms after the late member came, times the price, and times "
      "faster than the ring\n",
      settings.megabits, fixed(alpha_us, 0).c_str());
  for (int32_t members = settings.least_members; members <= settings.members; ++members) {
    print_members(own, hosts, members, link, settings);
  }
  return 0;
}

}  // namespace tenuto
