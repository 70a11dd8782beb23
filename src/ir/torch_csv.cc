#include "ir/torch_csv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// What an action says beside stage and micro-batch.
enum class Verb : uint8_t {
  Forward,
  Whole,
  Input,
  Weight,
  SendForward,
  RecvForward,
  SendBackward,
  RecvBackward,
  ReduceGradient,
  Unshard,
  Reshard
};

struct VerbName {
  std::string_view name;
  Verb verb;
};
constexpr VerbName kVerbs[] = {
    {"F", Verb::Forward},
    {"B", Verb::Whole},
    {"I", Verb::Input},
    {"W", Verb::Weight},
    {"SEND_F", Verb::SendForward},
    {"RECV_F", Verb::RecvForward},
    {"SEND_B", Verb::SendBackward},
    {"RECV_B", Verb::RecvBackward},
    {"UNSHARD", Verb::Unshard},
    {"RESHARD", Verb::Reshard},
    {"REDUCE_GRAD", Verb::ReduceGradient},
};

bool is_message(Verb verb) { return verb >= Verb::SendForward && verb <= Verb::RecvBackward; }
bool of_step(Verb verb) { return verb >= Verb::ReduceGradient; }

// Where an action stands in the file.
struct Spot {
  size_t line = 0, column = 0;  // 1-based
  std::string_view text;
};

struct Action {
  Verb verb = Verb::Forward;
  StageId stage;
  MicroId micro;
  Spot spot;
};

Op op_of(OpKind kind, StageId stage, MicroId micro) {
  Op op;
  op.kind = kind;
  op.stage = stage;
  op.micro = micro;
  return op;
}

bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

// Reads rows of cells into actions, then into ops.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view source) : text_(text), source_(source) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }

  Result<CsvSchedule> read() {
    if (const auto error = read_rows()) return *error;
    CsvSchedule result;
    note_makers(result);
    const int64_t ops = static_cast<int64_t>(makers_.size());
    if (ops == 0) return invalid(cat(source_, ":1:1: expected actions such as 0F0, found none"));
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (const Action& action : rows_[row]) {
        if (std::max(action.stage.value, action.micro.value) < ops) continue;
        return fault(action.spot, Code::Invalid,
                     cat("stages and micro-batches count from 0 without gaps, so none is above ",
                         ops, " in a file of ", ops, " actions: mend the number"));
      }
      if (const auto error = add_list(row, result)) return *error;
    }
    note_steps(result);
    if (result.messages) result.torch = torch_of(result.schedule);
    return result;
  }

 private:
  using Fault = std::optional<Error>;

  Error fault(const Spot& spot, Code code, const std::string& what) const {
    return {code, code == Code::Invalid ? Reach::Call : Reach::Job,
            cat(source_, ":", spot.line, ":", spot.column, ": '", spot.text.substr(0, 40),
                "': ", what)};
  }

  Fault read_rows();
  Fault read_cell(std::string_view cell, size_t line, size_t column);
  Fault read_composite(const Spot& spot);
  Fault read_action(const Spot& spot);
  void note_makers(CsvSchedule& result);
  void note_steps(CsvSchedule& result) const;
  TorchRun torch_of(const Schedule& schedule) const;
  Fault add_list(size_t row, CsvSchedule& result) const;
  Fault add_message(size_t row, const Action& action, std::vector<Op>& list) const;
  Fault check_reduction(size_t row, size_t index) const;
  // Who runs an action of this kind; none if nobody does.
  WorkerId maker(OpKind kind, StageId stage, MicroId micro) const {
    const auto found = makers_.find({kind, stage, micro});
    return found == makers_.end() ? WorkerId{} : found->second;
  }

  std::string_view text_, source_;
  std::optional<Spot> blank_;  // the first cell without an action
  std::vector<std::vector<Action>> rows_;
  std::map<std::tuple<OpKind, StageId, MicroId>, WorkerId> makers_;
  int32_t stage_count_ = 0;
};

CsvReader::Fault CsvReader::read_rows() {
  size_t line = 0, last = 0;
  for (size_t begin = 0; begin < text_.size();) {
    const size_t end = std::min(text_.find('\n', begin), text_.size());
    ++line;
    rows_.emplace_back();
    const bool says_nothing =
        text_.substr(begin, end - begin).find_first_not_of(" \t\r") == std::string_view::npos;
    for (size_t cell = begin; cell <= end && !says_nothing;) {
      const size_t stop = std::min(text_.substr(0, end).find(',', cell), end);
      if (auto error = read_cell(text_.substr(cell, stop - cell), line, cell - begin + 1)) {
        return error;
      }
      cell = stop + 1;
    }
    if (!says_nothing) last = rows_.size();
    begin = end + 1;
  }
  rows_.resize(last);  // blank lines at the end are no workers
  return {};
}

CsvReader::Fault CsvReader::read_cell(std::string_view cell, size_t line, size_t column) {
  const auto trim = [&] {
    while (!cell.empty() && is_blank(cell.front())) {
      cell.remove_prefix(1);
      ++column;
    }
    while (!cell.empty() && is_blank(cell.back())) cell.remove_suffix(1);
  };
  trim();
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
    cell = cell.substr(1, cell.size() - 2);
    ++column;
    trim();
  }
  const Spot spot{line, column, cell};
  if (cell.empty()) {
    if (!blank_) blank_ = spot;
    return {};
  }
  return cell.front() == '(' ? read_composite(spot) : read_action(spot);
}

// (3F1;2B0)OVERLAP_F_B: the actions run one after the other, in the order in which they stand.
CsvReader::Fault CsvReader::read_composite(const Spot& spot) {
  const size_t close = spot.text.find(')');
  if (close == std::string_view::npos || spot.text.substr(close + 1) != "OVERLAP_F_B") {
    return fault(spot, Code::Invalid,
                 "expected several actions as (3F1;2B0)OVERLAP_F_B, found another form");
  }
  for (size_t begin = 1; begin <= close;) {
    const size_t end = std::min(spot.text.find(';', begin), close);
    Spot part{spot.line, spot.column + begin, spot.text.substr(begin, end - begin)};
    while (!part.text.empty() && is_blank(part.text.front())) {
      part.text.remove_prefix(1);
      ++part.column;
    }
    while (!part.text.empty() && is_blank(part.text.back())) part.text.remove_suffix(1);
    if (auto error = read_action(part)) return error;
    const Verb verb = rows_.back().back().verb;
    if (is_message(verb) || of_step(verb)) {
      return fault(part, Code::Invalid,
                   "only F, B, I and W can overlap: give it a cell of its own");
    }
    begin = end + 1;
  }
  return {};
}

CsvReader::Fault CsvReader::read_action(const Spot& spot) {
  constexpr std::string_view kForm =
      "expected <stage><kind><micro-batch> with kind F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B, "
      "such as 2F0";
  const std::string_view text = spot.text;
  size_t place = 0;
  const auto number = [&](int32_t& value) {
    const size_t first = place;
    int64_t sum = 0;
    while (place < text.size() && text[place] >= '0' && text[place] <= '9') {
      sum = sum * 10 + (text[place++] - '0');
      if (sum > 2'000'000'000) return false;
    }
    value = static_cast<int32_t>(sum);
    return place > first;
  };
  Action action;
  action.spot = spot;
  if (!number(action.stage.value)) return fault(spot, Code::Invalid, std::string(kForm));
  const size_t first = place;
  while (place < text.size() &&
         (text[place] == '_' || (text[place] >= 'A' && text[place] <= 'Z'))) {
    ++place;
  }
  const std::string_view name = text.substr(first, place - first);
  const auto found = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                  [&](const VerbName& it) { return it.name == name; });
  if (found == std::end(kVerbs)) return fault(spot, Code::Invalid, std::string(kForm));
  action.verb = found->verb;
  if (!of_step(action.verb) && !number(action.micro.value)) {
    return fault(spot, Code::Invalid, std::string(kForm));
  }
  if (place != text.size()) return fault(spot, Code::Invalid, std::string(kForm));
  rows_.back().push_back(action);
  return {};
}

// Notes which worker runs what; messages need this to find their peers.
void CsvReader::note_makers(CsvSchedule& result) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    const WorkerId worker{static_cast<int32_t>(row)};
    for (const Action& action : rows_[row]) {
      result.messages |= is_message(action.verb);
      result.splits |= action.verb == Verb::Input || action.verb == Verb::Weight;
      if (is_message(action.verb) || of_step(action.verb)) continue;
      stage_count_ = std::max(stage_count_, action.stage.value + 1);
      result.schedule.micro_count = std::max(result.schedule.micro_count, action.micro.value + 1);
      const auto note = [&](OpKind kind) {
        makers_.try_emplace({kind, action.stage, action.micro}, worker);
      };
      if (action.verb == Verb::Forward) note(OpKind::Forward);
      if (action.verb == Verb::Whole || action.verb == Verb::Input) note(OpKind::BackwardInput);
      if (action.verb == Verb::Whole || action.verb == Verb::Weight) note(OpKind::BackwardWeight);
    }
  }
  result.schedule.stage_count = stage_count_;
}

// Notes the actions of the whole step that Tenuto ignores.
void CsvReader::note_steps(CsvSchedule& result) const {
  const auto note = [&](auto is_one, const char* what) {
    size_t count = 0;
    Spot first;
    for (const auto& row : rows_) {
      for (const Action& action : row) {
        if (is_one(action.verb) && count++ == 0) first = action.spot;
      }
    }
    if (count == 0) return;
    result.notes.push_back(cat(source_, ":", first.line, ":", first.column, ": '",
                               first.text.substr(0, 40), "'",
                               count > 1 ? cat(" and ", count - 1, " more") : std::string(), what));
  };
  note([](Verb verb) { return verb == Verb::Unshard || verb == Verb::Reshard; },
       " do nothing here: they gather and drop sharded weights (FSDP), and a worker of Tenuto "
       "holds its weights whole");
  note([](Verb verb) { return verb == Verb::ReduceGradient; },
       " stand for Tenuto's own reduction, which sums a stage's gradient over the pipelines as "
       "soon as all of it is there");
}

// PyTorch refuses to load a file with messages and blank cells, so it would not even run it.
TorchRun CsvReader::torch_of(const Schedule& schedule) const {
  if (!blank_) return torch_run(schedule);
  return {TorchEnding::NotTaken,
          cat("does not load it: the cell in line ", blank_->line, ", column ", blank_->column,
              " is blank, which PyTorch refuses in a file with messages: drop the cell")};
}

CsvReader::Fault CsvReader::add_list(size_t row, CsvSchedule& result) const {
  std::vector<Op>& list = result.schedule.lists.emplace_back();
  for (size_t i = 0; i < rows_[row].size(); ++i) {
    const Action& action = rows_[row][i];
    const auto add = [&](OpKind kind) { list.push_back(op_of(kind, action.stage, action.micro)); };
    if (is_message(action.verb)) {
      if (auto error = add_message(row, action, list)) return error;
    } else if (action.verb == Verb::Unshard || action.verb == Verb::Reshard) {
      continue;  // note_steps reports it
    } else if (action.verb == Verb::ReduceGradient) {
      if (auto error = check_reduction(row, i)) return error;
    } else if (action.verb == Verb::Forward) {
      add(OpKind::Forward);
    } else {
      if (action.verb != Verb::Weight) add(OpKind::BackwardInput);
      if (action.verb != Verb::Input) add(OpKind::BackwardWeight);
    }
  }
  return {};
}

// A CSV names a message by the stage that sends or receives it, an Op by the stage that made it.
CsvReader::Fault CsvReader::add_message(size_t row, const Action& action,
                                        std::vector<Op>& list) const {
  const bool sends = action.verb == Verb::SendForward || action.verb == Verb::SendBackward;
  const bool forward = action.verb == Verb::SendForward || action.verb == Verb::RecvForward;
  const StageId other{action.stage.value + (sends == forward ? 1 : -1)};
  if (action.stage.value >= stage_count_) {
    return fault(action.spot, Code::Infeasible,
                 cat("nobody runs an op of stage ", action.stage, ", which would ",
                     sends ? "send" : "take", " it: drop the cell"));
  }
  if (other.value < 0 || other.value >= stage_count_) {
    return fault(action.spot, Code::Infeasible,
                 cat("there is no stage ", other.value, " that it could ",
                     sends ? "go to" : "come from", ": drop the cell"));
  }
  const OpKind kind = forward ? OpKind::Forward : OpKind::BackwardInput;
  const std::string theirs = cat(other, forward ? "F" : "B", action.micro);
  const WorkerId peer = maker(kind, other, action.micro);
  if (peer.value < 0) {
    return fault(action.spot, Code::Infeasible,
                 cat("nobody runs ", theirs, ", which would ", sends ? "take" : "make", " it: add ",
                     theirs, " or drop the cell"));
  }
  if (at(peer.value) == row) {
    return fault(action.spot, Code::Infeasible,
                 cat("rank ", row, " runs ", theirs,
                     " itself, and no message is needed within a rank: drop the cell"));
  }
  Op op = op_of(sends ? OpKind::Send : OpKind::Recv, sends ? action.stage : other, action.micro);
  op.moved = forward ? ValueKind::Activation : ValueKind::Gradient;
  op.peer = peer;
  list.push_back(op);
  return {};
}

// Tenuto reduces a stage's gradient once, when the last micro-batch is in it.
CsvReader::Fault CsvReader::check_reduction(size_t row, size_t index) const {
  const Action& reduction = rows_[row][index];
  for (size_t i = index + 1; i < rows_[row].size(); ++i) {
    const Action& later = rows_[row][i];
    const bool adds = later.verb == Verb::Whole || later.verb == Verb::Weight;
    const bool again = later.verb == Verb::ReduceGradient;
    if (later.stage != reduction.stage || (!adds && !again)) continue;
    return fault(
        reduction.spot, Code::Infeasible,
        cat("'", later.spot.text, "' (line ", later.spot.line, ", column ", later.spot.column,
            ") stands behind it, and Tenuto reduces a stage's gradient "
            "once, when all of it is there: drop the cell"));
  }
  return {};
}

// Turns one pipeline of a plan into rows.
class CsvWriter {
 public:
  CsvWriter(const Plan& plan, const CsvOptions& options) : plan_(plan), options_(options) {}

  Result<std::string> write() {
    if (const auto error = find_rows()) return *error;
    if (const auto error = find_cells()) return *error;
    if (const auto error = run_all()) return *error;
    std::string text;
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + row[i];
      text += '\n';
    }
    return text;
  }

 private:
  using Fault = std::optional<Error>;
  // One compute action. `letter` as in the file.
  struct Cell {
    char letter = 'F';
    StageId stage;
    int32_t position = 0;
  };

  static std::string token(const Cell& cell) { return cat(cell.stage, cell.letter, cell.position); }
  Fault find_rows();
  Fault find_cells();
  Fault run_all();
  bool startable(const Cell& cell) const;
  void run(size_t row, const Cell& cell);
  void send(size_t row, const Cell& cell, const char* kind, int32_t to_stage);
  std::vector<Cell> cells_of(const std::vector<Op>& list) const;

  const Plan& plan_;
  const CsvOptions& options_;
  int32_t pipelines_ = 1, pipeline_ = 0;
  std::vector<WorkerId> workers_;  // of each row
  std::vector<std::vector<Cell>> cells_;
  std::vector<std::vector<std::string>> rows_;
  std::map<std::pair<StageId, int32_t>, size_t> row_of_;  // who runs the forward
  std::map<std::pair<StageId, int32_t>, char> done_;      // 'F' or 'B' of what has run so far
  std::map<StageId, int32_t> left_;                       // weight gradients still to come
};

CsvWriter::Fault CsvWriter::find_rows() {
  pipelines_ = static_cast<int32_t>(plan_.stages.front().holders.size());
  for (size_t s = 0; s < plan_.stages.size(); ++s) {
    if (plan_.stages[s].holders.size() == at(pipelines_)) continue;
    return Error{Code::Infeasible, Reach::Job,
                 cat("stage ", s, " has ", plan_.stages[s].holders.size(), " holders and stage 0 ",
                     pipelines_, ": a CSV holds one whole pipeline, and this plan has none")};
  }
  if (options_.pipeline < 0 && pipelines_ > 1) {
    return invalid(cat("the plan has ", pipelines_,
                       " pipelines and a CSV holds one: choose it with --pipeline 0 to ",
                       pipelines_ - 1));
  }
  if (options_.pipeline >= pipelines_) {
    return invalid(cat("there is no pipeline ", options_.pipeline, ": the plan has ", pipelines_,
                       ", numbered from 0"));
  }
  pipeline_ = std::max(0, options_.pipeline);
  for (const Stage& stage : plan_.stages) workers_.push_back(stage.holders[at(pipeline_)]);
  std::sort(workers_.begin(), workers_.end());
  workers_.erase(std::unique(workers_.begin(), workers_.end()), workers_.end());
  rows_.resize(workers_.size());
  return {};
}

// The compute cells of a list: a backward's two halves as one, as two, or as they stand.
std::vector<CsvWriter::Cell> CsvWriter::cells_of(const std::vector<Op>& list) const {
  std::vector<Cell> cells;
  for (const Op& op : list) {
    const Cell cell{op.kind == OpKind::Forward         ? 'F'
                    : op.kind == OpKind::BackwardInput ? 'I'
                                                       : 'W',
                    op.stage, op.micro.value / pipelines_};
    const bool computes = op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
                          op.kind == OpKind::BackwardWeight;
    if (!computes) continue;
    const bool joins = cell.letter == 'W' && !cells.empty() && cells.back().letter == 'I' &&
                       cells.back().stage == cell.stage && cells.back().position == cell.position;
    if (options_.backward == CsvBackward::Apart && joins) {
      cells.back().letter = 'B';
    } else if (options_.backward != CsvBackward::Whole || cell.letter == 'F') {
      cells.push_back(cell);
    } else if (cell.letter == 'I') {
      cells.push_back({'B', cell.stage, cell.position});
    }
  }
  return cells;
}

CsvWriter::Fault CsvWriter::find_cells() {
  for (size_t w = 0; w < plan_.schedule.lists.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const auto row = std::lower_bound(workers_.begin(), workers_.end(), worker);
    const bool inside = row != workers_.end() && *row == worker;
    for (const Op& op : plan_.schedule.lists[w]) {
      if (op.micro.value < 0 || inside == (op.micro.value % pipelines_ == pipeline_)) continue;
      return Error{Code::Infeasible, Reach::Job,
                   cat("worker ", worker, " lists ", to_text(op), " of pipeline ",
                       op.micro.value % pipelines_,
                       ": work moves between pipelines here, and a "
                       "CSV holds one pipeline by itself")};
    }
    if (!inside) continue;
    cells_.push_back(cells_of(plan_.schedule.lists[w]));
    for (const Cell& cell : cells_.back()) {
      if (cell.letter == 'F') row_of_[{cell.stage, cell.position}] = cells_.size() - 1;
      if (cell.letter == 'W' || cell.letter == 'B') ++left_[cell.stage];
    }
  }
  return {};
}

bool CsvWriter::startable(const Cell& cell) const {
  const auto has = [&](int32_t stage, char letter) {
    const auto found = done_.find({StageId{stage}, cell.position});
    return found != done_.end() && (letter == 'F' || found->second == letter);
  };
  const int32_t stage = cell.stage.value, last = plan_.schedule.stage_count - 1;
  if (cell.letter == 'F') return stage == 0 || has(stage - 1, 'F');
  if (cell.letter == 'W') return has(stage, 'B');
  return has(stage, 'F') && (stage == last || has(stage + 1, 'B'));
}

void CsvWriter::send(size_t row, const Cell& cell, const char* kind, int32_t to_stage) {
  const size_t to = row_of_.at({StageId{to_stage}, cell.position});
  if (to == row || !options_.messages) return;
  rows_[row].push_back(cat(cell.stage, "SEND_", kind, cell.position));
  rows_[to].push_back(cat(to_stage, "RECV_", kind, cell.position));
}

void CsvWriter::run(size_t row, const Cell& cell) {
  rows_[row].push_back(token(cell));
  const int32_t stage = cell.stage.value, last = plan_.schedule.stage_count - 1;
  if (cell.letter == 'F') {
    done_[{cell.stage, cell.position}] = 'F';
    if (stage < last) send(row, cell, "F", stage + 1);
  } else if (cell.letter != 'W') {
    done_[{cell.stage, cell.position}] = 'B';
    if (stage > 0) send(row, cell, "B", stage - 1);
  }
  const bool adds = cell.letter == 'W' || cell.letter == 'B';
  if (adds && --left_[cell.stage] == 0 && options_.messages) {
    rows_[row].push_back(cat(cell.stage, "REDUCE_GRAD"));
  }
}

// Runs the rows in turn, one action each, and puts a message into both rows as soon as its value is
// made. So all rows share one order of messages, and nothing waits in a circle. It runs the rows
// even if the file gets no messages, to refuse lists that cannot run in list order.
CsvWriter::Fault CsvWriter::run_all() {
  std::vector<size_t> next(cells_.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t row = 0; row < cells_.size(); ++row) {
      if (next[row] == cells_[row].size() || !startable(cells_[row][next[row]])) continue;
      run(row, cells_[row][next[row]++]);
      moved = true;
    }
  }
  for (size_t row = 0; row < cells_.size(); ++row) {
    if (next[row] == cells_[row].size()) continue;
    return Error{Code::Infeasible, Reach::Job,
                 cat("worker ", workers_[row], " cannot get past ", token(cells_[row][next[row]]),
                     " in list order: the plan needs its ready dispatch, which a CSV cannot say")};
  }
  return {};
}

}  // namespace

bool looks_like_csv(std::string_view text) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n\"");
  if (first == std::string_view::npos) return false;
  const char letter = text[first];
  return letter == ',' || letter == '(' || (letter >= '0' && letter <= '9');
}

Result<CsvSchedule> schedule_from_csv(std::string_view text, std::string_view source) {
  return CsvReader(text, source).read();
}

Result<std::string> to_csv(const Plan& plan, const CsvOptions& options) {
  return CsvWriter(plan, options).write();
}

}  // namespace tenuto
