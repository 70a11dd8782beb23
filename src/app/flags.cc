#include "app/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/cut_text.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto {

namespace {

// A list may also be given as several words.
constexpr int kMostWords = 1 << 20;
// Up to here doubles hold every whole number.
constexpr double kMostExact = 9007199254740992;

std::string expected_of(const NumberRange& range) {
  return cat("expected a ", range.whole ? "whole number" : "number", " from ",
             range.whole ? piece(static_cast<int64_t>(range.low)) : piece(range.low), " to ",
             range.whole ? piece(static_cast<int64_t>(range.high)) : piece(range.high));
}

// The first fault in a word of a list flag, or nothing.
std::string list_fault(std::string_view word,
                       const std::function<std::string(std::string_view)>& entry_fault) {
  if (word.empty()) return "expected entries separated by commas, found none";
  const auto entries = entries_of(word);
  if (!entries.ok()) return entries.error().message;
  for (const std::string_view entry : entries.value()) {
    if (std::string fault = entry_fault(entry); !fault.empty()) return fault;
  }
  return {};
}

CLI::Option* add_list(CLI::App& app, const std::string& name, const std::string& help,
                      std::function<std::string(std::string_view)> entry_fault,
                      std::function<void(const std::vector<std::string>&)> take) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [take = std::move(take)](const std::vector<std::string>& words) {
            std::vector<std::string> all;
            for (const std::string& word : words) {
              const auto entries = entries_of(word);
              if (!entries.ok()) continue;  // refused before
              all.insert(all.end(), entries.value().begin(), entries.value().end());
            }
            take(all);
          },
          help)
      ->expected(1, kMostWords)
      ->check([entry_fault = std::move(entry_fault)](const std::string& word) {
        return list_fault(word, entry_fault);
      });
}

// The flags of a command, for "did you mean".
std::string nearest_flag(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest(word, views.data(), views.size());
  return near.empty() ? "" : cat(", did you mean ", near, "?");
}

}  // namespace

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<int64_t> whole_number_of(std::string_view text) {
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return whole;
  const auto value = number_of(text);
  if (!value || *value != std::floor(*value) || std::abs(*value) > kMostExact) return {};
  return static_cast<int64_t>(*value);
}

namespace {

// Why `text` is not a number of this range, as "expected ..., found ..."; empty when it is one.
std::string number_fault(std::string_view text, const NumberRange& range) {
  const auto value = number_of(text);
  if (value && *value >= range.low && *value <= range.high &&
      (!range.whole || whole_number_of(text))) {
    return {};
  }
  return cat(expected_of(range), ", found '", excerpt(text), "'");
}

}  // namespace

Result<std::vector<std::string_view>> entries_of(std::string_view text) {
  std::vector<std::string_view> entries;
  if (text.empty()) return entries;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    entries.push_back(text.substr(begin, end - begin));
    if (entries.back().empty()) {
      return invalid(cat("expected entries separated by single commas, found an empty entry in '",
                         excerpt(text), "'"));
    }
    begin = end + 1;
  }
  return entries;
}

CLI::Option* add_number(CLI::App& app, const std::string& name, const NumberRange& range,
                        const std::string& help, std::function<void(double)> take) {
  return app
      .add_option_function<std::string>(
          name,
          [take = std::move(take)](const std::string& text) {
            if (const auto value = number_of(text)) take(*value);
          },
          help)
      ->type_name(range.whole ? "INT" : "FLOAT")
      ->check([range](const std::string& text) { return number_fault(text, range); });
}

CLI::Option* numbers_flag(CLI::App& app, const std::string& name, std::vector<double>& target,
                          const NumberRange& range, const std::string& help) {
  return add_list(
             app, name, help,
             [range](std::string_view entry) { return number_fault(entry, range); },
             [&target](const std::vector<std::string>& entries) {
               target.clear();
               for (const std::string& entry : entries) {
                 target.push_back(number_of(entry).value_or(0));
               }
             })
      ->type_name(range.whole ? "INT,..." : "FLOAT,...");
}

CLI::Option* list_flag(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::string& help) {
  return add_list(
             app, name, help, [](std::string_view) { return std::string(); },
             [&target](const std::vector<std::string>& entries) { target = entries; })
      ->type_name("TEXT,...");
}

CLI::Option* path_flag(CLI::App& app, const std::string& name, std::string& target,
                       const std::string& help) {
  return app.add_option(name, target, help)->check([](const std::string& text) {
    return text.empty() ? std::string("expected a name, found an empty text") : std::string();
  });
}

Result<std::vector<std::string>> overrides_in(const std::vector<std::string>& extras) {
  std::vector<std::string> overrides;
  for (const std::string& extra : extras) {
    const size_t equals = extra.find('=');
    const size_t dot = extra.find('.');
    if (extra.rfind("--", 0) != 0 || equals == std::string::npos || dot > equals) {
      return invalid(cat("unknown argument '", extra,
                         "': settings of the job are given as --section.key=value"));
    }
    overrides.push_back(extra.substr(2));
  }
  return overrides;
}

int exit_code_of_command(const Error& error) {
  if (error.code == Code::Exhausted && error.reach == Reach::Call) return 1;
  return error.code == Code::Invalid && error.reach == Reach::Call ? 2 : 3;
}

std::string sentence_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string what = error.what();
  if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&error); extras != nullptr) {
    const std::vector<std::string> words = command->remaining(true);
    const std::string word = words.empty() ? std::string() : words.front();
    const bool named = command == &app && word.substr(0, 1) != "-";
    what = cat(named ? "there is no command '" : "there is no flag or argument '", excerpt(word),
               "' here", nearest_flag(*command, word));
  }
  constexpr size_t kMostWhat = 400;
  std::replace(what.begin(), what.end(), '\n', ' ');
  if (what.size() > kMostWhat) what = what.substr(0, cut_of(what, kMostWhat)) + "...";
  return cat(what, "; ", path, " --help lists what is possible");
}

}  // namespace tenuto
