#include "ir/text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"

namespace tenuto {

namespace {

// The letter of each kind of value that travels.
struct Letter {
  char letter;
  ValueKind kind;
  bool of_micro;
};
constexpr Letter kMoved[] = {{'a', ValueKind::Activation, true},
                             {'g', ValueKind::Gradient, true},
                             {'n', ValueKind::Norm, false},
                             {'v', ValueKind::ClipDecision, false},
                             {'t', ValueKind::Total, false}};

// The letter of each kind of op on the compute lane.
struct Verb {
  char letter;
  OpKind kind;
  bool of_micro;
};
constexpr Verb kVerbs[] = {
    {'F', OpKind::Forward, true},        {'B', OpKind::BackwardInput, true},
    {'W', OpKind::BackwardWeight, true}, {'E', OpKind::Evaluate, true},
    {'M', OpKind::Measure, false},       {'U', OpKind::Step, false},
    {'N', OpKind::MeasureAhead, false},  {'A', OpKind::StepAhead, false},
    {'V', OpKind::Validate, false},
};

std::string number(int32_t value) { return piece(value); }

std::string moved_name(ValueKind kind, StageId stage, MicroId micro) {
  for (const Letter& it : kMoved) {
    if (it.kind != kind) continue;
    std::string text = cat(it.letter, stage.value);
    if (it.of_micro) text += cat('.', micro.value);
    return text;
  }
  return "?";
}

// Reads a token from its front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Takes `letter` if it is next.
  bool take(char letter) {
    if (at_ == text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  // Takes any letter; 0 at the end.
  char letter() { return at_ == text_.size() ? '\0' : text_[at_++]; }
  // Takes a number of 0 .. `most`, written without needless zeros.
  bool number(int32_t& value, int32_t most = 2147483647) {
    const size_t first = at_;
    int64_t sum = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      sum = sum * 10 + (text_[at_++] - '0');
      if (sum > most) return false;
    }
    value = static_cast<int32_t>(sum);
    return at_ > first && (at_ == first + 1 || text_[first] != '0');
  }
  bool done() const { return at_ == text_.size(); }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// The bucket, if one is named.
bool read_part(Cursor& cursor, Op& op) {
  if (!cursor.take('/')) return true;
  int32_t part = 0;
  if (!cursor.number(part, 32767)) return false;
  op.part = static_cast<int16_t>(part);
  return true;
}

bool read_message(Cursor& cursor, Op& op) {
  const char letter = cursor.letter();
  for (const Letter& it : kMoved) {
    if (it.letter != letter) continue;
    op.moved = it.kind;
    return cursor.number(op.stage.value) &&
           (!it.of_micro || (cursor.take('.') && cursor.number(op.micro.value))) &&
           (it.kind != ValueKind::Total || read_part(cursor, op)) && cursor.take('@') &&
           cursor.number(op.peer.value) && cursor.done();
  }
  return false;
}

bool read_reduce(Cursor& cursor, Op& op) {
  op.kind = OpKind::Reduce;
  if (!cursor.number(op.stage.value) || !read_part(cursor, op)) return false;
  return cursor.take(':') && cursor.number(op.group.value) && cursor.done();
}

bool read_op(std::string_view token, Op& op) {
  Cursor cursor(token);
  const char letter = cursor.letter();
  if (letter == '>' || letter == '<') {
    op.kind = letter == '>' ? OpKind::Send : OpKind::Recv;
    return read_message(cursor, op);
  }
  if (letter == 'R') return read_reduce(cursor, op);
  for (const Verb& verb : kVerbs) {
    if (verb.letter != letter) continue;
    op.kind = verb.kind;
    return cursor.number(op.stage.value) &&
           (!verb.of_micro || (cursor.take('.') && cursor.number(op.micro.value))) && cursor.done();
  }
  return false;
}

// The text cut into lines and words, with their places.
class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : text_(text), source_(source) {
    next_line();
  }

  // The next word of this line; empty at its end.
  std::string_view word() {
    skip_blanks();
    word_at_ = at_;
    while (at_ < end_ && text_[at_] != ' ' && text_[at_] != '\t') ++at_;
    return text_.substr(word_at_, at_ - word_at_);
  }
  // The next word without taking it.
  std::string_view peek() {
    const size_t before = at_;
    const std::string_view found = word();
    at_ = before;
    return found;
  }
  // Goes to the next line that has a word; false at the end of the text.
  bool next_line() {
    while (line_end_ < text_.size() || line_ == 0) {
      at_ = line_ == 0 ? 0 : line_end_ + 1;
      if (line_ > 0 && line_end_ >= text_.size()) break;
      line_begin_ = at_;
      line_end_ = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line = text_.substr(at_, line_end_ - at_);
      end_ = at_ + std::min(line.find('#'), line.size());
      if (end_ > at_ && text_[end_ - 1] == '\r') --end_;
      ++line_;
      if (!peek().empty()) return true;
    }
    at_ = end_ = text_.size();
    over_ = true;
    return false;
  }
  bool over() const { return over_; }
  // An error at the word last taken.
  Error expected(std::string_view what) const {
    const std::string_view found = text_.substr(word_at_, at_ - word_at_);
    return invalid(cat(source_, ":", line_, ":", word_at_ - line_begin_ + 1, ": expected ", what,
                       ", found ",
                       found.empty() ? std::string(over_ ? "the end of the text" : "the line's end")
                                     : cat("'", found.substr(0, 40), "'")));
  }

 private:
  void skip_blanks() {
    while (at_ < end_ && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  std::string_view text_, source_;
  size_t at_ = 0, end_ = 0;  // of what is left of the line
  size_t line_ = 0, line_begin_ = 0, line_end_ = 0, word_at_ = 0;
  bool over_ = false;
};

std::optional<Error> take_word(Reader& reader, std::string_view wanted) {
  if (reader.word() == wanted) return {};
  return reader.expected(cat("'", wanted, "'"));
}

std::optional<Error> take_number(Reader& reader, std::string_view what, int32_t& value) {
  Cursor cursor(reader.word());
  if (cursor.number(value) && cursor.done()) return {};
  return reader.expected(cat(what, ", a whole number from 0 to 2147483647"));
}

// Reads numbers up to the first word that is not a number.
template <class Tag>
std::optional<Error> take_numbers(Reader& reader, std::string_view what,
                                  std::vector<Id<Tag>>& values) {
  while (!reader.peek().empty() && reader.peek()[0] >= '0' && reader.peek()[0] <= '9') {
    Id<Tag> id;
    if (const auto error = take_number(reader, what, id.value)) return error;
    values.push_back(id);
  }
  return {};
}

std::optional<Error> end_of_line(Reader& reader) {
  if (!reader.word().empty()) return reader.expected("the line's end");
  reader.next_line();
  return {};
}

std::optional<Error> read_list(Reader& reader, Schedule& schedule) {
  std::vector<Op>& list = schedule.lists.emplace_back();
  while (!reader.peek().empty()) {
    Op op;
    if (!read_op(reader.word(), op)) {
      return reader.expected("an op such as F0.1, >a0.1@2, <g1.0@3, R0:0, M0 or U0");
    }
    list.push_back(op);
  }
  return end_of_line(reader);
}

std::optional<Error> read_group(Reader& reader, Schedule& schedule) {
  Group& group = schedule.groups.emplace_back();
  if (const auto error = take_word(reader, "stages")) return error;
  if (const auto error = take_numbers(reader, "a stage", group.stages)) return error;
  if (const auto error = take_word(reader, "members")) return error;
  if (const auto error = take_numbers(reader, "a worker", group.members)) return error;
  if (const auto error = take_word(reader, "collective")) return error;
  if (const auto error = take_number(reader, "a collective", group.collective.value)) {
    return error;
  }
  if (reader.peek() == "by") {
    reader.word();
    group.summing.algorithm = reader.word();
    if (group.summing.algorithm.empty()) return reader.expected("the name of an algorithm");
    if (const auto error = take_word(reader, "chunks")) return error;
    if (const auto error = take_number(reader, "a count of chunks", group.summing.chunks)) {
      return error;
    }
    if (reader.peek() == "late") {
      reader.word();
      if (const auto error = take_number(reader, "a worker", group.summing.late.value)) {
        return error;
      }
    }
  }
  return end_of_line(reader);
}

std::optional<Error> read_collective(Reader& reader, Schedule& schedule) {
  Collective& collective = schedule.collectives.emplace_back();
  if (const auto error = take_word(reader, "members")) return error;
  if (const auto error = take_numbers(reader, "a worker", collective.members)) return error;
  if (const auto error = take_word(reader, "chunks")) return error;
  if (const auto error = take_number(reader, "a count of chunks", collective.chunk_count)) {
    return error;
  }
  if (const auto error = end_of_line(reader)) return error;
  while (!reader.over() && reader.peek() == "round") {
    reader.word();
    Round& round = collective.rounds.emplace_back();
    while (!reader.peek().empty()) {
      const auto move = move_from_text(reader.word());
      if (!move.ok()) return reader.expected("a move such as 0>1.0 or 0>1.0+");
      round.moves.push_back(move.value());
    }
    if (const auto error = end_of_line(reader)) return error;
  }
  return {};
}

// "group 3:" and "collective 3:" carry their number for human readers; it must be the next one.
std::optional<Error> read_numbered(Reader& reader, std::string_view what, size_t number) {
  const std::string wanted = cat(number, ":");
  if (reader.word() == wanted) return {};
  return reader.expected(cat("'", wanted, "' (each ", what, " has the next number from 0)"));
}

std::optional<Error> read_schedule(Reader& reader, Schedule& schedule) {
  if (const auto error = take_word(reader, "stages")) return error;
  if (const auto error = take_number(reader, "a count of stages", schedule.stage_count)) {
    return error;
  }
  if (const auto error = take_word(reader, "micros")) return error;
  if (const auto error = take_number(reader, "a count of micro-batches", schedule.micro_count)) {
    return error;
  }
  if (reader.peek() == "sums") {
    reader.word();
    schedule.all_reduce = reader.word();
    if (schedule.all_reduce.empty()) return reader.expected("the name of an algorithm");
  }
  if (const auto error = end_of_line(reader)) return error;
  while (!reader.over()) {
    const std::string_view word = reader.word();
    std::optional<Error> error;
    if (word == "group") {
      error = read_numbered(reader, "group", schedule.groups.size());
      if (!error) error = read_group(reader, schedule);
    } else if (word == "collective") {
      error = read_numbered(reader, "collective", schedule.collectives.size());
      if (!error) error = read_collective(reader, schedule);
    } else if (word == cat("w", schedule.lists.size(), ":")) {
      error = read_list(reader, schedule);
    } else {
      error = reader.expected(
          cat("'w", schedule.lists.size(), ":' (lists stand in order), 'group' or 'collective'"));
    }
    if (error) return error;
  }
  return {};
}

template <class Tag>
std::string numbers(const std::vector<Id<Tag>>& ids) {
  std::string text;
  for (const Id<Tag> id : ids) text += cat(" ", id.value);
  return text;
}

// The most letters that are shown of a list: half of them from before its first marked op.
constexpr size_t kWindow = 96;

std::string to_text(const Summing& summing) {
  if (summing == Summing{}) return {};
  return cat(" by ", summing.algorithm, " chunks ", summing.chunks,
             summing.late.value < 0 ? std::string() : cat(" late ", summing.late.value));
}

std::string marked_line(const Schedule& schedule, WorkerId worker, std::vector<int32_t> places) {
  std::string line = cat("w", worker.value, ":");
  std::vector<size_t> columns;
  const std::vector<Op>& list = schedule.lists[static_cast<size_t>(worker.value)];
  for (size_t i = 0; i <= list.size(); ++i) {
    line += ' ';
    const auto marked = std::find(places.begin(), places.end(), static_cast<int32_t>(i));
    if (marked != places.end()) columns.push_back(line.size());
    if (i < list.size()) line += to_text(list[i]);
  }
  size_t cut = 0;
  const size_t centre = columns.empty() ? 0 : columns.front();
  if (line.size() > kWindow && centre > kWindow / 2) {
    cut = std::min(line.find(' ', centre - kWindow / 2), centre - 1);
    line = cat("w", worker.value, ": ...", line.substr(cut));
    cut -= cat("w", worker.value, ": ...").size();
  }
  const bool long_tail = line.size() > kWindow + 4;
  if (long_tail) line = cat(line.substr(0, line.rfind(' ', kWindow)), " ...");
  std::string arrows;
  for (const size_t column : columns) {
    const size_t shown = column - cut;
    if (shown > kWindow) break;
    arrows.resize(std::max(arrows.size(), shown), ' ');
    arrows += '^';
  }
  while (line.back() == ' ') line.pop_back();
  return cat(line, "\n", arrows);
}

}  // namespace

std::string to_text(const Op& op) {
  switch (op.kind) {
    case OpKind::Send:
    case OpKind::Recv:
      return cat(op.kind == OpKind::Send ? '>' : '<', moved_name(op.moved, op.stage, op.micro),
                 op.part < 0 ? std::string() : cat('/', op.part), '@', number(op.peer.value));
    case OpKind::Reduce:
      return cat('R', op.stage.value, op.part < 0 ? std::string() : cat('/', op.part), ':',
                 number(op.group.value));
    default:
      break;
  }
  for (const Verb& verb : kVerbs) {
    if (verb.kind != op.kind) continue;
    std::string text = cat(verb.letter, number(op.stage.value));
    if (verb.of_micro) text += cat('.', number(op.micro.value));
    return text;
  }
  return "?";
}

std::string to_text(const Value& value) {
  const std::string name = cat(number(value.stage.value), ".", number(value.micro.value));
  switch (value.kind) {
    case ValueKind::Stash:
      return cat("stash ", name);
    case ValueKind::WeightWork:
      return cat("weight work ", name);
    case ValueKind::Partial:
      return cat("partial ", name);
    case ValueKind::Total:
      return cat("total ", value.stage, value.part < 0 ? std::string() : cat("/", value.part));
    case ValueKind::None:
      return "nothing";
    default:
      return moved_name(value.kind, value.stage, value.micro);
  }
}

std::string to_text(const Move& move) {
  return cat(number(move.from.value), ">", number(move.to.value), ".", number(move.chunk.value),
             move.add ? "+" : "");
}

std::string to_text(const Schedule& schedule) {
  std::string text = cat("stages ", schedule.stage_count, " micros ", schedule.micro_count);
  if (schedule.all_reduce != Schedule{}.all_reduce) text += " sums " + schedule.all_reduce;
  text += '\n';
  for (size_t worker = 0; worker < schedule.lists.size(); ++worker) {
    text += cat("w", worker, ":");
    for (const Op& op : schedule.lists[worker]) {
      text += ' ';
      text += to_text(op);
    }
    text += '\n';
  }
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    const Group& group = schedule.groups[i];
    text += cat("group ", i, ": stages", numbers(group.stages), " members", numbers(group.members),
                " collective ", number(group.collective.value), to_text(group.summing), "\n");
  }
  for (size_t i = 0; i < schedule.collectives.size(); ++i) {
    const Collective& collective = schedule.collectives[i];
    text += cat("collective ", i, ": members", numbers(collective.members), " chunks ",
                collective.chunk_count, "\n");
    for (const Round& round : collective.rounds) {
      text += "  round";
      for (const Move& move : round.moves) {
        text += ' ';
        text += to_text(move);
      }
      text += '\n';
    }
  }
  return text;
}

Result<Schedule> schedule_from_text(std::string_view text, std::string_view source) {
  Reader reader(text, source);
  Schedule schedule;
  if (auto error = read_schedule(reader, schedule)) return *error;
  return schedule;
}

Result<Op> op_from_text(std::string_view token) {
  Op op;
  if (read_op(token, op)) return op;
  return invalid(cat("expected an op such as F0.1, >a0.1@2, R0:0, M0 or U0, found '",
                     token.substr(0, 40), "'"));
}

Result<Move> move_from_text(std::string_view token) {
  Cursor cursor(token);
  Move move;
  if (cursor.number(move.from.value) && cursor.take('>') && cursor.number(move.to.value) &&
      cursor.take('.') && cursor.number(move.chunk.value)) {
    move.add = cursor.take('+');
    if (cursor.done()) return move;
  }
  return invalid(cat("expected a move such as 0>1.0 or 0>1.0+, found '", token.substr(0, 40), "'"));
}

std::string table(const Schedule& schedule, const std::vector<Mark>& marks, size_t most) {
  std::map<WorkerId, std::vector<int32_t>> by_worker;
  for (const Mark& mark : marks) by_worker[mark.worker].push_back(mark.index);
  std::string text;
  size_t shown = 0;
  for (const auto& [worker, places] : by_worker) {
    if (shown++ == most) {
      text += cat("\n... and ", by_worker.size() - most, " more workers");
      break;
    }
    text += cat(text.empty() ? "" : "\n", marked_line(schedule, worker, places));
  }
  return text;
}

char letter_of(const Op& op) {
  if (op.kind == OpKind::Reduce) return 'R';
  if (is_message(op)) {
    for (const Letter& it : kMoved) {
      if (it.kind == op.moved) return it.letter;
    }
  }
  for (const Verb& verb : kVerbs) {
    if (verb.kind == op.kind) return verb.letter;
  }
  return '?';
}

}  // namespace tenuto
