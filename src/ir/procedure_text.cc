// A procedure as text, and back.
#include <array>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "ir/procedure.h"
#include "ir/text.h"

namespace tenuto {

namespace {

constexpr std::array<Goal, 3> kGoals = {Goal::AllReduce, Goal::ReduceScatter, Goal::AllGather};

std::string numbers(std::string_view word, const std::vector<WorkerId>& ids) {
  if (ids.empty()) return "";
  std::string text = cat(" ", word);
  for (const WorkerId id : ids) text += cat(" ", id);
  return text;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (size_t at = 0; at < line.size();) {
    const size_t first = line.find_first_not_of(" \t\r", at);
    if (first == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t\r", first), line.size());
    words.push_back(line.substr(first, at - first));
  }
  return words;
}

// Reads line by line; the first fault ends it.
class ProcedureReader {
 public:
  ProcedureReader(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  Result<Procedure> read() {
    while (!rest_.empty()) {
      ++line_;
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      const auto words = words_of(rest_.substr(0, end));
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (words.empty()) continue;
      if (auto error = begun_ ? read_line(words) : read_head(words)) return *error;
      begun_ = true;
    }
    if (!begun_) {
      return invalid(cat(source_, ": expected a procedure, such as 'ring all-reduce members 0 1 ",
                         "chunks 2', found nothing"));
    }
    close_section();
    return std::move(procedure_);
  }

 private:
  Error expected(std::string_view what, std::string_view found) const {
    return invalid(
        cat(source_, ", line ", line_, ": expected ", what, ", found '", found.substr(0, 40), "'"));
  }

  static std::optional<int32_t> number(std::string_view word) {
    int32_t value = -1;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failure != std::errc() || end != word.data() + word.size() || value < 0) return {};
    return value;
  }

  std::optional<Error> read_head(const std::vector<std::string_view>& words) {
    procedure_.name = words[0];
    bool known = false;
    for (const Goal goal : kGoals) {
      if (words.size() < 2 || words[1] != name_of(goal)) continue;
      procedure_.goal = goal;
      known = true;
    }
    if (!known) {
      return expected("all-reduce, reduce-scatter or all-gather behind the name",
                      words.size() < 2 ? "" : words[1]);
    }
    std::vector<WorkerId>* target = nullptr;
    for (size_t i = 2; i < words.size(); ++i) {
      const auto value = number(words[i]);
      if (words[i] == "chunks") {
        const auto count = i + 1 < words.size() ? number(words[i + 1]) : std::nullopt;
        if (!count)
          return expected("a count behind chunks", i + 1 < words.size() ? words[i + 1] : "");
        procedure_.collective.chunk_count = *count;
        target = nullptr;
        ++i;
      } else if (words[i] == "members") {
        target = &procedure_.collective.members;
      } else if (words[i] == "late") {
        target = &procedure_.late;
      } else if (words[i] == "owners") {
        target = &procedure_.owners;
      } else if (value && target != nullptr) {
        target->push_back({*value});
      } else {
        return expected("members, chunks, late or owners, with numbers", words[i]);
      }
    }
    return {};
  }

  std::optional<Error> read_line(const std::vector<std::string_view>& words) {
    if (words[0] == "section") {
      close_section();
      open_ = true;
      for (size_t i = 1; i < words.size(); ++i) section_ += cat(i == 1 ? "" : " ", words[i]);
      return {};
    }
    if (words[0] != "round") return expected("round or section", words[0]);
    Round& round = procedure_.collective.rounds.emplace_back();
    for (size_t i = 1; i < words.size(); ++i) {
      const auto move = move_from_text(words[i]);
      if (!move.ok()) return expected("a move such as 0>1.0 or 0>1.0+", words[i]);
      round.moves.push_back(move.value());
    }
    return {};
  }

  void close_section() {
    if (!open_) return;
    const auto end = static_cast<int32_t>(procedure_.collective.rounds.size());
    procedure_.sections.push_back({std::move(section_), end});
    section_.clear();
    open_ = false;
  }

  std::string_view rest_, source_;
  int line_ = 0;
  bool begun_ = false, open_ = false;
  std::string section_;
  Procedure procedure_;
};

}  // namespace

std::string_view name_of(Goal goal) {
  switch (goal) {
    case Goal::AllReduce:
      return "all-reduce";
    case Goal::ReduceScatter:
      return "reduce-scatter";
    default:
      return "all-gather";
  }
}

std::string to_text(const Procedure& procedure) {
  const Collective& collective = procedure.collective;
  std::string text =
      cat(procedure.name, " ", name_of(procedure.goal), numbers("members", collective.members),
          " chunks ", collective.chunk_count, numbers("late", procedure.late),
          numbers("owners", procedure.owners), "\n");
  auto section = procedure.sections.begin();
  int32_t first = 0;
  for (int32_t r = 0; r < static_cast<int32_t>(collective.rounds.size()); ++r) {
    if (section != procedure.sections.end() && r == first) {
      text += cat("  section ", section->name, "\n");
    }
    text += "  round";
    for (const Move& move : collective.rounds[static_cast<size_t>(r)].moves) {
      text += cat(" ", to_text(move));
    }
    text += '\n';
    if (section != procedure.sections.end() && r + 1 == section->round_end) {
      first = section->round_end;
      ++section;
    }
  }
  return text;
}

Result<Procedure> procedure_from_text(std::string_view text, std::string_view source) {
  return ProcedureReader(text, source).read();
}

}  // namespace tenuto
