#include "app/doctor.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "app/commands.h"
#include "app/worker_program.h"
#include "base/text.h"
#include "run/descriptor.h"
#include "transport/ucx/ucx.h"

namespace tenuto {

namespace {

using Mark = Finding::State;

// Torch takes a second or two to start, more on a busy machine.
constexpr Duration kWorkerLimit = std::chrono::seconds(60);
constexpr Duration kToolLimit = std::chrono::seconds(5);
constexpr int kLoopbackMilliseconds = 2000;
constexpr double kGibibyte = 1024.0 * 1024 * 1024;
// GiB. A run keeps three checkpoints, of some megabytes each in the quick start, and its logs.
constexpr double kLeastDisk = 1.0;

const char* state_name(Mark state) {
  switch (state) {
    case Mark::Good:
      return "ok";
    case Mark::Poor:
      return "poor";
    default:
      return "missing";
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Lines joined to one, for a table.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string out;
  for (const char letter : text) {
    if (letter == '\n') {
      out += "; ";
    } else {
      out += letter;
    }
  }
  return out;
}

Finding examine_transport() {
  Finding finding{"transport", Mark::Good, "TCP", ""};
  if (ucx_version().empty()) {
    finding.found += "; this build has no UCX, which only accelerators need";
    return finding;
  }
  finding.found += cat("; UCX ", ucx_version(), ":");
  const std::set<std::string> transports = ucx_transports();
  for (const std::string& name : transports) finding.found += " " + name;
  if (transports.count("tcp") == 0) {
    finding.state = Mark::Poor;
    finding.found += transports.empty() ? " none opened" : ", no tcp";
    finding.advice =
        "network.wire = \"ucx\" will not work, because UCX opened no TCP transport: install "
        "libucx0 and unset UCX_TLS, or add tcp to it";
  }
  return finding;
}

Finding examine_control() { return {"control", Mark::Good, cat("gRPC ", grpc::Version()), ""}; }

Finding examine_worker() {
  const std::string advice =
      "build tenuto with torch (./run build), or install torch; without torch only paced workers "
      "and tenuto simulate work";
  const auto program = find_torch_worker();
  if (!program.ok() && find_paced_worker().ok()) {
    return {"devices", Mark::Poor, "paced devices only", program.error().message};
  }
  if (!program.ok()) return {"devices", Mark::Missing, program.error().message, advice};
  const auto described = output_of({program.value(), "--describe"}, kWorkerLimit);
  if (!described.ok()) return {"devices", Mark::Missing, described.error().message, advice};
  const std::string found = one_line(described.value());
  if (found.find("no torch") == std::string::npos) return {"devices", Mark::Good, found, ""};
  return {"devices", Mark::Poor, found, advice};
}

// The path of messages between accelerators: the one that network.path = "auto" would take here.
Finding examine_path(const Finding& devices) {
  const bool reaches = ucx_device_memory();
  const bool accelerator = devices.found.find(" cuda device") != std::string::npos;
  const std::string ucx = reaches ? "UCX reaches CUDA memory" : "UCX does not reach CUDA memory";
  if (!accelerator) return {"path", Mark::Good, cat("no accelerator: host memory; ", ucx), ""};
  if (reaches) return {"path", Mark::Good, cat(ucx, ": auto takes direct"), ""};
  return {"path", Mark::Poor, cat(ucx, ": auto takes staged"),
          "messages go through pinned memory of the host; for the direct path install UCX with "
          "CUDA"};
}

Finding examine_compiler_cache() {
  const auto version = output_of({"ccache", "--version"}, kToolLimit);
  if (version.ok()) return {"ccache", Mark::Good, first_line(version.value()), ""};
  return {"ccache", Mark::Poor, "not found", "install ccache: it makes later builds take seconds"};
}

Finding examine_disk(const std::string& runs) {
  std::error_code ignored;
  std::filesystem::path place = std::filesystem::absolute(runs, ignored);
  while (!std::filesystem::exists(place, ignored) && place.has_parent_path() &&
         place != place.parent_path()) {
    place = place.parent_path();
  }
  struct statvfs about {};
  if (::statvfs(place.c_str(), &about) != 0) {
    return {"disk", Mark::Missing, cat(place.string(), ": ", strerror(errno)),
            "name another folder in job.directory"};
  }
  const double free = static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize);
  Finding finding{"disk", Mark::Good,
                  cat(fixed(free / kGibibyte, 1), " GiB free for ", runs, " in ", place.string()),
                  ""};
  if (free / kGibibyte < kLeastDisk) {
    finding.state = Mark::Poor;
    finding.advice = "free some space, or name another folder in job.directory";
  }
  if (::access(place.c_str(), W_OK) != 0) {
    finding.state = Mark::Missing;
    finding.found += ", not writable";
    finding.advice = "name a folder that you may write to in job.directory";
  }
  return finding;
}

// One byte from a socket of 127.0.0.1 to another; "" or what failed.
std::string loopback_fault() {
  const auto failed = [](const char* call) { return cat(call, ": ", strerror(errno)); };
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.number() < 0 || caller.number() < 0) return failed("socket");
  if (::bind(listener.number(), name, length) != 0) return failed("bind");
  if (::listen(listener.number(), 1) != 0) return failed("listen");
  if (::getsockname(listener.number(), name, &length) != 0) return failed("getsockname");
  if (::connect(caller.number(), name, length) != 0 && errno != EINPROGRESS)
    return failed("connect");
  pollfd waiting{listener.number(), POLLIN, 0};
  if (::poll(&waiting, 1, kLoopbackMilliseconds) != 1) return "no connection within 2 s";
  const Descriptor answer(::accept(listener.number(), nullptr, nullptr));
  if (answer.number() < 0) return failed("accept");
  if (::write(answer.number(), "t", 1) != 1) return failed("write");
  waiting = {caller.number(), POLLIN, 0};
  if (::poll(&waiting, 1, kLoopbackMilliseconds) != 1) return "no byte within 2 s";
  char byte = 0;
  return ::read(caller.number(), &byte, 1) == 1 && byte == 't' ? std::string() : failed("read");
}

Finding examine_loopback() {
  const std::string fault = loopback_fault();
  if (fault.empty()) return {"loopback", Mark::Good, "127.0.0.1 answers", ""};
  return {"loopback", Mark::Missing, cat("127.0.0.1: ", fault),
          "bring the device lo up (ip link set lo up) and let 127.0.0.1 through the firewall"};
}

Finding examine_machine() {
  const int64_t cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  return {"machine", Mark::Good,
          cat(cores, cores == 1 ? " core, " : " cores, ", fixed(memory / kGibibyte, 1), " GiB"),
          ""};
}

// The kernel's congestion control of TCP. BBR sends almost nothing for 0.2 s out of every 10 s, to
// measure the round trip.
Finding examine_congestion_control() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string control;
  if (!(file >> control)) return {"tcp", Mark::Good, "congestion control unknown", ""};
  Finding finding{"tcp", Mark::Good, "congestion control: " + control, ""};
  if (control != "bbr") return finding;
  finding.state = Mark::Poor;
  finding.advice =
      "BBR pauses a busy connection for 0.2 s out of every 10: for workers on several hosts set"
      " net.ipv4.tcp_congestion_control=cubic";
  return finding;
}

}  // namespace

std::vector<Finding> examine(const std::string& runs) {
  const Finding devices = examine_worker();
  return {examine_machine(),
          devices,
          examine_path(devices),
          examine_transport(),
          examine_congestion_control(),
          examine_control(),
          examine_compiler_cache(),
          examine_disk(runs),
          examine_loopback()};
}

std::string findings_table(const std::vector<Finding>& findings) {
  std::string table, advice;
  for (const Finding& finding : findings) {
    std::string name = finding.name, state = state_name(finding.state);
    name.resize(11, ' ');
    state.resize(9, ' ');
    table += cat(name, state, finding.found, "\n");
    if (!finding.advice.empty()) advice += cat("  ", finding.name, ": ", finding.advice, "\n");
  }
  if (advice.empty()) return table + "no problem found\n";
  return table + "what to do\n" + advice;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all;
  all["ok"] = all_there(findings);
  all["checks"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    all["checks"].push_back({{"name", finding.name},
                             {"state", state_name(finding.state)},
                             {"found", finding.found},
                             {"advice", finding.advice}});
  }
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool all_there(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.state == Mark::Missing; });
}

void add_doctor_command(CLI::App& app, Chosen chosen) {
  struct Choice {
    std::string runs = "runs";
    bool json = false;
  };
  const auto choice = std::make_shared<Choice>();
  CLI::App* command = app.add_subcommand(
      "doctor", "What is installed, which transports and devices work, what to install");
  command->add_option("--directory", choice->runs, "Folder in which runs will be written")
      ->capture_default_str();
  command->add_flag("--json", choice->json, "One JSON object on stdout");
  command->footer("Example:\n  tenuto doctor --json");
  command->callback([choice, chosen = std::move(chosen)] {
    chosen([choice] {
      const std::vector<Finding> findings = examine(choice->runs);
      const std::string text =
          choice->json ? findings_json(findings) + "\n" : findings_table(findings);
      std::fputs(text.c_str(), stdout);
      return all_there(findings) ? 0 : 1;
    });
  });
}

}  // namespace tenuto
