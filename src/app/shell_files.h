// Completion scripts and the man page, made from the command line's own description.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace tenuto {

// The man page in section 1, in the man macros: commands, options, settings, exit codes.
std::string man_page(const CLI::App& app);

// A completion script: commands, then the chosen command's options, settings of a job and files;
// for `status`, `inject` and `sample` the names of runs.
//
// Requires: shell is bash, zsh or fish
std::string completion(const CLI::App& app, const std::string& shell);

// Adds `completion` to the command line; `chosen` gets what it does, which returns the exit code.
void add_completion_command(CLI::App& app, std::function<void(std::function<int()>)> chosen);

}  // namespace tenuto
