// The commands of `tenuto` that have a file of their own.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tenuto {

// Receives the function of the chosen command; that function returns the exit code.
using Chosen = std::function<void(std::function<int()>)>;

// Each adds a command to the command line. bench: the benchmark programs that were built with this
// one, each a reproducible table. completion: completion scripts and the man page, made from the
// command line's own description.
void add_analyze_command(CLI::App& app, Chosen chosen);
void add_bench_command(CLI::App& app, Chosen chosen);
void add_collective_command(CLI::App& app, Chosen chosen);
void add_completion_command(CLI::App& app, Chosen chosen);
void add_doctor_command(CLI::App& app, Chosen chosen);
void add_plan_command(CLI::App& app, Chosen chosen);
void add_profile_command(CLI::App& app, Chosen chosen);
void add_schedule_command(CLI::App& app, Chosen chosen);
void add_simulate_command(CLI::App& app, Chosen chosen);

}  // namespace tenuto
