#include "sim/page.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <string_view>
#include <tuple>

#include "base/text.h"
#include "ir/text.h"
#include "ir/walk.h"
#include "sim/html.h"
#include "sim/page_parts.h"
#include "sim/timeline.h"
#include "sim/wait.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

std::string milliseconds(Duration time) { return cat(fixed(to_milliseconds(time), 1), " ms"); }

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

// Things that are named by a number, in the order of their first use.
template <class Key>
class Numbers {
 public:
  // The number of a key, a new one where it has none.
  size_t of(const Key& key) {
    const auto [found, fresh] = number_.emplace(key, all_.size());
    if (fresh) all_.push_back(key);
    return found->second;
  }
  // The keys by number.
  const std::vector<Key>& all() const { return all_; }

 private:
  std::map<Key, size_t> number_;
  std::vector<Key> all_;
};

// The names of ops (letter, stage, place of the stage among the stages of its worker), of messages
// (letter, stage, sender) and the reasons.
struct Names {
  Numbers<std::tuple<char, int32_t, int32_t>> ops, messages;
  Numbers<std::string> reasons;
};

// One timeline and what is computed from it.
struct Line {
  std::string name;
  const std::vector<Span>& spans;
  std::vector<Wait> waits;
  Duration end{}, tick{1};
  std::vector<std::array<Duration, kUseCount>> uses;
};

bool computes(const Span& span) { return lane_of(span.op) == LaneKind::Compute; }

// True for compute ops, except those weight gradients of a whole backward that take no time.
bool shown(const Span& span, const Plan& plan) {
  return computes(span) && (plan.split_backward || span.op.kind != OpKind::BackwardWeight ||
                            span.start != span.finish);
}

Line line_of(std::string name, const std::vector<Span>& spans, const Plan& plan) {
  Line line{std::move(name), spans, waits_of(spans, plan), {}, Duration{1}, {}};
  int64_t tick = 0;
  for (const Span& span : spans) {
    line.end = std::max(line.end, span.finish);
    tick = std::gcd(tick, std::gcd(span.start.count(), span.finish.count()));
  }
  line.tick = Duration(std::max<int64_t>(tick, 1));
  line.uses = uses_of(spans, line.waits, line.end, plan.schedule.lists.size());
  return line;
}

// Lists of whole numbers, one a worker: [[1,2],[],[3]].
class Lists {
 public:
  explicit Lists(size_t count) : text_(count) {}
  // Appends to the list of a worker.
  template <class... Number>
  void add(WorkerId worker, Number... numbers) {
    std::string& text = text_[at(worker.value)];
    ((text += ',', text += piece(numbers)), ...);
  }
  // Writes them all.
  void write(std::ostream& out) const {
    for (size_t w = 0; w < text_.size(); ++w) {
      out << (w == 0 ? "[[" : "],\n[")
          << (text_[w].empty() ? std::string_view() : std::string_view(text_[w]).substr(1));
    }
    out << (text_.empty() ? "[]" : "]]");
  }

 private:
  std::vector<std::string> text_;
};

class Writer {
 public:
  Writer(std::ostream& out, const PageContent& content)
      : out_(out), content_(content), stages_of_(stages_by_worker(content.plan)) {
    const Plan& plan = content.plan;
    lines_.push_back(line_of("promised", content.promised.spans, plan));
    if (!content.measured.empty()) lines_.push_back(line_of("measured", content.measured, plan));
  }

  void write() {
    begin_page(out_, {content_.title, "", true});
    write_summary();
    out_ << kPageChart;
    write_table();
    write_data();
    out_ << "<script>\n" << kPageScript << "</script>\n";
    end_page(out_);
  }

 private:
  int32_t chunk_of(const Span& span) const {
    const auto& mine = stages_of_[at(span.worker.value)];
    const auto found = std::find(mine.begin(), mine.end(), span.op.stage.value);
    return found == mine.end() ? 0 : static_cast<int32_t>(found - mine.begin());
  }

  void fact(const char* what, const std::string& figure, const std::string& more = "") {
    write_fact(out_, what, figure, more);
  }

  void write_summary() {
    const Plan& plan = content_.plan;
    const Timeline& promised = content_.promised;
    std::string reason = content_.reason;
    if (!reason.empty() && reason[0] >= 'a' && reason[0] <= 'z') reason[0] += 'A' - 'a';
    out_ << "<h1>" << html(content_.title) << "</h1>\n<p>"
         << html(cat(reason, reason.empty() ? "" : ": ", plan.stages.size(), " stages, ",
                     plan.schedule.lists.size(), " workers, ", plan.schedule.micro_count,
                     " micro-batches, ", promised.ops, " ops."));
    if (lines_.size() > 1) out_ << html(cat(" Measured: ", content_.measured_source, "."));
    out_ << "</p>\n<ul class=\"facts\">\n";
    const Duration end = promised.makespan, bound = promised.lower_bound;
    fact("promised", milliseconds(end));
    if (lines_.size() > 1) {
      const double ratio = to_milliseconds(lines_[1].end) / to_milliseconds(end);
      fact("measured", milliseconds(lines_[1].end),
           end.count() > 0 ? cat(fixed(ratio, 3), " times the promise") : std::string());
    }
    if (bound.count() > 0) {
      fact(
          "lower bound", milliseconds(bound),
          cat("promised ", fixed(to_milliseconds(end) / to_milliseconds(bound), 3), " times that"));
    }
    fact("bubble", percent(promised.bubble_fraction),
         lines_.size() > 1 ? cat("measured ", percent(bubble(lines_[1]))) : std::string());
    const auto peak = std::max_element(promised.peak_micros.begin(), promised.peak_micros.end());
    if (peak != promised.peak_micros.end()) {
      fact("held at most", cat(*peak, " micro-batches"),
           cat("at worker ", peak - promised.peak_micros.begin()));
    }
    out_ << "</ul>\n";
    for (const Line& line : lines_) write_longest(line);
  }

  // The share of the time that workers with ops do not compute.
  double bubble(const Line& line) const {
    double busy = 0, all = 0;
    for (size_t w = 0; w < line.uses.size(); ++w) {
      if (content_.plan.schedule.lists[w].empty()) continue;
      busy += to_milliseconds(line.uses[w][static_cast<size_t>(Use::Busy)]);
      all += to_milliseconds(line.end);
    }
    return all > 0 ? 1 - busy / all : 0;
  }

  // The sentence about the longest wait.
  void write_longest(const Line& line) {
    size_t longest = line.spans.size();
    for (size_t i = 0; i < line.spans.size(); ++i) {
      if (!shown(line.spans[i], content_.plan) || line.waits[i].idle.count() == 0) continue;
      if (longest == line.spans.size() || line.waits[i].idle > line.waits[longest].idle) {
        longest = i;
      }
    }
    if (longest == line.spans.size()) return;
    const Span& span = line.spans[longest];
    const std::string micro = span.op.micro.value < 0 ? "" : cat(".", span.op.micro);
    Wait wait = line.waits[longest];
    out_ << "<p>"
         << html(cat("Longest wait, ", line.name, ": ", letter_of(span.op), span.op.stage, micro,
                     " on worker ", span.worker, " ", reason_of(line.spans, wait, longest), "."))
         << "</p>\n";
  }

  void write_table() {
    const size_t workers = content_.plan.schedule.lists.size();
    out_ << cat(
        "<h2>What each worker's time went into</h2>\n<details", workers <= 32 ? " open" : "",
        "><summary>Milliseconds from the start to the end of the step: running ops, "
        "waiting for an activation, a gradient, the update (reduction, norm, clip decision) or "
        "its own sending; other: all inputs were there and the op did not start; done: no ops "
        "left.</summary>\n<div class=\"wide\"><table>\n<tr><th>worker</th><th>stages</th>",
        lines_.size() > 1 ? "<th></th>" : "", "<th>held</th><th>busy %</th>");
    for (size_t use = 0; use < kUseCount; ++use) {
      out_ << "<th>" << name_of(static_cast<Use>(use)) << "</th>";
    }
    out_ << "</tr>\n";
    for (size_t w = 0; w < workers; ++w) {
      for (const Line& line : lines_) write_row(line, w);
    }
    out_ << "</table></div></details>\n";
  }

  void write_row(const Line& line, size_t worker) {
    std::string stages;
    for (const int32_t stage : stages_of_[worker]) stages += cat(stages.empty() ? "" : " ", stage);
    const bool measured = &line != &lines_[0];
    const auto& peaks = content_.promised.peak_micros;
    out_ << cat(
        "<tr", measured ? " class=\"measured\"" : "", "><td>", worker, "</td><td>", stages, "</td>",
        lines_.size() > 1 ? cat("<td class=\"name\">", line.name, "</td>") : std::string(), "<td>",
        measured || worker >= peaks.size() ? std::string() : piece(peaks[worker]), "</td>");
    const auto& uses = line.uses[worker];
    const double whole = to_milliseconds(line.end);
    const double busy = to_milliseconds(uses[static_cast<size_t>(Use::Busy)]);
    out_ << "<td>" << fixed(whole > 0 ? 100 * busy / whole : 0, 1) << "</td>";
    for (const Duration use : uses) {
      out_ << "<td>" << (use.count() == 0 ? "0" : fixed(to_milliseconds(use), 1)) << "</td>";
    }
    out_ << "</tr>\n";
  }

  void write_lanes(const Line& line) {
    Lists lanes(stages_of_.size());
    std::vector<int64_t> end(stages_of_.size());  // of the op before, in ticks
    for (size_t i = 0; i < line.spans.size(); ++i) {
      const Span& span = line.spans[i];
      if (!shown(span, content_.plan)) continue;
      const Wait& wait = line.waits[i];
      const int64_t start = span.start / line.tick;
      int64_t& before = end[at(span.worker.value)];
      lanes.add(
          span.worker, names_.ops.of({letter_of(span.op), span.op.stage.value, chunk_of(span)}),
          span.op.micro.value, start - before, (span.finish - span.start) / line.tick,
          names_.reasons.of(reason_form(line.spans, wait, i)),
          wait.after < 0 ? -1 : line.spans[at(wait.after)].op.micro.value, wait.late / line.tick);
      before = span.finish / line.tick;
    }
    lanes.write(out_);
  }

  // Receives, from when the message left to its arrival, and reductions.
  void write_mail(const Line& line) {
    struct Letter {
      Duration start{};
      size_t span = 0;
      bool operator<(const Letter& other) const {
        return std::tie(start, span) < std::tie(other.start, other.span);
      }
    };
    std::vector<std::vector<Letter>> all(stages_of_.size());
    for (size_t i = 0; i < line.spans.size(); ++i) {
      const Span& span = line.spans[i];
      if (span.op.kind != OpKind::Recv && span.op.kind != OpKind::Reduce) continue;
      Duration start = span.start;
      // A measured receive whose message has no stamp starts when it was posted; the message may
      // have left later.
      const int32_t sent = line.waits[i].after;
      if (span.op.kind == OpKind::Recv && sent >= 0 &&
          line.spans[at(sent)].op.kind == OpKind::Send) {
        start = std::min(std::max(start, line.spans[at(sent)].start), span.finish);
      }
      all[at(span.worker.value)].push_back({start, i});
    }
    Lists lists(stages_of_.size());
    for (auto& letters : all) {
      std::sort(letters.begin(), letters.end());
      int64_t before = 0;
      for (const Letter& letter : letters) {
        const Span& span = line.spans[letter.span];
        const bool sums = span.op.kind == OpKind::Reduce;
        const int64_t start = letter.start / line.tick;
        lists.add(span.worker,
                  names_.messages.of(
                      {letter_of(span.op), span.op.stage.value, sums ? -1 : span.op.peer.value}),
                  span.op.micro.value, start - before, span.finish / line.tick - start);
        before = start;
      }
    }
    lists.write(out_);
  }

  void write_names(const char* field, const std::vector<std::tuple<char, int32_t, int32_t>>& all) {
    out_ << ",\n\"" << field << "\":[";
    for (size_t i = 0; i < all.size(); ++i) {
      out_ << cat(i == 0 ? "[\"" : ",[\"", std::get<0>(all[i]), "\",", std::get<1>(all[i]), ",",
                  std::get<2>(all[i]), "]");
    }
    out_ << "]";
  }

  void write_data() {
    size_t chunks = 1;
    for (const auto& stages : stages_of_) chunks = std::max(chunks, stages.size());
    out_ << "<script type=\"application/json\" id=\"data\">\n"
         << cat("{\"split\":", content_.plan.split_backward, ",\"chunks\":", chunks,
                ",\"bound_ms\":", to_milliseconds(content_.promised.lower_bound),
                ",\n\"stages_of\":");
    Lists stages(stages_of_.size());
    for (size_t w = 0; w < stages_of_.size(); ++w) {
      for (const int32_t stage : stages_of_[w]) stages.add({static_cast<int32_t>(w)}, stage);
    }
    stages.write(out_);
    out_ << ",\n\"timelines\":[";
    for (const Line& line : lines_) {
      out_ << cat(&line == &lines_[0] ? "\n" : ",\n", "{\"name\":\"", line.name,
                  "\",\"tick_ns\":", line.tick.count(), ",\"end\":", line.end / line.tick,
                  ",\n\"lanes\":");
      write_lanes(line);
      out_ << ",\n\"mail\":";
      write_mail(line);
      out_ << "}";
    }
    out_ << "]";
    write_names("ops", names_.ops.all());
    write_names("mail", names_.messages.all());
    out_ << ",\n\"reasons\":[";
    for (size_t i = 0; i < names_.reasons.all().size(); ++i) {
      out_ << (i == 0 ? "\"" : ",\"") << names_.reasons.all()[i] << "\"";
    }
    out_ << "]}\n</script>\n";
  }

  std::ostream& out_;
  const PageContent& content_;
  std::vector<std::vector<int32_t>> stages_of_;  // by worker
  std::vector<Line> lines_;
  Names names_;
};

}  // namespace

void write_page(std::ostream& out, const PageContent& content) { Writer(out, content).write(); }

}  // namespace tenuto
