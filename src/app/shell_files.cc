#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/commit.h"
#include "base/text.h"
#include "world/keys.h"

namespace tenuto {
namespace {

// A command with the words in front of it: "schedule show".
struct Command {
  std::string words;
  const CLI::App* app = nullptr;
};

void add_commands(const CLI::App& app, const std::string& before, std::vector<Command>& all) {
  for (const CLI::App* of : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string words = before.empty() ? of->get_name() : cat(before, " ", of->get_name());
    all.push_back({words, of});
    add_commands(*of, words, all);
  }
}

// All commands, each after the one that it belongs to.
std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> all;
  add_commands(app, "", all);
  return all;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* of) { return !of->get_positional(); });
}

// Whether job settings are flags of a command.
bool takes_settings(const Command& command) {
  return command.words == "train" || command.words == "coordinator";
}

bool takes_run(const Command& command) {
  return command.words == "status" || command.words == "inject" || command.words == "sample";
}

// "--json --help": the long names of a command's options.
std::string long_names(const CLI::App& app) {
  std::string names;
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& name : option->get_lnames()) {
      names += cat(names.empty() ? "--" : " --", name);
    }
  }
  return names;
}

std::string direct_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* of : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += cat(names.empty() ? "" : " ", of->get_name());
  }
  return names;
}

std::string setting_names() {
  std::string names;
  for (const Key& key : job_keys()) names += cat(names.empty() ? "--" : " --", key.name, "=");
  return names;
}

// The text escaped for roff, so that it contains no escapes or requests of its own.
std::string roff(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if ((letter == '.' || letter == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (letter == '\\') {
      out += "\\e";
    } else if (letter == '-') {
      out += "\\-";
    } else {
      out += letter;
    }
  }
  return out;
}

std::string roff_option(const CLI::Option& option) {
  const std::string name = option.get_name(option.get_positional(), true);
  std::string head = cat(".TP\n.B ", roff(name));
  const bool takes_value = option.get_items_expected_max() > 0 && !option.get_positional();
  if (takes_value) head += cat(" \\fI", roff(option.get_type_name()), "\\fR");
  return cat(head, "\n", roff(option.get_description()), "\n");
}

std::string roff_command(const Command& command) {
  std::string text =
      cat(".SS tenuto ", roff(command.words), "\n", roff(command.app->get_description()), "\n");
  for (const CLI::Option* option : command.app->get_options()) text += roff_option(*option);
  const std::string footer = command.app->get_footer();
  // Leave out the table of settings at the end of train's footer: it has a section of its own.
  const std::string own = takes_settings(command) ? footer.substr(0, footer.find("\n\n")) : footer;
  if (!own.empty()) text += cat(".PP\n.nf\n", roff(own), "\n.fi\n");
  return text;
}

std::string bash_completion(const CLI::App& app) {
  std::string text = R"sh(# bash completion of tenuto; written by `tenuto completion bash`.
_tenuto() {
  local word=${COMP_WORDS[COMP_CWORD]} commands="" at options="" more="" settings="" runs=""
  COMPREPLY=()
  # --section.key=value comes as three words.
  [[ $word == "=" || ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]] && return
  for ((at = 1; at < COMP_CWORD; ++at)); do
    case "${COMP_WORDS[at]}" in -*) ;; *) commands+="${commands:+ }${COMP_WORDS[at]}" ;; esac
  done
  case "$commands " in
)sh";
  std::vector<Command> commands = commands_of(app);
  for (auto of = commands.rbegin(); of != commands.rend(); ++of) {  // the longer ones first
    text += cat("    \"", of->words, " \"*) options=\"", long_names(*of->app), "\" more=\"",
                direct_commands(*of->app), "\"", takes_settings(*of) ? " settings=yes" : "",
                takes_run(*of) ? " runs=yes" : "", " ;;\n");
  }
  text += cat("    *) options=\"", long_names(app), "\" more=\"", direct_commands(app), "\" ;;\n",
              R"sh(  esac
  [[ -n $settings ]] && options+=" )sh",
              setting_names(), R"sh("
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  elif [[ -n $more ]]; then
    COMPREPLY=($(compgen -W "$more" -- "$word"))
  elif [[ -n $runs ]]; then
    COMPREPLY=($(compgen -W "$(ls runs 2>/dev/null)" -- "$word") $(compgen -d -- "$word"))
  else
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _tenuto tenuto
)sh");
  return text;
}

// In single quotes for zsh and fish.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char letter : text) {
    if (letter == '\'') {
      out += "'\\''";
    } else {
      out += letter == '\n' ? ' ' : letter;
    }
  }
  return out + "'";
}

std::string zsh_completion(const CLI::App& app) {
  std::string text = R"sh(#compdef tenuto
# zsh completion of tenuto; written by `tenuto completion zsh`.
_tenuto() {
  local word=$words[CURRENT] chosen="" at="" runs=""
  local -a options more settings
  for ((at = 2; at < CURRENT; ++at)); do
    [[ $words[at] == -* ]] || chosen+="${chosen:+ }$words[at]"
  done
  case "$chosen " in
)sh";
  std::vector<Command> commands = commands_of(app);
  for (auto of = commands.rbegin(); of != commands.rend(); ++of) {
    text += cat("    (\"", of->words, " \"*) options=(", long_names(*of->app), ") more=(",
                direct_commands(*of->app), ")");
    if (takes_settings(*of)) text += cat(" settings=(", setting_names(), ")");
    text += takes_run(*of) ? " runs=yes ;;\n" : " ;;\n";
  }
  text += cat("    (*) options=(", long_names(app), ") more=(", direct_commands(app), ") ;;\n",
              R"sh(  esac
  if [[ $word == -* ]]; then
    compadd -- $options
    compadd -S "" -- $settings
  elif (( $#more )); then
    compadd -- $more
  elif [[ -n $runs ]]; then
    compadd -- runs/*(N/:t)
    _files -/
  else
    _files
  fi
}
_tenuto "$@"
)sh");
  return text;
}

std::string fish_completion(const CLI::App& app) {
  std::string text = "# fish completion of tenuto; written by `tenuto completion fish`.\n";
  for (const Command& command : commands_of(app)) {
    const size_t space = command.words.rfind(' ');
    const std::string name = command.words.substr(space == std::string::npos ? 0 : space + 1);
    // Offer it only after the words that precede it, and not after one of its sibling commands.
    std::string here = "__fish_use_subcommand";
    if (space != std::string::npos) {
      here = cat("__fish_seen_subcommand_from ", command.words.substr(0, space),
                 "; and not __fish_seen_subcommand_from ",
                 direct_commands(*command.app->get_parent()));
    }
    text += cat("complete -c tenuto -n ", in_quotes(here), " -f -a ", name, " -d ",
                in_quotes(command.app->get_description()), "\n");
    for (const CLI::Option* option : options_of(*command.app)) {
      for (const std::string& lname : option->get_lnames()) {
        text += cat("complete -c tenuto -n ", in_quotes("__fish_seen_subcommand_from " + name),
                    " -l ", lname, option->get_items_expected_max() > 0 ? " -r" : "", " -d ",
                    in_quotes(option->get_description()), "\n");
      }
    }
    if (!takes_settings(command)) continue;
    for (const Key& key : job_keys()) {
      text +=
          cat("complete -c tenuto -n ", in_quotes("__fish_seen_subcommand_from " + name), " -a ",
              in_quotes(cat("--", key.name, "=")), " -d ", in_quotes(std::string(key.help)), "\n");
    }
  }
  return text;
}

// The man page in section 1, in the man macros: commands, options, settings, exit codes.
std::string man_page(const CLI::App& app) {
  std::string text = cat(".TH TENUTO 1 \"\" \"tenuto ", version_text(), "\" \"User Commands\"\n",
                         ".SH NAME\ntenuto \\- train deep networks over pipelines and replicas\n",
                         ".SH SYNOPSIS\n.B tenuto\n.I COMMAND\n[\\fIARGUMENTS\\fR]\n",
                         ".SH DESCRIPTION\n", roff(app.get_description()), "\n.SH OPTIONS\n");
  for (const CLI::Option* option : options_of(app)) text += roff_option(*option);
  text += ".SH COMMANDS\n";
  for (const Command& command : commands_of(app)) text += roff_command(command);
  text +=
      ".SH SETTINGS OF A JOB\nKeys of a job file; train and coordinator take each as a flag, "
      "\\-\\-section.key=value, too. In brackets: the default.\n";
  const Job defaults;
  for (const Key& key : job_keys()) {
    text += cat(".TP\n.B ", roff(std::string(key.name)), "\n", roff(std::string(key.help)), " (",
                roff(value_text(key, defaults)), ")\n");
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : std::vector<std::pair<const char*, const char*>>{
           {"0", "done"},
           {"1", "failed"},
           {"2", "wrong usage or a bad configuration"},
           {"3", "the plan or the schedule is refused"},
           {"75", "try again later: the run can be resumed"},
           {"128+n", "ended by signal n"}}) {
    text += cat(".TP\n.B ", code, "\n", meaning, "\n");
  }
  return cat(
      text,
      ".SH ENVIRONMENT\n.TP\n.B TENUTO_PYTHON\nthe Python whose torch workers use, where "
      "it is not the one that they were built with\n.TP\n.B TENUTO_TOKEN\nthe token of a job, "
      "for coordinator and worker\n");
}

// A completion script: commands, then the chosen command's options, settings of a job and files;
// for `status`, `inject` and `sample` the names of runs. `shell`: bash, zsh or fish.
std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return fish_completion(app);
  return shell == "zsh" ? zsh_completion(app) : bash_completion(app);
}

}  // namespace

void add_completion_command(CLI::App& app, Chosen chosen) {
  static std::string kind;
  CLI::App* command = app.add_subcommand("completion", "print a completion script or the man page");
  command->add_option("kind", kind, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  command->footer(
      "Example: tenuto completion bash > ~/.local/share/bash-completion/completions/tenuto");
  command->callback([chosen = std::move(chosen), &app] {
    chosen([&app] {
      const std::string text = kind == "man" ? man_page(app) : completion(app, kind);
      return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
    });
  });
}

}  // namespace tenuto
