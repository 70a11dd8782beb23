// tenuto bench: the benchmark programs that were built with this one, each a reproducible table.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tenuto {

// Adds `bench` to the command line; `chosen` gets what it does, which returns the exit code.
void add_bench_command(CLI::App& app, std::function<void(std::function<int()>)> chosen);

}  // namespace tenuto
