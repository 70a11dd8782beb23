#include "app/worker_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "app/doctor.h"
#include "base/text.h"

// Set by the build when it has torch.
#ifndef TENUTO_TORCH_VERSION
#define TENUTO_TORCH_VERSION ""
#define TENUTO_TORCH_LIBRARIES ""
#endif

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// The limit for a Python that prints the folder of a package: a busy machine starts one slowly.
constexpr Duration kPythonLimit = std::chrono::seconds(20);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// "2.13" of "2.13.0+cpu".
std::string minor_version(const std::string& version) {
  const size_t first = version.find('.');
  return first == std::string::npos ? version : version.substr(0, version.find('.', first + 1));
}

// The version that a folder of torch states; empty when it states none.
std::string version_in(const fs::path& torch) {
  std::ifstream file(torch / "version.py");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("__version__", 0) != 0) continue;
    const size_t first = line.find_first_of("'\"");
    if (first == std::string::npos) return {};
    return line.substr(first + 1, line.find(line[first], first + 1) - first - 1);
  }
  return {};
}

// The torch that workers were built with.
struct BuiltTorch {
  std::string version;    // "2.13.0"
  std::string libraries;  // folder of libtorch.so at that time; empty = built without torch
};

BuiltTorch built_torch() { return {TENUTO_TORCH_VERSION, TENUTO_TORCH_LIBRARIES}; }

// What keeps workers from using the torch in a folder; empty = they can use it.
std::string fault_of(const fs::path& torch, const BuiltTorch& built) {
  if (access((torch / "lib" / "libtorch.so").c_str(), R_OK) != 0) {
    return cat("there is no ", (torch / "lib" / "libtorch.so").string());
  }
  const std::string version = version_in(torch);
  if (version.empty() || built.version.empty()) return {};  // not from a wheel: trust the user
  if (minor_version(version) == minor_version(built.version)) return {};
  return cat(torch.string(), " has torch ", version);
}

// Where a Python has torch; none when it has none or does not start.
std::optional<fs::path> torch_of(const std::string& python) {
  const auto said = output_of({python, "-c",
                               "import importlib.util as u; s = u.find_spec('torch'); "
                               "print(list(s.submodule_search_locations)[0] if s else '')"},
                              kPythonLimit);
  if (!said.ok()) return std::nullopt;
  const std::string folder = said.value().substr(0, said.value().find('\n'));
  if (folder.empty()) return std::nullopt;
  return fs::path(folder);
}

// The result of looking at one Python: its folder of libraries, or why there is none.
struct Look {
  std::string libraries, fault;
};

Look look_at(const std::string& python, const BuiltTorch& built) {
  const std::optional<fs::path> torch = torch_of(python);
  if (!torch) return {"", cat(python, " has no torch")};
  std::string fault = fault_of(*torch, built);
  if (fault.empty()) return {(*torch / "lib").string(), ""};
  return {"", std::move(fault)};
}

Error not_found(const BuiltTorch& built, const std::string& why, const std::string& advice) {
  return {
      Code::Invalid, Reach::Job,
      cat("tenuto-worker needs torch ", minor_version(built.version), ", and ", why, ": ", advice)};
}

// The path of a program that is installed with this one: beside it, or in libexec/tenuto.
//
// Errors: Invalid/Job with the places that were searched
Result<std::string> find_program(const std::string& name) {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  const fs::path beside = self.parent_path() / name;
  const fs::path inside = self.parent_path().parent_path() / "libexec" / "tenuto" / name;
  for (const fs::path& path : {beside, inside}) {
    if (access(path.c_str(), X_OK) == 0) return path.string();
  }
  return Error{Code::Invalid, Reach::Job,
               cat("cannot find the program ", name, ": searched ", beside.string(), " and ",
                   inside.string(), "; build or install it there")};
}

// The folder whose libtorch.so workers are to load. The order of the search: if TENUTO_PYTHON is
// set, only the environment of that Python; else where torch was when workers were built; the
// active environment (VIRTUAL_ENV, CONDA_PREFIX); python3. Torch's C++ interface changes with each
// minor version, so a torch with another major or minor number is ignored.
//
// Errors: Invalid/Job  there is none; the sentence says where it was searched and what to do
// Cost:   none while torch is where it was, else the start of a Python or two
Result<std::string> find_torch(const BuiltTorch& built) {
  const std::string install = cat("pip install torch==", minor_version(built.version), ".*");
  const std::string chosen = variable("TENUTO_PYTHON");
  if (!chosen.empty()) {
    Look look = look_at(chosen, built);
    if (look.fault.empty()) return std::move(look.libraries);
    return not_found(built, cat("TENUTO_PYTHON is ", chosen, ", but ", look.fault),
                     "name a Python that has it, or unset TENUTO_PYTHON");
  }
  const fs::path recorded = fs::path(built.libraries).parent_path();
  std::string faults = fault_of(recorded, built);
  if (faults.empty()) return built.libraries;
  std::vector<std::string> pythons;
  for (const char* active : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (!variable(active).empty()) pythons.push_back(variable(active) + "/bin/python");
  }
  pythons.push_back("python3");
  for (const std::string& python : pythons) {
    Look look = look_at(python, built);
    if (look.fault.empty()) return std::move(look.libraries);
    faults += ", " + look.fault;
  }
  return not_found(built, faults,
                   cat("activate an environment that has it (", install,
                       "), or name its Python in TENUTO_PYTHON"));
}

}  // namespace

int execute(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(path.c_str(), pointers.data());
  return errno;
}

Result<std::string> find_torch_worker() {
  Result<std::string> program = find_program("tenuto-worker");
  const BuiltTorch built = built_torch();
  if (!program.ok() || built.libraries.empty()) return program;
  const Result<std::string> libraries = find_torch(built);
  if (!libraries.ok()) return libraries.error();
  if (libraries.value() != built.libraries) {  // else the program finds torch by itself
    const std::string before = variable("LD_LIBRARY_PATH");
    const std::string path = libraries.value() + (before.empty() ? "" : ":" + before);
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  }
  return program;
}

Result<std::string> find_paced_worker() {
  Result<std::string> paced = find_program("tenuto-worker-paced");
  return paced.ok() || !built_torch().libraries.empty() ? paced : find_program("tenuto-worker");
}

Status check_between_processes(const NetworkSettings& network, const std::string& command) {
  if (network.wire != "memory") return ok();
  return invalid(cat("network.wire is 'memory', which connects threads of one process, but `",
                     command, "` starts processes: use 'auto'"));
}

}  // namespace tenuto
