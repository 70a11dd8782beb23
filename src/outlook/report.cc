#include "outlook/report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tenuto::outlook {

namespace {

constexpr Remedies kAll{true, true, true, true, true};

struct Named {
  const char* name;
  Remedies remedies;
};

// The rows of a report. The picture shows the first two and the last.
const std::vector<Named>& all_rows() {
  static const std::vector<Named> rows = {
      {"all remedies", kAll},
      {"today's defaults", kTodaysRemedies},
      {"without re-routing", {false, true, true, true, true}},
      {"without fewer micro-batches for slow ones", {true, false, true, true, true}},
      {"without re-ordering", {true, true, false, true, true}},
      {"without moving layers", {true, true, true, false, true}},
      {"without growing back", {true, true, true, true, false}},
      {"restarts from checkpoints alone", {}},
  };
  return rows;
}

double seconds(Duration time) { return to_milliseconds(time) / 1e3; }

double micros_of_step(const Question& question) {
  return static_cast<double>(question.step.micros) * question.shape.pipelines;
}

int64_t count_of(const Question& question, TroubleKind kind) {
  return std::count_if(question.troubles.begin(), question.troubles.end(),
                       [&](const Trouble& trouble) {
                         return trouble.kind == kind && trouble.begin < question.week.length;
                       });
}

Duration length_of_bucket(const WeekSetup& week, size_t bucket) {
  const Duration width = week.bucket();
  const Duration begin = static_cast<int64_t>(bucket) * width;
  return std::max(Duration{}, std::min(width, week.length - begin));
}

// The goodput of every bucket as a share of the undisturbed one.
std::vector<double> shares_over_time(const Report& report, const Row& row) {
  std::vector<double> shares;
  for (size_t b = 0; b < row.result.over_time.size(); ++b) {
    const Duration lasts = length_of_bucket(report.question.week, b);
    if (lasts == Duration{}) break;  // more buckets than nanoseconds fill
    const double most = seconds(lasts) / seconds(report.undisturbed.time);
    shares.push_back(static_cast<double>(row.result.over_time[b]) / most);
  }
  return shares;
}

std::string percent(double share) { return cat(fixed(100 * share, 2), " %"); }

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string hours(Duration time) { return fixed(seconds(time) / 3600, 2); }

constexpr size_t kNameWidth = 44, kCellWidth = 12;

// A line of a table.
std::string line_of(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = padded(name, kNameWidth);
  for (const std::string& cell : cells) line += padded(cell, kCellWidth);
  line.resize(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

nlohmann::ordered_json json_of(const Report& report, const Row& row) {
  const WeekResult& result = row.result;
  nlohmann::ordered_json tree = {
      {"name", row.name},
      {"remedies",
       {{"reroute", row.remedies.reroute},
        {"rebalance", row.remedies.rebalance},
        {"reorder", row.remedies.reorder},
        {"layers", row.remedies.layers},
        {"grow", row.remedies.grow}}},
      {"micro_batches_per_second", row.micros_per_second},
      {"share", row.share},
      {"steps", result.steps},
      {"lost_steps", result.lost_steps},
      {"training_s", seconds(result.training)},
      {"lost_s", seconds(result.lost)},
      {"waiting_s", seconds(result.waiting)},
      {"unfinished_s", seconds(result.unfinished)},
      {"above_bound_s", seconds(result.above_bound)},
  };
  for (size_t kind = 0; kind < kPauseKinds; ++kind) {
    tree["pauses_s"][std::string(name_of(static_cast<PauseKind>(kind)))] =
        seconds(result.pauses[kind]);
  }
  tree["share_over_time"] = shares_over_time(report, row);
  return tree;
}

// The picture's lines, and their places in it.
constexpr double kWidth = 1000, kHeight = 420, kLeft = 70, kRight = 20, kTop = 50, kBottom = 50;

double x_of(double share_of_length) { return kLeft + share_of_length * (kWidth - kLeft - kRight); }

// Shares up to 1.1 fit into the picture.
double y_of(double share) {
  const double inside = std::clamp(share / 1.1, 0.0, 1.0);
  return kHeight - kBottom - inside * (kHeight - kTop - kBottom);
}

std::string text_at(double x, double y, const std::string& more, const std::string& text) {
  return cat("<text x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" ", more, ">", text,
             "</text>\n");
}

std::string curve_of(const Report& report, const Row& row, const std::string& color) {
  std::string points;
  const double length = seconds(report.question.week.length);
  Duration begin{};
  const std::vector<double> shares = shares_over_time(report, row);
  for (size_t b = 0; b < shares.size(); ++b) {
    const Duration end = begin + length_of_bucket(report.question.week, b);
    for (const Duration moment : {begin, end}) {
      points += cat(fixed(x_of(seconds(moment) / length), 1), ",", fixed(y_of(shares[b]), 1), " ");
    }
    begin = end;
  }
  return cat("<polyline fill=\"none\" stroke=\"", color, "\" stroke-width=\"1.5\" points=\"",
             points, "\"/>\n");
}

std::string axes_of(const Report& report) {
  std::string all;
  for (const int32_t share : {0, 25, 50, 75, 100}) {
    const double y = y_of(share / 100.0);
    all += cat("<line x1=\"", fixed(kLeft, 1), "\" x2=\"", fixed(kWidth - kRight, 1), "\" y1=\"",
               fixed(y, 1), "\" y2=\"", fixed(y, 1), "\" stroke=\"#ddd\"/>\n");
    all += text_at(kLeft - 8, y + 4, "text-anchor=\"end\"", cat(share, " %"));
  }
  const double days = seconds(report.question.week.length) / 86400;
  constexpr int32_t kMarks = 7;
  for (int32_t mark = 0; mark <= kMarks; ++mark) {
    const double share = static_cast<double>(mark) / kMarks;
    all += text_at(x_of(share), kHeight - kBottom + 18, "text-anchor=\"middle\"",
                   cat("day ", fixed(share * days, 1)));
  }
  return all;
}

}  // namespace

Report report_of(const Question& question) {
  Report report{question, {}, 0, {}};
  const double length = seconds(question.week.length);
  for (const Named& named : all_rows()) {
    StepPrices prices(question.shape, question.step, named.remedies);
    // Without troubles all remedies cost and do nothing, so this is the same in every row.
    report.undisturbed = prices.of({}, {}).value_or(StepCost{});
    Row row{named.name, named.remedies,
            run_week(question.week, question.troubles, prices, question.stepping), 0, 0};
    const double undisturbed = micros_of_step(question) / seconds(report.undisturbed.time);
    report.undisturbed_micros_per_second = undisturbed;
    row.micros_per_second =
        static_cast<double>(row.result.steps) * micros_of_step(question) / length;
    row.share = row.micros_per_second / undisturbed;
    report.rows.push_back(std::move(row));
  }
  return report;
}

std::string to_text(const Report& report) {
  const Question& question = report.question;
  const ClusterShape& shape = question.shape;
  std::string text = cat(shape.workers(), " workers (", shape.stages, " stages x ", shape.pipelines,
                         " pipelines), ", question.step.micros, " micro-batches each, ",
                         fixed(seconds(question.week.length) / 86400, 2), " days\n");
  text += cat("troubles    ", count_of(question, TroubleKind::DeadWorker), " deaths, ",
              count_of(question, TroubleKind::SlowWorker), " slow workers, ",
              count_of(question, TroubleKind::SlowLink), " slow links\n");
  text += cat("undisturbed ", fixed(to_milliseconds(report.undisturbed.time), 3), " ms a step, ",
              fixed(report.undisturbed_micros_per_second, 2), " micro-batches per second\n\n");
  text +=
      line_of("goodput", {"of all", "earned", "lost steps", "paused h", "waiting h", "over bound"});
  const double all = report.rows.front().share;
  for (const Row& row : report.rows) {
    Duration paused{};
    for (const Duration each : row.result.pauses) paused += each;
    const Duration trained = row.result.training + row.result.lost;
    const double above =
        trained > Duration{} ? seconds(row.result.above_bound) / seconds(trained) : 0;
    text +=
        line_of(row.name, {percent(row.share), percent(all - row.share), cat(row.result.lost_steps),
                           hours(paused), hours(row.result.waiting), percent(above)});
  }
  return text +
         "\nearned: what the remedies that a row lacks add to it, of the undisturbed goodput\n"
         "over bound: of the time in steps, at most what better orders could save\n";
}

nlohmann::ordered_json to_json(const Report& report) {
  const Question& question = report.question;
  nlohmann::ordered_json tree = {
      {"workers", question.shape.workers()},
      {"stages", question.shape.stages},
      {"pipelines", question.shape.pipelines},
      {"micros", question.step.micros},
      {"days", seconds(question.week.length) / 86400},
      {"deaths", count_of(question, TroubleKind::DeadWorker)},
      {"slow_workers", count_of(question, TroubleKind::SlowWorker)},
      {"slow_links", count_of(question, TroubleKind::SlowLink)},
      {"undisturbed_step_ms", to_milliseconds(report.undisturbed.time)},
      {"undisturbed_micro_batches_per_second", report.undisturbed_micros_per_second},
      {"bucket_s", seconds(question.week.bucket())},
      {"rows", nlohmann::ordered_json::array()},
  };
  for (const Row& row : report.rows) tree["rows"].push_back(json_of(report, row));
  return tree;
}

std::string picture_of(const Report& report) {
  const std::array<std::pair<const Row*, const char*>, 3> shown = {
      std::pair(&report.rows.back(), "#c0392b"), std::pair(&report.rows[1], "#e0a030"),
      std::pair(&report.rows.front(), "#2471a3")};
  std::string picture =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(kWidth, 0), "\" height=\"",
          fixed(kHeight, 0), "\" font-family=\"sans-serif\" font-size=\"12\">\n",
          "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  picture += text_at(kLeft, 20, "font-size=\"14\"",
                     cat("Goodput of ", report.question.shape.workers(),
                         " workers, as a share of the undisturbed one"));
  picture += axes_of(report);
  double x = kLeft;
  for (const auto& [row, color] : shown) {
    picture += curve_of(report, *row, color);
    picture +=
        text_at(x, 40, cat("fill=\"", color, "\""), cat(row->name, " (", percent(row->share), ")"));
    x += 300;
  }
  return picture + "</svg>\n";
}

}  // namespace tenuto::outlook
